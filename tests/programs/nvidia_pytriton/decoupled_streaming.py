"""Tokens one after the other, over the decoupled clients."""
import argparse
import asyncio
import json

import numpy as np

from pytriton.client import AsyncioDecoupledModelClient, DecoupledModelClient, ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

ap = argparse.ArgumentParser()
for flag in ("--http-port", "--grpc-port", "--metrics-port"):
    ap.add_argument(flag, type=int)
args = ap.parse_args()


@batch
def words(prompt):
    texts = [p[0].decode("utf-8") for p in prompt]
    n = max(len(t.split()) for t in texts)
    for i in range(n):
        yield {"word": np.array([[(t.split() + [""] * n)[i].encode()] for t in texts])}


async def plain(requests):
    for k in range(3):
        await asyncio.sleep(0)
        yield [{"word": np.char.add(r["prompt"].astype("S"), str(k).encode())} for r in requests]


tensors = dict(
    inputs=[Tensor(name="prompt", dtype=bytes, shape=(1,))],
    outputs=[Tensor(name="word", dtype=bytes, shape=(1,))],
)
url = "grpc://localhost:%d" % args.grpc_port


async def run_async():
    async with AsyncioDecoupledModelClient(url, "plain") as client:
        async for answer in client.infer_sample(np.array([b"tok"])):
            print("async", answer["word"].tolist())


with Triton(config=TritonConfig(http_port=args.http_port, grpc_port=args.grpc_port, metrics_port=args.metrics_port)) as t:
    t.bind("words", words, **tensors, config=ModelConfig(decoupled=True, max_batch_size=4))
    t.bind("plain", plain, **tensors, config=ModelConfig(decoupled=True))
    t.run()
    with DecoupledModelClient(url, "words", lazy_init=False) as client:
        for answer in client.infer_sample(prompt=np.array([b"one two three"])):
            print("sync", answer["word"].tolist())
        for answer in client.infer_batch(np.array([[b"x y"], [b"z"]])):
            print("batch", json.dumps([w.decode() for w in answer["word"].ravel()]))
        for answer in client.infer_sample(prompt=np.array([b"one two three"])):
            break  # never mind
    asyncio.run(run_async())
    try:
        ModelClient("http://localhost:%d" % args.http_port, "words").infer_sample(np.array([b"x"]))
    except Exception as e:
        print("coupled:", type(e).__name__)
