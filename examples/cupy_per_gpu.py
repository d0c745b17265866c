"""Search for nearest neighbours with CuPy and one worker process per GPU or, where there is none, with NumPy and two.

On a machine with GPUs it needs CuPy (`pip install 'pytriton[cuda]'`, or what your version of CUDA asks for).
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from pytriton.workers import Processes

try:
    import cupy

    has_gpu = cupy.is_available()
except ImportError:
    has_gpu = False

url = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
points = np.random.default_rng(0).random((20_000, 64), dtype=np.float32)


def load(device):
    """Runs in each worker, which sees its own GPU alone, as CuPy's device 0."""
    xp, to_numpy = (cupy, cupy.asnumpy) if device.startswith("cuda") else (np, np.asarray)
    known = xp.asarray(points)  # `points` came along with the factory; what is larger is better loaded here
    squares = (known**2).sum(axis=1)

    @batch
    def nearest(point):
        wanted = xp.asarray(point)  # CuPy copies it to the GPU; NumPy leaves it where the batch arrived
        distances = squares - 2 * wanted @ known.T  # less what is the same for all of a row
        return {"index": to_numpy(distances.argmin(axis=1, keepdims=True))}

    return nearest


def ask(wanted):
    with ModelClient(url, "nearest") as client:
        return client.infer_batch(wanted)["index"][:, 0]


with Triton() as triton:
    triton.bind(
        "nearest",
        Processes(load, devices="auto" if has_gpu else ["cpu", "cpu"]),
        inputs=[Tensor(name="point", shape=(64,), dtype=np.float32)],
        outputs=[Tensor(name="index", shape=(1,), dtype=np.int64)],
        config=ModelConfig(max_batch_size=128),
    )
    with ThreadPoolExecutor(4) as clients:
        found = np.concatenate(list(clients.map(ask, np.split(points[:1024] + np.float32(0.001), 16))))
print("computed with", "CuPy" if has_gpu else "NumPy")
print(f"found {(found == np.arange(1024)).sum()} of 1024")
