# prints: ValueError: PyTritonClientValueError
# prints: ValueError: PyTritonClientInvalidUrlError
# prints: ValueError: PyTritonClientValueError
# prints: mixed: PyTritonClientValueError
# prints: no batching: PyTritonClientModelDoesntSupportBatchingError
# prints: wrong dtype refused
# prints: model failed: True
# prints: closed: PyTritonClientClosedError
# prints: nobody listens: True
# prints: decoupled: 3 responses
"""What can go wrong goes wrong."""
import socket
import numpy as np
from pytriton.client import DecoupledModelClient, FuturesModelClient, ModelClient
from pytriton.client.client import ModelClient as SameClient
from pytriton.client.exceptions import *
from pytriton.decorators import sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

def p():
    s = socket.socket(); s.bind(("", 0)); n = s.getsockname()[1]; s.close(); return n

http, grpc = p(), p()

def attempt(what, fn, *a, **kw):
    try:
        fn(*a, **kw)
        raise SystemExit("nothing was raised: " + what)
    except SystemExit:
        raise
    except ValueError as e:
        print(what + ":", type(e).__name__)
    except PyTritonClientError as e:
        print(what + ":", type(e).__name__)

attempt("ValueError", FuturesModelClient, "localhost", "m", max_workers=0)
attempt("ValueError", ModelClient, "ftp://localhost", "m")
attempt("ValueError", DecoupledModelClient, "http://localhost", "m")

@sample
def divide(a, b):
    if not b.all():
        raise ZeroDivisionError("b is zero")
    return {"q": a / b}

def words(requests):
    for i in range(3):
        yield [{"w": np.array([b"word%d" % i], dtype=object)} for _ in requests]

F = [Tensor(name=n, dtype=np.float32, shape=(-1,)) for n in "abq"]
with Triton(config=TritonConfig(http_port=http, grpc_port=grpc, metrics_port=p())) as t:
    t.bind("divide", divide, F[:2], F[2:], config=ModelConfig(batching=False))
    t.bind("words", words, [Tensor(name="n", dtype=np.int32, shape=(1,))], [Tensor(name="w", dtype=bytes, shape=(1,))],
           config=ModelConfig(batching=False, decoupled=True))
    one, zero = np.ones(2, dtype=np.float32), np.zeros(2, dtype=np.float32)
    client = SameClient("localhost:%d" % http, "divide")
    attempt("mixed", client.infer_sample, one, b=one)
    attempt("no batching", client.infer_batch, one[None], one[None])
    try:
        client.infer_sample(one.astype(np.float64), one)
    except (PyTritonClientInferenceServerError, RuntimeError):
        print("wrong dtype refused")
    try:
        client.infer_sample(one, zero)
    except PyTritonClientInferenceServerError as e:
        print("model failed:", "b is zero" in e.message)
    client.close()
    client.close()
    attempt("closed", client.infer_sample, one, one)
    with DecoupledModelClient("grpc://localhost:%d" % grpc, "words") as d:
        print_later = len(list(d.infer_sample(np.array([1], dtype=np.int32))))
try:
    ModelClient("localhost:%d" % p(), "divide", lazy_init=False, init_timeout_s=1.0)
except PyTritonClientTimeoutError as e:
    print("nobody listens:", "not ready within 1 s" in str(e))
print("decoupled:", print_later, "responses")
