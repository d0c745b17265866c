"""Warm-up before the first client."""
import os, sys, tempfile
import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.common import ModelWarmup, WarmupInput, generate_warmup_data, generate_warmup_requests
from pytriton.model_config.triton_model_config import TensorSpec
from pytriton.triton import Triton, TritonConfig

H, G, M = map(int, sys.argv[1:])
calls = []


@batch
def infer(x, t):
    calls.append((x.shape, x.dtype.name, t.shape, bool((x == 0).all())))
    return [x.sum(axis=1, keepdims=True).astype("float32")]


path = os.path.join(tempfile.mkdtemp(), "x.npy")
np.save(path, np.arange(8, dtype=np.float32).reshape(2, 4))
warmups = [
    ModelWarmup(name="zeros", batch_size=1, inputs={
        "x": WarmupInput(dtype=np.float32, shape=(4,), zero_data=True),
        "t": WarmupInput(dtype=np.bytes_, shape=(1,), random_data=True)}, count=2),
    ModelWarmup(name="file", batch_size=2, inputs={
        "x": WarmupInput(dtype=np.float32, shape=(4,), input_data_file=path),
        "t": WarmupInput(np.bytes_, (1,), random_data=True)}, count=1),
]
print(generate_warmup_data(WarmupInput(np.int64, [2], random_data=True), 3).shape)
print(len(generate_warmup_requests(warmups[0], [TensorSpec("x", (4,), np.float32), TensorSpec("t", (1,), np.bytes_)], [])))
try:
    generate_warmup_data(WarmupInput(np.int64, (2,)), 3)
except PyTritonBadParameterError as e:
    print("no source")

with Triton(config=TritonConfig(http_port=H, grpc_port=G, metrics_port=M)) as triton:
    triton.bind("warm", infer,
                [Tensor(name="x", dtype=np.float32, shape=(4,)), Tensor(name="t", dtype=np.bytes_, shape=(1,))],
                [Tensor(name="s", dtype=np.float32, shape=(1,))], config=ModelConfig(max_batch_size=4, model_warmup=warmups))
    triton.run()
    for c in calls:
        print(c)
    with ModelClient("localhost:%d" % H, "warm") as client:
        print(client.infer_sample(np.ones(4, np.float32), np.array([b"t"]))["s"])
