"""Coroutines as models, and asyncio clients."""
import asyncio
import sys
import numpy as np
from pytriton.client import AsyncioModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HTTP, GRPC, METRICS = map(int, sys.argv[1:])


async def _sleepy(requests):
    await asyncio.sleep(0.01)
    return [{"y": request["x"] * 2} for request in requests]


@batch
async def _batched(x):
    await asyncio.sleep(0.01)
    return {"y": x * 3}


class Model:
    async def __call__(self, requests):
        return [{"y": request["x"] * 4} for request in requests]


async def client(url, name, n):
    async with AsyncioModelClient(url, name, lazy_init=False) as c:
        cfg = await c.model_config
        results = await asyncio.gather(*[c.infer_sample(np.array([i], np.float32)) for i in range(n)])
        batch = await c.infer_batch(x=np.ones((2, 1), np.float32))
        return cfg.max_batch_size, [float(r["y"][0]) for r in results], batch["y"].ravel().tolist()


async def main():
    for url in (f"http://localhost:{HTTP}", f"grpc://localhost:{GRPC}"):
        for name in ("sleepy", "batched", "object"):
            size, samples, batch = await client(url, name, 5)
            print(name, size, samples, batch)


t = [Tensor(name="x", dtype=np.float32, shape=(1,))]
o = [Tensor(name="y", dtype=np.float32, shape=(1,))]
triton = Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS))
triton.bind("sleepy", _sleepy, t, o)
triton.bind("batched", _batched, t, o, config=ModelConfig(max_batch_size=16))
triton.bind("object", Model(), t, o)
triton.run()
try:
    asyncio.run(main())
finally:
    triton.stop()
