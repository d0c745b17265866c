"""Hundreds of calls at once from one event loop."""
import asyncio
import sys
import numpy as np
from pytriton.client import AsyncioModelClient
from pytriton.client.asyncio_utils import asyncio_get_model_config, asyncio_get_model_state, asyncio_wait_for_model_ready, \
    asyncio_wait_for_server_ready, asyncio_wait_for_model_status_loaded
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientModelDoesntSupportBatchingError, PyTritonClientValueError
from pytriton.client.utils import ModelState
from pytriton.decorators import batch, sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

HTTP, GRPC, METRICS = map(int, sys.argv[1:])


@batch
def inc(x):
    return {"y": x + 1}


@sample
def neg(x):
    return [-x]


async def main():
    async with AsyncioModelClient(f"grpc://localhost:{GRPC}", "inc") as grpc, AsyncioModelClient(f"localhost:{HTTP}", "inc") as http:
        xs = [np.array([i], np.float32) for i in range(100)]
        answers = await asyncio.gather(*[c.infer_sample(x) for x in xs for c in (http, grpc)])
        print(sum(float(a["y"][0]) for a in answers))
        await http.wait_for_model(10)
        try:
            await http.infer_sample()
        except PyTritonClientValueError as e:
            print("no input")
        try:
            await http.infer_sample(xs[0], x=xs[0])
        except PyTritonClientValueError as e:
            print("mixed")
    client = AsyncioModelClient(f"localhost:{HTTP}", "neg")
    try:
        print((await client.infer_sample(np.array([3], np.float32)))["y"])
        await client.infer_batch(np.array([[3]], np.float32))
    except PyTritonClientModelDoesntSupportBatchingError as e:
        print(isinstance(e, PyTritonClientError))
    finally:
        await client.close()
    import tritonclient.http.aio as lib
    c = lib.InferenceServerClient(f"localhost:{HTTP}")
    await asyncio_wait_for_server_ready(c, 0.1)
    await asyncio_wait_for_model_status_loaded(c, "inc", 0.1)
    await asyncio_wait_for_model_ready(c, "inc", timeout_s=10)
    print((await asyncio_get_model_config(c, "inc", timeout_s=10)).max_batch_size, (await asyncio_get_model_state(c, "inc")) == ModelState.READY)
    await c.close()

sec = TritonSecurityConfig(restricted_endpoints=[])
with Triton(config=TritonConfig(http_port=HTTP, grpc_port=GRPC, metrics_port=METRICS), security_config=sec) as t:
    x, y = [Tensor(name="x", dtype=np.float32, shape=(1,))], [Tensor(name="y", dtype=np.float32, shape=(1,))]
    t.bind("inc", inc, x, y, config=ModelConfig(max_batch_size=64))
    t.bind("neg", neg, x, y, config=ModelConfig(batching=False))
    t.run()
    asyncio.run(main())
