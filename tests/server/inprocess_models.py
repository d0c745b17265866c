"""Models of a server in the test's process, and how they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np

from pytriton.inprocess import InferenceResponse, ResponseIterator, Triton
from pytriton.model_config import ModelConfig, Tensor

FLOATS = [Tensor(name="x", shape=(-1,), dtype=np.float32)], [Tensor(name="y", shape=(-1,), dtype=np.float32)]
STRINGS = [Tensor(name="x", shape=(-1,), dtype=np.bytes_)], [Tensor(name="y", shape=(-1,), dtype=np.bytes_)]

Bind = Callable[..., str]


class Models:
    """Binds models under new names, and calls them.

    Args:
        triton: What they are bound to.
    """

    def __init__(self, triton: Triton) -> None:
        self.triton = triton
        self._numbers = count()

    def bind(self, infer: Any, tensors: Any = FLOATS, version: int = 1, **options: Any) -> str:
        name = f"model-{next(self._numbers)}"
        self.triton.bind(name, infer, *tensors, model_version=version, config=ModelConfig(**options))
        return name

    def send(self, name: str, x: Any, **fields: Any) -> ResponseIterator:
        return self.triton.server.model(name).infer(inputs={"x": x}, **fields)

    def ask(self, name: str, value: float, **fields: Any) -> Any:
        """The first value of the answer to a request of one row."""
        return first(next(self.send(name, row(value), **fields)))


def row(value: float, columns: int = 2) -> Any:
    return np.full((1, columns), value, np.float32)


def array(response: InferenceResponse) -> Any:
    return np.from_dlpack(response.outputs["y"])


def first(response: InferenceResponse) -> float:
    return float(array(response)[0, 0])


@contextmanager
def inprocess_models(**options: Any) -> Iterator[Models]:
    """A server of the test's own, in its process."""
    with Triton(**options) as triton:
        yield Models(triton)
