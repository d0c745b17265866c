"""Serve from a notebook: `run` returns at once, models can be bound while the server runs, and `stop` ends it.

The cells are marked in the way that editors and notebook converters understand; the file is a plain script, too.
"""

# %%
import os

import numpy as np

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.triton import Triton

url = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"
x = np.array([1, 2, 3], dtype=np.float32)


# %%
@batch
def double(x):
    return {"y": x * 2}


triton = Triton()
triton.bind(
    "double",
    double,
    inputs=[Tensor(name="x", shape=(-1,), dtype=np.float32)],
    outputs=[Tensor(name="y", shape=(-1,), dtype=np.float32)],
)
triton.run()

# %%
with ModelClient(url, "double") as client:
    print("double:", client.infer_sample(x)["y"])


# %%
# Another idea, on the same server.
@batch
def square(x):
    return {"y": x * x}


triton.bind(
    "square",
    square,
    inputs=[Tensor(name="x", shape=(-1,), dtype=np.float32)],
    outputs=[Tensor(name="y", shape=(-1,), dtype=np.float32)],
)

# %%
with ModelClient(url, "square") as client:
    print("square:", client.infer_sample(x)["y"])

# %%
# Without it, the server would go with the notebook's kernel.
triton.stop()
