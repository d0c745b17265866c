"""Every dtype through an identity model, both protocols."""
import sys, os
import numpy as np
from pytriton.client import ModelClient
from pytriton.model_config import ModelConfig, Tensor, DynamicBatcher
from pytriton.triton import Triton, TritonConfig

HTTP, GRPC, METRICS = [int(x) for x in sys.argv[1:]]
TYPES = [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64,
         np.float16, np.float32, np.float64, np.dtype("float32"), bytes, object, np.object_, np.bytes_]


def identity(requests):
    # the request is what we return
    for request in requests:
        assert isinstance(request, dict), type(request)
    return requests


def sample_of(t):
    if t in (bytes, object, np.object_, np.bytes_):
        return np.array([[b"a", b"bc"], ["zażółć".encode("utf-8"), b""]], dtype=object)
    return np.array([[0, 1], [1, 0]]).astype(t)


with Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS)) as triton:
    for i, t in enumerate(TYPES):
        tensor = Tensor(name="x", dtype=t, shape=(-1,))
        if tensor.dtype != (t.type if isinstance(t, np.dtype) else t):
            print("dtype changed", t, tensor.dtype); sys.exit(1)
        triton.bind("identity%d" % i, identity, [tensor], [Tensor(name="x", dtype=t, shape=(-1,))],
                    config=ModelConfig(max_batch_size=4, batcher=DynamicBatcher()))
    triton.run()
    ok = 0
    for url in ("http://localhost:%d" % HTTP, "grpc://localhost:%d" % GRPC):
        for i, t in enumerate(TYPES):
            with ModelClient(url, f"identity{i}") as c:
                x = sample_of(t)
                y = c.infer_batch(x)["x"]
                if not (y == x).all() or y.dtype != x.dtype:
                    print("FAILED", t, y.dtype); sys.exit(1)
                ok += 1
print("PASS", ok)
