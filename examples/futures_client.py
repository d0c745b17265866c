"""Have many requests under way at once, without asyncio: each call returns a future.

The server merges the requests that come while the function works, so it is called far fewer times.
"""

import os
import time
from concurrent.futures import as_completed

import numpy as np

from pytriton.client import FuturesModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton

url = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
rows_of_calls = []


@batch
def length(vector):
    rows_of_calls.append(len(vector))
    time.sleep(0.01)  # as a model would work on them: one row or many
    return {"length": np.linalg.norm(vector, axis=1, keepdims=True)}


with Triton() as triton:
    triton.bind(
        "length",
        length,
        inputs=[Tensor(name="vector", shape=(2,), dtype=np.float32)],
        outputs=[Tensor(name="length", shape=(1,), dtype=np.float32)],
        config=ModelConfig(max_batch_size=64),
    )
    vectors = [np.array([3 * n, 4 * n], dtype=np.float32) for n in range(200)]

    with FuturesModelClient(url, "length") as client:
        # None of these calls waits for an answer. The answers are taken in the order of the calls.
        futures = [client.infer_sample(vector) for vector in vectors]
        lengths = [future.result()["length"][0] for future in futures]
        print("lengths:", *lengths[:5], "...", lengths[-1])
        print(f"calls: {len(rows_of_calls)} for {sum(rows_of_calls)} requests")

        # Or as they come.
        numbers = {client.infer_sample(vector): n for n, vector in enumerate(vectors[:3])}
        for future in as_completed(numbers):
            print(f"number {numbers[future]} has length", future.result()["length"][0])

        # What goes wrong comes out of the future, too.
        future = client.infer_sample(np.zeros(3, dtype=np.float32))
        try:
            future.result()
        except PyTritonClientError as error:
            print(f"{type(error).__name__}: {error}")
