"""Serve a PyTorch network with one worker process per GPU or, where there is none, with two on the processor.

It needs PyTorch (`pip install torch`).
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from pytriton.workers import Processes

url = f"http://localhost:{os.environ.get('PYTRITON_TRITON_CONFIG_HTTP_PORT', '8000')}"


def load(device):
    """Runs in each worker, which sees its own GPU alone, under the name cuda:0."""
    torch.manual_seed(0)  # stands for loading weights: they are the same everywhere
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, kernel_size=5, stride=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 10),
    ).to(device)

    @batch
    @torch.inference_mode()
    def classify(image):  # shape (rows, 3, 224, 224)
        tensor = torch.from_dlpack(image)
        assert tensor.data_ptr() == image.ctypes.data  # no copy: it is the shared memory in which the batch arrived
        scores = network(tensor.to(device))  # what is copied to a GPU is copied from there
        gpu = os.environ["CUDA_VISIBLE_DEVICES"] if device.startswith("cuda") else "none"
        return {"score": scores.cpu().numpy(), "gpu": np.full((len(image), 1), gpu.encode())}

    return classify


def ask(images):
    with ModelClient(url, "classifier") as client:
        return client.infer_batch(images)


devices = "auto" if torch.cuda.is_available() else ["cpu", "cpu"]
images = np.random.default_rng(0).random((32, 3, 224, 224), dtype=np.float32)
with Triton() as triton:
    triton.bind(
        "classifier",
        Processes(load, devices=devices),
        inputs=[Tensor(name="image", shape=(3, 224, 224), dtype=np.float32)],
        outputs=[
            Tensor(name="score", shape=(10,), dtype=np.float32),
            Tensor(name="gpu", shape=(1,), dtype=bytes),
        ],
        config=ModelConfig(max_batch_size=8),
    )
    with ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(ask, np.split(images, 8)))
scores = np.concatenate([answer["score"] for answer in answers])
expected = load("cpu")([{"image": images}])[0]["score"]
print("GPUs that worked on it:", *sorted({gpu.decode() for answer in answers for gpu in answer["gpu"][:, 0]}))
print("as computed here:", np.allclose(scores, expected, atol=1e-2))  # GPUs may round to TF32
