#!/usr/bin/env python
# For a custom backend without batching ("max_batch_size: 0"), so batch_size=0. Protocols are numbers here.
from pytriton.compat.tensorrtserver.api import *
import sys
url, proto = sys.argv[1:3]
proto = {"http": 0, "grpc": 1}[proto]
for model_version in (-1, None, np.int64(-1), np.int32(1), 1):
    ctx = InferContext(url, proto, "custom_nobatch", model_version)
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    res = ctx.run({"x": [a]}, {"y": InferContext.ResultFormat.RAW}, 0)
    out, = res["y"]
    if out.shape != (2, 3) or not np.array_equal(out, a * 2):
        print("FAIL", out); sys.exit(1)
    res = ctx.run({"x": [a]}, {"y": InferContext.ResultFormat.RAW}, batch_size=np.int32(0))
    ctx.close()
    print(type(model_version).__name__, ctx.get_last_request_model_name(), ctx.get_last_request_model_version(), ctx.get_last_request_id() > 0)
# a model that batches takes it for one, too
ctx = InferContext(url, ProtocolType(proto), "simple", -1)
i = np.zeros(16, dtype=np.int32)
r = ctx.run({"INPUT0": [i], "INPUT1": [i]}, {"OUTPUT0": ctx.ResultFormat.RAW}, 0, 0, 0, 0, 0)
print(len(r["OUTPUT0"]), r["OUTPUT0"][0].shape)
r = ctx.run({"INPUT0": [i], "INPUT1": [i]}, {"OUTPUT0": (ctx.ResultFormat.CLASS, np.int64(2))})
print(len(r["OUTPUT0"][0]), r["OUTPUT0"][0][0])
print("PASS: custom")
