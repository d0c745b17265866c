"""Several models in one server; some bound late, one in two versions; one callable for two models."""
import sys
import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch, triton_context, sample
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonContext

http, grpc, metrics = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


@batch
def multiply_by(multiplicand, n=2):
    return [multiplicand * n]


def two(requests):
    return multiply_by(requests)


@batch
@triton_context
def who(x, triton_context: TritonContext):
    cfg = triton_context.model_configs[who]
    name = cfg.model_name.encode()
    return {"name": np.array([[name]] * len(x)), "x": x}


@sample
def length(text):
    return {"n": np.array([len(t) for t in text.flatten()])}


x = [Tensor(name="x", dtype=np.float32, shape=(1,))]
named = [Tensor(name="name", dtype=bytes, shape=(1,)), Tensor(name="x", dtype=np.float32, shape=(1,))]
m_in = [Tensor(name="multiplicand", dtype=np.float32, shape=(1,))]
m_out = [Tensor(name="product", dtype=np.float32, shape=(1,))]

with Triton(config=TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics)) as triton:
    triton.bind("multiply2", multiply_by, inputs=m_in, outputs=m_out, config=ModelConfig(max_batch_size=8))
    triton.bind("first", who, inputs=x, outputs=named, config=ModelConfig(max_batch_size=8))
    triton.bind("second", who, inputs=x, outputs=named, config=ModelConfig(max_batch_size=8))
    triton.run()
    triton.bind(model_name="multiply2", infer_func=lambda requests: [{"product": r["multiplicand"] * 20} for r in requests],
                inputs=m_in, outputs=m_out, model_version=2, config=ModelConfig(max_batch_size=8))
    triton.bind("len", length, [Tensor(name="text", dtype=np.bytes_, shape=(-1,))], [Tensor(name="n", dtype=np.int64, shape=(-1,))],
                config=ModelConfig(batching=False))
    try:
        triton.bind("LEN", length, [Tensor(name="text", dtype=np.bytes_, shape=(-1,))], [Tensor(name="n", dtype=np.int64, shape=(-1,))])
    except PyTritonInvalidOperationError as e:
        print("twice:", type(e).__name__)
    url = "localhost:%d" % http
    data = np.array([[3.0], [4.0]], np.float32)
    for version in ("1", "2", None):
        with ModelClient(url, "multiply2", version) as c:
            print(version, c.infer_batch(data)["product"].ravel().tolist())
    for m in ("first", "second"):
        with ModelClient("grpc://localhost:%d" % grpc, m) as c:
            print(c.infer_batch(data)["name"].ravel().tolist())
    with ModelClient(url, "len") as c:
        print(c.infer_sample(np.array([b"a", b"four"])), c.is_batching_supported)
