# cells of a notebook, pasted together: globals everywhere, servers started anew, nothing is stopped at the end
# %%
import os, sys
import numpy as np
import pytriton.inprocess as tritonserver
from pytriton.inprocess import *
MODELS = sys.argv[1]
s = Server(Options(model_repository=MODELS, model_control_mode=ModelControlMode.EXPLICIT, strict_model_config=False))
s.start()
# %%
m = s.load("identity")
m
# %%
req = m.create_request()
req.inputs["int64_input"] = [[1, 2, 3]]
req.inputs["uint8_input"] = np.array([[1], ], dtype="uint8")
req.request_id = "cell 4"
r = list(m.infer(req))[-1]
print(r.request_id, {k: np.from_dlpack(v).tolist() for k, v in sorted(r.outputs.items())})
# %%
req.inputs = {"fp32_input": np.float32(2) * np.ones([4, 1], dtype="f4")}
req.parameters = {"note": "again"}
for r in m.infer(req): print(np.from_dlpack(r.outputs["fp32_output"]).sum())
# %%
s.stop()
# %%
s.start(); print(s.ready(), s.models()["identity"].state)
# %%
m = s.load("params"); n = s.load("counter")
print([x[0] for x in sorted(s.models(exclude_not_ready=True))])
# a second server beside it
s2 = Server(model_repository=[MODELS], server_id="second", model_control_mode=ModelControlMode.EXPLICIT, startup_models=["params"]).start(True)
print(s.metadata()["name"], s2.metadata()["name"])
print([float(np.from_dlpack(next(x.model("params").infer(inputs={"NUMBERS": [1.0, k]})).outputs["SUM"])[0]) for k, x in ((1.0, s), (2.0, s2))])
# %%
import builtins
print(sorted(x for x in ("Server", "Model", "Tensor") if x in globals()), isinstance(m, Model), isinstance(s.models(), ModelDictionary), isinstance(r, InferenceResponse), isinstance(req, InferenceRequest), isinstance(r.outputs["fp32_output"], Tensor))
# no stop(): the kernel is just restarted
