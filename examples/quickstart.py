"""Serve a function until Ctrl+C; `quickstart_client.py` calls it.

The server listens on ports 8000 (HTTP), 8001 (gRPC) and 8002 (metrics). Other ports can be given in the environment:
PYTRITON_TRITON_CONFIG_HTTP_PORT, PYTRITON_TRITON_CONFIG_GRPC_PORT and PYTRITON_TRITON_CONFIG_METRICS_PORT.
"""

import logging

import numpy as np

from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton

logging.basicConfig(level=logging.INFO)  # shows where the model is served, and how to stop


@batch
def add(a, b):
    """The rows of all requests that wait at the same time: two arrays of shape (rows, any size)."""
    return {"sum": a + b}


with Triton() as triton:
    triton.bind(
        "add",
        add,
        inputs=[
            Tensor(name="a", shape=(-1,), dtype=np.float32),  # shapes are without the rows
            Tensor(name="b", shape=(-1,), dtype=np.float32),
        ],
        outputs=[Tensor(name="sum", shape=(-1,), dtype=np.float32)],
        config=ModelConfig(max_batch_size=128),
    )
    triton.serve()
