"""Run by interpreters of all kinds: serves models of three kinds, calls them, and serves on until it is ended."""

import asyncio
import json
import logging
import sys
from pathlib import Path

import numpy as np

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

FOLDER, OPTIONS, PROXY = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
X = np.array([[1, 2]], np.float32)


@batch
def double(x):
    return [x * 2]


@batch
async def triple(x):
    await asyncio.sleep(0)
    return [x * 3]


@batch
def count(x):
    for factor in (1, 2, 3):
        yield [x * factor]


def answers(url):
    """What the models make of X at an endpoint of the server."""
    found = {}
    for name in ("double", "triple"):
        with ModelClient(url, name) as client:
            found[name] = client.infer_batch(X)["y"].tolist()
    if url.startswith("grpc"):
        with DecoupledModelClient(url, "count") as client:
            found["count"] = [response["y"].tolist() for response in client.infer_batch(X)]
    return found


logging.basicConfig(level=logging.INFO)
with Triton(config=TritonConfig(**OPTIONS)) as triton:
    for function in (double, triple, count):
        triton.bind(
            function.__name__,
            function,
            inputs=[Tensor(name="x", shape=(-1,), dtype=np.float32)],
            outputs=[Tensor(name="y", shape=(-1,), dtype=np.float32)],
            config=ModelConfig(max_batch_size=4, batcher=None, decoupled=function is count, proxy=PROXY),
        )
    urls = {scheme: f"{scheme}://127.0.0.1:{OPTIONS[f'{scheme}_port']}" for scheme in ("http", "grpc")}
    (FOLDER / "answers.json").write_text(json.dumps({scheme: answers(url) for scheme, url in urls.items()}))
    (FOLDER / "ready").touch()
    triton.serve()
