"""Strings and fp16, as text models have them."""
import sys
import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch, sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HTTP, GRPC, METRICS = map(int, sys.argv[1:])


@batch
def upper(sequence):
    sequence = np.char.decode(sequence.astype("bytes"), "utf-8")  # U array
    return {"upper": np.char.upper(sequence)}                    # also U


@batch
def objects_of_str(sequence):
    words = [s[0].decode() for s in sequence]
    return {"upper": np.array([[w.title()] for w in words], dtype=object)}


@batch
def half(x):
    return {"half": (x / 2).astype(np.float16), "as_is": x}


def typed(requests):
    return [{"kind": np.array([[str(r["sequence"].dtype), type(r["sequence"].flat[0]).__name__]])} for r in requests]


seq = [Tensor(name="sequence", dtype=object, shape=(1,))]
up = [Tensor(name="upper", dtype=bytes, shape=(1,))]
with Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS)) as triton:
    triton.bind("upper", upper, seq, up, config=ModelConfig(max_batch_size=16))
    triton.bind("title", objects_of_str, seq, up, config=ModelConfig(max_batch_size=16))
    triton.bind("typed", typed, seq, [Tensor(name="kind", dtype=np.bytes_, shape=(2,))])
    triton.bind("half", half, [Tensor(name="x", dtype=np.float16, shape=(-1,))],
                [Tensor(name="half", dtype=np.float16, shape=(-1,)), Tensor(name="as_is", dtype="float16", shape=(-1,))], strict=True)
    triton.run()
    for url in ("localhost:%d" % HTTP, "grpc://localhost:%d" % GRPC):
        for name in ("upper", "title"):
            with ModelClient(url, name) as c:
                texts = np.char.encode(np.array([["zażółć"], ["hello world"]]), "utf-8")
                out = c.infer_batch(texts)["upper"]
                print(name, out.dtype, [o.decode("utf-8") for o in out.ravel()])
                out = c.infer_sample(np.array([b"one"], dtype=object))["upper"]
                print(out)
        with ModelClient(url, "typed") as c:
            print(c.infer_sample(np.array([b"one"]))["kind"])
        with ModelClient(url, "half") as c:
            out = c.infer_sample(np.array([1, 2, 3], np.float16))
            print(out["half"], out["half"].dtype, out["as_is"].tolist())
