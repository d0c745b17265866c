"""The models that the files of this folder serve; put your own in its place."""

from typing import Any

import numpy as np

from pytriton import ModelConfig, Tensor, Triton, batch
from pytriton.workers import RayWorkers


def shout(text: str) -> str:
    """A text in capital letters."""
    return text.upper()


@batch
def scale(x: np.ndarray) -> dict[str, np.ndarray]:
    """Each number twice."""
    return {"y": x * 2}


def make_scale() -> object:
    """For remote workers: ``pytriton worker scale=app:make_scale``, and actors of Ray."""
    return scale


SCALE: dict[str, Any] = {
    "inputs": [Tensor(name="x", shape=(-1,), dtype=np.float32)],
    "outputs": [Tensor(name="y", shape=(-1,), dtype=np.float32)],
    "config": ModelConfig(max_batch_size=64),
}


def models(triton: Triton) -> None:
    """Bind the models; ``pytriton serve app:models`` calls this."""
    triton.bind("shout", shout)
    triton.bind("scale", scale, **SCALE)


def models_on_ray(triton: Triton) -> None:
    """The same with the second one on a Ray cluster; deploy/kubernetes/overlays/ray calls this."""
    triton.bind("shout", shout)
    triton.bind("scale", RayWorkers(make_scale, count=2, num_cpus=1), **SCALE)
