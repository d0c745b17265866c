"""The whole stack of decorators, with requests of every size."""
import sys
import threading
import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import *
from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HTTP, GRPC, METRICS = (int(p) for p in sys.argv[1:])
sizes, contexts = [], set()


@fill_optionals(temperature=np.array([1.0], dtype=np.float32), top_k=np.array([5], dtype=np.int32))
@group_by_keys
@batch
@group_by_values("temperature", "top_k", pad_fn=ConstantPadder(0))
@pad_batch
@first_value("temperature", "top_k")
@triton_context
def generate(prompt_ids, temperature, top_k, triton_context, stop_words=None):
    assert np.isscalar(temperature) and isinstance(top_k, np.int32)
    sizes.append(len(prompt_ids))
    contexts.add(triton_context.model_configs[generate].model_name)
    width = int(top_k)
    out = np.zeros((len(prompt_ids), width), np.float32)
    out[:] = prompt_ids.sum(axis=1, keepdims=True) * temperature
    return [out]


class Object:
    @first_value("scale")
    @batch
    def call(self, x, scale):
        return {"y": x * scale}


@batch
@group_by_values("k")
def group(x, k):
    return {"y": np.repeat(x.sum(axis=0, keepdims=True), len(x), axis=0)}


try:
    @first_value("__triton_context__")
    def nope(x): ...
    print("accepted")
except PyTritonBadParameterError as e:
    print("reserved")

inputs = [
    Tensor(name="prompt_ids", dtype=np.int64, shape=(-1,)),
    Tensor(name="temperature", dtype=np.float32, shape=(1,), optional=True),
    Tensor(name="top_k", dtype=np.int32, shape=(1,), optional=True),
    Tensor(name="stop_words", dtype=bytes, shape=(-1,), optional=True),
]
batcher = DynamicBatcher(preferred_batch_size=[2, 4], max_queue_delay_microseconds=1000)
with Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS)) as triton:
    triton.bind("generate", generate, inputs, [Tensor(name="tokens", dtype=np.float32, shape=(-1,))],
                config=ModelConfig(max_batch_size=16, batcher=batcher))
    triton.bind("group", group, [Tensor(name="x", dtype=np.float32, shape=(1,)), Tensor(name="k", dtype=np.int64, shape=(1,))],
                [Tensor(name="y", dtype=np.float32, shape=(1,))], config=ModelConfig(max_batch_size=16))
    triton.run()
    bad = []

    def worker(n):
        try:
            with ModelClient("localhost:%d" % HTTP, "generate") as c:
                ids = np.full((n, 3), n)
                got = c.infer_batch(ids)["tokens"]
                assert got.shape[1] >= 5 and (got[:, :5] == 3 * n).all(), got
                got = c.infer_batch(ids, np.full((n, 1), 2, np.float32))["tokens"]
                assert (got[:, :5] == 6 * n).all(), got
                t = np.arange(n, dtype=np.float32).reshape(-1, 1)
                k = np.arange(1, n + 1, dtype=np.int32).reshape(-1, 1)
                got = c.infer_batch(prompt_ids=ids, temperature=t, top_k=k, stop_words=np.full((n, 1), b"end"))["tokens"]
                assert got.shape[1] >= n and [g[0] for g in got] == [3 * n * i for i in range(n)], got
        except BaseException as e:
            bad.append(repr(e))

    threads = [threading.Thread(target=worker, args=(n,)) for n in (1, 2, 3, 5, 7)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(bad, sorted(contexts), set(sizes) <= {2, 4, 16}, get_inference_request_batch_size({"a": np.zeros((3, 1))}))
    with ModelClient("localhost:%d" % HTTP, "group") as c:
        print(c.infer_batch(np.array([[1], [2], [3]], np.float32), np.array([[0], [1], [0]]))["y"].ravel())
