# prints: waited for the model
# prints: batch of 3 -> [[1.0], [4.0], [9.0]]
# prints: version 1 only
# prints: async gather [0.0, 1.0, 4.0, 9.0]
"""Wait explicitly, as careful people do, then hammer it with asyncio."""
import asyncio, socket, threading, time
import numpy as np
from pytriton.client import AsyncioModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientModelUnavailableError
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

ports = []
while len(ports) < 3:
    s = socket.socket(); s.bind(("127.0.0.1", 0)); ports.append(s.getsockname()[1]); s.close()

triton = Triton(config=TritonConfig(http_port=ports[0], grpc_port=ports[1], metrics_port=ports[2]))
triton.run()

@batch
def square(x):
    return [x ** 2]

def later():
    time.sleep(1.5)
    triton.bind("square", square, [Tensor(name="x", dtype=np.float32, shape=(1,))], [Tensor(dtype=np.float32, shape=(1,))],
                config=ModelConfig(max_batch_size=32))

th = threading.Thread(target=later); th.start()
client = ModelClient("localhost:%d" % ports[0], "square")
client.wait_for_server(timeout_s=60)
client.wait_for_model(timeout_s=60)
print("waited for the model")
out = client.infer_batch(np.array([[1], [2], [3]], dtype=np.float32))
print("batch of 3 ->", out["OUTPUT_1"].tolist())
th.join()
client.close()

try:
    ModelClient("localhost:%d" % ports[0], "square", "7").infer_sample(np.zeros(1, np.float32))
except PyTritonClientModelUnavailableError:
    print("version 1 only")

async def main():
    async with AsyncioModelClient("grpc://localhost:%d" % ports[1], "square", lazy_init=False) as c:
        results = await asyncio.gather(*[c.infer_sample(np.array([i], np.float32)) for i in range(4)])
    print("async gather", [float(r["OUTPUT_1"][0]) for r in results])
asyncio.run(main())
triton.stop()
