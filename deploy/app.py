"""The models that the files of this folder serve; put your own in its place."""

import numpy as np

from pytriton import ModelConfig, Tensor, Triton, batch


def shout(text: str) -> str:
    """A text in capital letters."""
    return text.upper()


@batch
def scale(x: np.ndarray) -> dict[str, np.ndarray]:
    """Each number twice."""
    return {"y": x * 2}


def make_scale() -> object:
    """For ``pytriton worker scale=app:make_scale``, where the model is bound with ``RemoteWorkers``."""
    return scale


def models(triton: Triton) -> None:
    """Bind the models; ``pytriton serve app:models`` calls this."""
    triton.bind("shout", shout)
    triton.bind(
        "scale",
        scale,
        inputs=[Tensor(name="x", shape=(-1,), dtype=np.float32)],
        outputs=[Tensor(name="y", shape=(-1,), dtype=np.float32)],
        config=ModelConfig(max_batch_size=64),
    )
