"""Custom parameters and HTTP/gRPC headers."""
import sys
import numpy as np
from pytriton.client import FuturesModelClient, ModelClient
from pytriton.decorators import batch, first_value, sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.proxy.types import Request
from pytriton.triton import Triton, TritonConfig

http, grpc, metrics = map(int, sys.argv[1:])
seen = []


@batch
def scale(x, divisor):
    return {"y": x / divisor}


def infer_with_params(requests):
    out = []
    for request in requests:
        div = request.parameters.get("divide", 1)
        new = request.copy()
        new["divisor"] = np.full((len(request["x"]), 1), div, np.float32)
        out += scale([new])
    return out


def show(requests):
    for r in requests:
        seen.append(dict(r.parameters))
        assert dict(r).keys() == {"x"} and r.data["x"] is r["x"]
    return [{"y": r["x"]} for r in requests]


x, y = [Tensor(name="x", dtype=np.float32, shape=(-1,))], [Tensor(name="y", dtype=np.float32, shape=(-1,))]
triton_config = TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics,
                             http_header_forward_pattern="(div.*|x-user)", grpc_header_forward_pattern="div.*|x-user")
with Triton(config=triton_config) as triton:
    triton.bind("params", infer_with_params, x, y, config=ModelConfig(max_batch_size=8))
    triton.bind("show", show, x, y)
    triton.run()
    v = np.array([2.0, 4.0], np.float32)
    for url in (f"http://localhost:{http}", f"grpc://localhost:{grpc}"):
        with ModelClient(url, "params") as client:
            print(client.infer_sample(v, parameters={"divide": 2})["y"].tolist(), client.infer_sample(v)["y"].tolist())
        with ModelClient(url, "show") as client:
            client.infer_sample(v, headers={"x-user": "ada", "divisor": 7}, parameters={"n": 1, "s": "t", "b": True})
            try:
                client.infer_sample(v, parameters={"n": 1.5j})
            except ValueError as e:
                print("ValueError")
            except Exception as e:
                print(type(e).__name__)
        print(sorted((k.lower(), v) for k, v in seen[-1].items()))
    with FuturesModelClient(f"localhost:{http}", "params") as client:
        futures = [client.infer_sample(v, parameters={"divide": k + 1}) for k in range(4)]
        print([f.result()["y"].tolist() for f in futures])
