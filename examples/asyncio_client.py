"""Call models from an asyncio program: many requests at once over few connections, on one thread."""

import asyncio
import os

import numpy as np

from pytriton.client import AsyncioModelClient
from pytriton.client.exceptions import PyTritonClientTimeoutError
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton

url = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"


@batch
def mean(x):
    return {"y": x.mean(axis=1, keepdims=True)}


@batch
def spread(x):
    return {"y": np.ptp(x, axis=1, keepdims=True)}


async def ask(mean_client, spread_client):
    """Ask both models about ten rows, all at the same time."""
    rows = [np.arange(n, 2 * n, dtype=np.float32) for n in range(1, 11)]
    answers = await asyncio.gather(
        *(mean_client.infer_sample(row) for row in rows),
        *(spread_client.infer_sample(row) for row in rows),
    )
    values = [answer["y"][0] for answer in answers]
    print("means:", *values[:10])
    print("spreads:", *values[10:])


async def main():
    async with AsyncioModelClient(url, "mean") as mean_client, AsyncioModelClient(url, "spread") as spread_client:
        print("inputs:", [(spec.name, spec.shape) for spec in (await mean_client.model_config).inputs])
        await ask(mean_client, spread_client)
    try:
        async with AsyncioModelClient("localhost:1", "mean", lazy_init=False, init_timeout_s=0.2):
            pass
    except PyTritonClientTimeoutError as error:
        print("nobody listens there:", type(error).__name__)


with Triton() as triton:
    for name, function in ("mean", mean), ("spread", spread):
        triton.bind(
            name,
            function,
            inputs=[Tensor(name="x", shape=(-1,), dtype=np.float32)],
            outputs=[Tensor(name="y", shape=(1,), dtype=np.float32)],
            config=ModelConfig(max_batch_size=16),
        )
    asyncio.run(main())
