"""Make thumbnails of photographs with Pillow, in threads and in worker processes.

Pillow lets go of the interpreter's lock while it decodes, scales and encodes: by itself, it gains as much from two
threads as from two processes. Served by threads, it shares what is left of Python with all else in this process, here
the client; workers do not, and gain somewhat more. It needs Pillow.
"""

import io
import os
import sys
import time

import numpy as np
from PIL import Image

from pytriton.client import FuturesModelClient
from pytriton.decorators import sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from pytriton.workers import Processes

url = f"grpc://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_GRPC_PORT', '8001')}"
REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 24
SIZE = (160, 160)


def photograph(file_format):
    """A file of 1200 x 900 pixels."""
    y, x = np.mgrid[:900, :1200]
    noise = np.random.default_rng(0).normal(0, 8, (900, 1200, 3))
    pixels = np.stack([x / 5, y / 4, (x + y) / 9], axis=-1) + noise
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, file_format)
    return file.getvalue()


def make_thumbnailer():
    @sample
    def thumbnail(image):
        with Image.open(io.BytesIO(image[0])) as picture:
            picture.thumbnail(SIZE)
            file = io.BytesIO()
            picture.save(file, "JPEG")
        return {"thumbnail": np.array([file.getvalue()], dtype=object)}

    return thumbnail


ways = {
    "1-thread": make_thumbnailer(),
    "2-threads": [make_thumbnailer(), make_thumbnailer()],
    "1-worker": Processes(make_thumbnailer, count=1),
    "2-workers": Processes(make_thumbnailer, count=2),
}
with Triton() as triton:
    for name, callables in ways.items():
        triton.bind(
            name,
            callables,
            inputs=[Tensor(name="image", shape=(1,), dtype=bytes)],
            outputs=[Tensor(name="thumbnail", shape=(1,), dtype=bytes)],
            config=ModelConfig(batching=False),
        )
    for file_format in ("JPEG", "PNG"):
        image = np.array([photograph(file_format)], dtype=object)  # other dtypes drop zeros at the end
        for name in ways:
            with FuturesModelClient(url, name, max_workers=4) as client:
                client.infer_sample(image).result()
                start = time.monotonic()
                answers = [client.infer_sample(image) for _ in range(REQUESTS)]
                files = {answer.result()["thumbnail"][0] for answer in answers}
                seconds = time.monotonic() - start
            size = "x".join(map(str, Image.open(io.BytesIO(files.pop())).size))
            print(f"{file_format}, {name}: {size}, {REQUESTS / seconds:.0f} images per second")
