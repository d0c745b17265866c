"""Call the model that `quickstart.py` serves; start that first, or meanwhile: the client waits for the model."""

import os

import numpy as np

from pytriton.client import ModelClient

port = os.environ.get("PYTRITON_TRITON_CONFIG_HTTP_PORT", "8000")

with ModelClient(f"http://localhost:{port}", "add") as client:
    # A batch: the first axis is the rows.
    a = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    b = np.array([[10, 20, 30], [40, 50, 60]], dtype=np.float32)
    print(client.infer_batch(a, b)["sum"])

    # A single sample: no rows. Inputs can be given by name.
    print(client.infer_sample(a=a[0], b=b[0])["sum"])
