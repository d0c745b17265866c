"""Read the parameters and headers of each request.

A function under `@batch` or `@sample` gets arrays alone. One without a decorator gets the requests themselves: mappings
from input name to array, with the attribute `parameters`. Headers are among these if they match the forward pattern.
"""

import os

import numpy as np

from pytriton.client import ModelClient
from pytriton.model_config import Tensor
from pytriton.triton import Triton, TritonConfig

http_url = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
grpc_url = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"


def scale(requests):
    """Returns one response for each request."""
    responses = []
    for request in requests:
        factor = request.parameters.get("factor", 1)
        user = request.parameters.get("x-user", "nobody")
        rows = len(request["x"])
        responses.append({"y": request["x"] * factor, "user": np.full((rows, 1), user)})
    return responses


config = TritonConfig(http_header_forward_pattern="x-.*", grpc_header_forward_pattern="x-.*")

with Triton(config=config) as triton:
    triton.bind(
        "scale",
        scale,
        inputs=[Tensor(name="x", shape=(-1,), dtype=np.float32)],
        outputs=[
            Tensor(name="y", shape=(-1,), dtype=np.float32),
            Tensor(name="user", shape=(1,), dtype=bytes),
        ],
    )
    x = np.array([1, 2, 3], dtype=np.float32)
    for url in http_url, grpc_url:
        with ModelClient(url, "scale") as client:
            plain = client.infer_sample(x)
            print(plain["y"], "for", plain["user"][0].decode())
            scaled = client.infer_sample(x, parameters={"factor": 10}, headers={"x-user": "ada"})
            print(scaled["y"], "for", scaled["user"][0].decode())
