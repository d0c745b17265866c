"""Count words with Python code in one worker process, and in two. Two cores make two workers almost twice as fast."""

import os
import time

import numpy as np

from pytriton.client import FuturesModelClient
from pytriton.decorators import sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from pytriton.workers import Processes

url = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"
REQUESTS = 40
TEXT = "it was the best of times, it was the worst of times, " * 400


def make_counter():
    """Runs in each worker; a real one would load a model here."""
    split = str.maketrans(",.;!?", "     ")

    @sample
    def count_words(text):
        found = {}
        for word in text[0].decode().translate(split).split():
            for end in range(1, len(word) + 1):  # all beginnings, so that it takes a while
                found[word[:end]] = found.get(word[:end], 0) + 1
        return {"count": np.array([found["times"]], dtype=np.int64)}

    return count_words


def requests_per_s(model):
    text = np.array([TEXT.encode()])
    with FuturesModelClient(url, model, max_workers=4) as client:
        client.infer_sample(text).result()
        start = time.monotonic()
        answers = [client.infer_sample(text) for _ in range(REQUESTS)]
        counts = {int(answer.result()["count"][0]) for answer in answers}
        seconds = time.monotonic() - start
    print(f"{model}: {counts.pop()} times")
    return REQUESTS / seconds


with Triton() as triton:
    for workers in (1, 2):
        triton.bind(
            f"counter-{workers}",
            Processes(make_counter, count=workers),
            inputs=[Tensor(name="text", shape=(1,), dtype=bytes)],
            outputs=[Tensor(name="count", shape=(1,), dtype=np.int64)],
            config=ModelConfig(batching=False),
        )
    one, two = requests_per_s("counter-1"), requests_per_s("counter-2")
    print(f"requests per second: {one:.0f} with one worker, {two:.0f} with two")
