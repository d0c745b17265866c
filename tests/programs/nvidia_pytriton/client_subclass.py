# prints: lib tritonclient.http
# prints: live True
# prints: ready True
# prints: copied: Adder 2
# prints: [[3.]]
# prints: config Adder 8 ['a', 'b']
# prints: state ModelState.READY
"""A client of one's own on top of BaseModelClient, and the helpers around bare tritonclient clients."""
import asyncio
import socket
import numpy as np
import tritonclient.http
import tritonclient.grpc.aio
from pytriton.client.client import BaseModelClient, ModelClient, DEFAULT_INFERENCE_TIMEOUT_S
from pytriton.client.utils import *
from pytriton.client.utils import ModelState, create_client_from_url, get_model_config, get_model_state, wait_for_model_ready, wait_for_server_ready
from pytriton.client.asyncio_utils import *
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

class HealthClient(BaseModelClient):
    def get_lib(self):
        return tritonclient.http

    def check(self):
        c = self.create_client_from_url(self._url.with_scheme)
        try:
            return c.is_server_live()
        finally:
            c.close()

def free():
    with socket.socket() as s:
        s.bind(("", 0)); return s.getsockname()[1]

H, G, M = free(), free(), free()

@batch
def add(a, b):
    return {"c": a + b}

triton = Triton(config=TritonConfig(http_port=H, grpc_port=G, metrics_port=M), security_config=TritonSecurityConfig(restricted_endpoints=[]))
triton.bind("Adder", add, [Tensor(name="a", dtype=np.float32, shape=(1,)), Tensor(name="b", dtype=np.float32, shape=(1,))],
            [Tensor(name="c", dtype=np.float32, shape=(1,))], model_version=2, config=ModelConfig(max_batch_size=8))
triton.run()

hc = HealthClient(f"localhost:{H}", "Adder")
print("lib", hc.get_lib().__name__)
print("live", hc.check())

raw = create_client_from_url(f"http://localhost:{H}", network_timeout_s=DEFAULT_INFERENCE_TIMEOUT_S)
wait_for_server_ready(client=raw, timeout_s=30)
wait_for_model_ready(client=raw, model_name="Adder", model_version="2", timeout_s=30)
print("ready", raw.is_model_ready("Adder"))

first = ModelClient(f"grpc://localhost:{G}", "Adder", "2", lazy_init=False)
second = ModelClient.from_existing_client(existing_client=first)
first.close()
print("copied:", second.model_config.model_name, 2)
one, two = np.ones((1, 1), np.float32), np.full((1, 1), 2, np.float32)
print(second.infer_batch(a=one, b=two)["c"])
second.close()

async def main():
    aio = tritonclient.grpc.aio.InferenceServerClient(f"localhost:{G}")
    await asyncio_wait_for_server_ready(aio, 0.1)
    await asyncio_wait_for_model_ready(aio, "Adder", timeout_s=10.0)
    c = await asyncio_get_model_config(aio, "Adder", timeout_s=10.0)
    print("config", c.model_name, c.max_batch_size, [i.name for i in c.inputs])
    await aio.close()
asyncio.run(main())
print("state", get_model_state(raw, "Adder"))
assert get_model_config(raw, "Adder").max_batch_size == 8
raw.close()
triton.stop()
