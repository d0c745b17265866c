#!/usr/bin/env python
# load, unload, registering repositories, everything that an operator does by hand
import argparse
import json
import os
import shutil
import sys
import tempfile

import numpy as np
from pytriton import inprocess as tritonserver

ap = argparse.ArgumentParser()
ap.add_argument("--models", required=True)
args = ap.parse_args()

work = tempfile.mkdtemp(prefix="control")
first, second = os.path.join(work, "first"), os.path.join(work, "second")
shutil.copytree(os.path.join(args.models, "params"), os.path.join(first, "params"))
shutil.copytree(os.path.join(args.models, "counter"), os.path.join(second, "folder"))
# the name in the file would not be the one it is mapped to
conf = os.path.join(second, "folder", "config.pbtxt")
text = open(conf).read().replace('name: "counter"', "")
open(conf, "w").write(text)

server = tritonserver.Server(tritonserver.Options(first, "control", tritonserver.ModelControlMode.EXPLICIT))
server.start()
models = server.models()
print(sorted(models.keys()), models["params"].state)
if ("params", -1) not in models or "params" not in models or models.get("nothing") is not None:
    sys.exit("wrong keys")

server.register_model_repository(second, {"folder": "renamed"})
print(sorted(name for name, version in server.models()))
renamed = server.load("renamed")
got = [int(np.from_dlpack(r.outputs["OUT"])[0]) for r in renamed.infer(inputs={"IN": np.array([3], np.int32)}) if r.outputs]
print(got, int(renamed.transaction_properties() & tritonserver.ModelTxnPropertyFlag.DECOUPLED))
server.unload("renamed", False, True, 0.05, 30)
server.unregister_model_repository(second)
print(sorted(name for name, version in server.models()))

model = server.load("params")
print(model.config()["instance_group"][0]["count"], model.config(1)["max_batch_size"])
config = model.config()
config["instance_group"][0]["count"] = 2
model = server.load("params", {"config": json.dumps(config)})
print(model.config()["instance_group"][0]["count"])
print(model.metadata()["platform"], model.metadata()["versions"], [o["name"] for o in model.metadata()["outputs"]])
print(int(model.batch_properties()), model.transaction_properties() == tritonserver.ModelTxnPropertyFlag.ONE_TO_ONE)
print(model.batch_properties() & tritonserver.ModelBatchFlag.FIRST_DIM == 0, model.batch_properties() == tritonserver.ModelBatchFlag.UNKNOWN)

source = open(os.path.join(first, "params", "1", "model.py"), "rb").read()
made = server.load("made_up", {"config": json.dumps({"backend": "python", "input": config["input"], "output": config["output"]}), "file:1/model.py": source})
(r,) = made.infer(inputs={"NUMBERS": [1.0, 2.0]})
print(np.from_dlpack(r.outputs["SUM"]))

for name, call in {
    "load": lambda: server.load("no_such_model"),
    "poll": lambda: server.poll_model_repository(),
    "config": lambda: server.model("no_such_model").config(),
    "version": lambda: server.model("params", 77).metadata(),
    "config version": lambda: model.config(config_version=3),
    "unregister": lambda: server.unregister_model_repository("/no/such/folder"),
    "infer": lambda: server.model("no_such_model").infer(inputs={}),
}.items():
    try:
        call()
        print(name, "went well?!")
        sys.exit(1)
    except tritonserver.TritonError as e:
        print(name, type(e).__name__)
try:
    models["no_such_model"]
except KeyError as e:
    print("KeyError", e)

print(model.statistics()["model_stats"][0]["inference_count"], made.statistics()["model_stats"][0]["inference_stats"]["success"]["count"])
server.unload(model, unload_dependents=True, wait_until_unloaded=True)
state = server.models()["params", 1]
print(state.state, state.reason)
server.stop()
shutil.rmtree(work)
