"""What strict=True and bind refuse."""
import sys
import numpy as np
from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch
from pytriton.exceptions import (
    PyTritonBadParameterError, PyTritonError, PyTritonInvalidOperationError, PyTritonValidationError,
)
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.types import Request
from pytriton.proxy.validators import TritonResultsValidator
from pytriton.triton import Triton, TritonConfig

HTTP, GRPC, METRICS = map(int, sys.argv[1:])
x, y = [Tensor(name="x", dtype=np.float32, shape=(-1,))], [Tensor(name="y", dtype=np.float32, shape=(2,))]


@batch
def wrong_dtype(x):
    return {"y": x.astype(np.float64)}


@batch
def wrong_shape(x):
    return {"y": np.zeros((len(x), 3), np.float32)}


def wrong_name(requests):
    return [{"y": r["x"], "z": r["x"]} for r in requests]


def fine(requests):
    return [{"y": np.asarray(r["x"][:, :2], np.float32)} for r in requests]


with Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS)) as triton:
    for f in (wrong_dtype, wrong_shape, wrong_name, fine):
        triton.bind(f.__name__, f, x, y, strict=True)
    triton.run()
    for f in (wrong_dtype, wrong_shape, wrong_name, fine):
        with ModelClient("localhost:%d" % HTTP, f.__name__) as c:
            try:
                print(f.__name__, c.infer_sample(np.ones(2, np.float32)))
            except PyTritonClientInferenceServerError as e:
                print(f.__name__, "refused")
    for name, func, ins, outs in [
        ("", fine, x, y), ("a b", fine, x, y), ("a\n", fine, x, y), ("ok", 5, x, y), ("ok", [], x, y),
        ("ok", fine, x, [Tensor(name="y", dtype=np.float32, shape=(1,), optional=True)]), ("fine", fine, x, y),
        ("ok", fine, [Tensor(name="x", dtype=np.float32, shape=(-1,))] * 2, y),
    ]:
        try:
            triton.bind(name, func, ins, outs)
            print("bound", name)
        except PyTritonInvalidOperationError as e:
            print("invalid operation")
        except PyTritonValidationError as e:
            print("validation", e.message == str(e))
        except PyTritonBadParameterError as e:
            print("bad parameter")

config = TritonModelConfig("m", inputs=[TensorSpec("x", (-1,), np.float32)], outputs=[TensorSpec("y", (2,), np.float32)])
validator = TritonResultsValidator(config, True)
ok, bad = np.zeros((1, 2), np.float32), np.zeros((1, 3), np.float32)
validator.validate_responses([Request({"x": ok}, {})], [{"y": ok}])
for responses in ({}, [], [{"y": bad}], [{1: ok}], [{"y": [1]}], [{"y": np.array([["s"]], object)}], [{"q": ok}]):
    try:
        validator.validate_responses([Request({"x": ok}, {})], responses)
        print("passed?", responses)
    except ValueError:
        print(".", end="")
print()
