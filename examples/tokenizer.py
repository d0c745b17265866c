"""Tokenise texts in Python: in threads, which share one interpreter, and in worker processes, which have one each.

On two free cores, two workers are up to twice as fast as one, and two threads are no faster than one.
"""

import os
import sys
import time
from collections import Counter
from itertools import pairwise

import numpy as np

from pytriton.client import FuturesModelClient
from pytriton.decorators import sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from pytriton.workers import Processes

url = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"
REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
TEXT = "it was the best of times, it was the worst of times, it was the age of wisdom, " * 60
LARGE = 2**31


def joined(pieces, pair):
    """The same with each occurrence of the pair made one piece."""
    whole, at = [], 0
    while at < len(pieces):
        size = 2 if tuple(pieces[at : at + 2]) == pair else 1
        whole.append("".join(pieces[at : at + size]))
        at += size
    return whole


def learn_pairs(text, count):
    """Byte-pair encoding: the pairs that are most frequent, one after the other, each with its rank."""
    words, ranks = [list(word) for word in text.split()], {}
    while len(ranks) < count:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        if not pairs:
            break
        best = max(pairs, key=pairs.get)
        ranks[best] = len(ranks)
        words = [joined(word, best) for word in words]
    return ranks


def make_tokenizer():
    """Runs in each worker; a real one would load its vocabulary here."""
    ranks = learn_pairs(TEXT[:400], 60)
    ids = {piece: number for number, piece in enumerate([*map(chr, range(128)), *map("".join, ranks)])}

    @sample
    def tokenize(text):
        tokens = []
        for word in text[0].decode().split():
            pieces = list(word)
            while len(pieces) > 1:
                best = min(pairwise(pieces), key=lambda pair: ranks.get(pair, LARGE))
                if best not in ranks:
                    break
                pieces = joined(pieces, best)
            tokens += [ids[piece] for piece in pieces]
        return {"tokens": np.array(tokens, dtype=np.int32)}

    return tokenize


ways = {
    "1-thread": make_tokenizer(),
    "2-threads": [make_tokenizer(), make_tokenizer()],
    "1-worker": Processes(make_tokenizer, count=1),
    "2-workers": Processes(make_tokenizer, count=2),
}
with Triton() as triton:
    for name, callables in ways.items():
        triton.bind(
            name,
            callables,
            inputs=[Tensor(name="text", shape=(1,), dtype=bytes)],
            outputs=[Tensor(name="tokens", shape=(-1,), dtype=np.int32)],
            config=ModelConfig(batching=False),
        )
    text = np.array([TEXT.encode()])
    for name in ways:
        with FuturesModelClient(url, name, max_workers=4) as client:
            client.infer_sample(text).result()
            start = time.monotonic()
            answers = [client.infer_sample(text) for _ in range(REQUESTS)]
            tokens = {len(answer.result()["tokens"]) for answer in answers}
            seconds = time.monotonic() - start
        print(f"{name}: {tokens.pop()} tokens, {REQUESTS / seconds:.0f} texts per second")
