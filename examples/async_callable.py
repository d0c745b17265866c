"""Serve an `async def` function, which asks two other models at once: while it waits, it works on other requests.

A plain function has its instance for itself until it returns. Of a coroutine function, up to
`ModelConfig.max_batches_in_flight` calls take turns on one event loop.
"""

import asyncio
import os
import time

import numpy as np

from pytriton.client import AsyncioModelClient, FuturesModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton

url = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"


@batch
def shout(text):
    time.sleep(0.05)  # stands for a slow neural network; in an `async def` function this would hold up all calls
    return {"loud": np.char.upper(text.astype(np.bytes_))}


@batch
def measure(text):
    return {"length": np.char.str_len(text.astype(np.bytes_))}


class Report:
    """Asks the other models, through clients that all its calls share."""

    def __init__(self):
        self.shouter = AsyncioModelClient(url, "shout")
        self.measurer = AsyncioModelClient(url, "measure")
        self.calls = self.most_calls = 0

    @batch
    async def __call__(self, text):
        """Other calls get their turn at `await` alone, so counting them needs no lock."""
        self.calls += 1
        self.most_calls = max(self.most_calls, self.calls)
        try:
            loud, length = await asyncio.gather(self.shouter.infer_batch(text), self.measurer.infer_batch(text))
        finally:
            self.calls -= 1
        return {**loud, **length}


text = Tensor(name="text", shape=(1,), dtype=bytes)
loud = Tensor(name="loud", shape=(1,), dtype=bytes)
length = Tensor(name="length", shape=(1,), dtype=np.int64)
report = Report()

with Triton() as triton:
    triton.bind("shout", shout, inputs=[text], outputs=[loud], config=ModelConfig(max_batch_size=16))
    triton.bind("measure", measure, inputs=[text], outputs=[length], config=ModelConfig(max_batch_size=16))
    # Without a batcher each request is a call of its own.
    triton.bind("report", report, inputs=[text], outputs=[loud, length], config=ModelConfig(batcher=None))

    with FuturesModelClient(url, "report") as client:
        words = b"several calls of one function wait at the same time"
        futures = [client.infer_sample(np.array([word])) for word in words.split()]
        for future in futures:
            answer = future.result()
            print(answer["loud"][0].decode(), answer["length"][0])
    print("calls at once, at most:", report.most_calls)
