"""Serve several models with one server; one of them has two instances, which work at the same time."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pytriton.client import ModelClient
from pytriton.decorators import batch, sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton

url = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"


@batch
def shout(text):
    # Strings arrive as object arrays of bytes. They can be returned so, or as an array of bytes or text such as this.
    return {"loud": np.char.upper(text.astype(np.bytes_))}


@sample
def mean(numbers):
    # Without batching a function gets what one client sent.
    return {"mean": numbers.mean(keepdims=True)}


class Device:
    """Stands for a GPU with a copy of a slow network."""

    def __init__(self, number):
        self.number = number

    @batch
    def __call__(self, x):
        """Runs in the instance's own thread."""
        time.sleep(0.05)
        return {"y": x * 2, "device": np.full((len(x), 1), self.number)}


def call_slow(x):
    with ModelClient(url, "slow") as client:
        return client.infer_sample(np.array([x], dtype=np.float64))


with Triton() as triton:
    triton.bind(
        "shout",
        shout,
        inputs=[Tensor(name="text", shape=(1,), dtype=bytes)],
        outputs=[Tensor(name="loud", shape=(1,), dtype=bytes)],
    )
    triton.bind(
        "mean",
        mean,
        inputs=[Tensor(name="numbers", shape=(-1,), dtype=np.float64)],
        outputs=[Tensor(name="mean", shape=(1,), dtype=np.float64)],
        config=ModelConfig(batching=False),
    )
    triton.bind(
        "slow",
        [Device(0), Device(1)],  # a list of callables makes one instance of each
        inputs=[Tensor(name="x", shape=(1,), dtype=np.float64)],
        outputs=[
            Tensor(name="y", shape=(1,), dtype=np.float64),
            Tensor(name="device", shape=(1,), dtype=np.int64),
        ],
        config=ModelConfig(batcher=None),  # one request per call
    )

    with ModelClient(url, "shout") as client:
        print("shout:", client.infer_sample(np.array([b"hello"]))["loud"][0].decode())
    with ModelClient(url, "mean") as client:
        print("mean:", client.infer_sample(np.arange(10.0))["mean"][0])
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(call_slow, range(8)))
    print("slow:", [int(answer["y"][0]) for answer in answers])
    print("devices that worked on it:", sorted({int(answer["device"][0]) for answer in answers}))
