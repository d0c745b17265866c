"""Callables that fail, in the ways that callables fail."""
import sys
import threading
import logging
import numpy as np
from pytriton.client import ModelClient
from pytriton.client.exceptions import *
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HTTP, GRPC, METRICS = map(int, sys.argv[1:])
x, y = [Tensor(name="x", dtype=np.float32, shape=(1,))], [Tensor(name="y", dtype=np.float32, shape=(1,))]


@batch
def flaky(x):
    if (x < 0).any():
        raise ValueError("negative!")
    if (x > 100).any():
        raise PyTritonUnrecoverableError("CUDA error")
    return {"y": np.sqrt(x)}


def not_a_list(requests):
    return {"y": requests[0]["x"]}


triton = Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS))
triton.bind("flaky", flaky, x, y)
triton.bind("notalist", not_a_list, x, y)
server = threading.Thread(target=triton.serve)
server.start()
c = ModelClient(f"localhost:{HTTP}", "flaky", init_timeout_s=60)


def call(client, v):
    try:
        return client.infer_sample(np.array([v], np.float32))["y"].tolist()
    except PyTritonClientInferenceServerError as e:
        return "ValueError: negative!" in str(e) or type(e).__name__
    except:
        return sys.exc_info()[0]


print(call(c, 4), call(c, -1), call(c, 9))
with ModelClient(f"grpc://localhost:{GRPC}", "notalist") as n:
    print(call(n, 1))
try:
    ModelClient(f"localhost:{HTTP}", "nothere", init_timeout_s=2, lazy_init=False)
except (PyTritonClientTimeoutError, PyTritonClientModelUnavailableError) as e:
    print("not there", isinstance(e, PyTritonClientTimeoutError))
try:
    ModelClient("ftp://localhost", "m")
except PyTritonClientInvalidUrlError as e:
    print("url", isinstance(e, PyTritonClientValueError))
print(call(c, 1000))
c.close()
try:
    c.infer_sample(np.ones(1, np.float32))
except PyTritonClientClosedError:
    print("closed")
server.join(60)
print("serving:", server.is_alive(), triton.is_alive())
