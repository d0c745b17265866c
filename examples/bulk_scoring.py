"""Score an array that is far larger than one batch, with a progress bar. It needs tqdm."""

import os

import numpy as np
from tqdm import tqdm

from pytriton.client import FuturesModelClient, ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton

url = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"
ROWS, FEATURES, BATCH = 100_000, 16, 512

random = np.random.default_rng(0)
weights = random.normal(size=(FEATURES, 1)).astype(np.float32)
table = random.normal(size=(ROWS, FEATURES)).astype(np.float32)


@batch
def score(features):
    return {"score": 1 / (1 + np.exp(-features @ weights))}


def score_in_parallel(table):
    """Several batches are under way at once; the next one is sent when there is a place for it."""
    parts = [table[start : start + BATCH] for start in range(0, len(table), BATCH)]
    with (
        tqdm(total=len(table), unit=" rows") as bar,
        FuturesModelClient(url, "score", max_workers=4, max_queue_size=4) as client,
    ):
        futures = []
        for part in parts:
            future = client.infer_batch(part)  # waits while four are under way and four wait
            future.add_done_callback(lambda _, part=part: bar.update(len(part)))
            futures.append(future)
        return np.concatenate([future.result()["score"] for future in futures])


def score_in_one_call(table):
    """The client sends one part after the other; simpler, without progress, and without overlap."""
    with ModelClient(url, "score") as client:
        return client.with_options(split_batches=True).infer_batch(table)["score"]


with Triton() as triton:
    triton.bind(
        "score",
        score,
        inputs=[Tensor(name="features", shape=(FEATURES,), dtype=np.float32)],
        outputs=[Tensor(name="score", shape=(1,), dtype=np.float32)],
        config=ModelConfig(max_batch_size=BATCH),
    )
    scores = score_in_parallel(table)
    print(f"{len(scores)} scores, {(scores > 0.5).mean():.1%} of them above a half")
    print("as in one call:", np.allclose(scores, score_in_one_call(table)))
