"""Models for programs of the first protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytriton.decorators import batch
from pytriton.model_config import Tensor

ADD_SUB = (
    [Tensor((16,), np.int32, name) for name in ("INPUT0", "INPUT1")],
    [Tensor((16,), np.int32, name) for name in ("OUTPUT0", "OUTPUT1")],
)
TEXT_ADD_SUB = (
    [Tensor((16,), bytes, name) for name in ("INPUT0", "INPUT1")],
    [Tensor((16,), bytes, name) for name in ("OUTPUT0", "OUTPUT1")],
)
SEQUENCE = ([Tensor((1,), np.int32, "INPUT")], [Tensor((1,), np.int32, "OUTPUT")])
SCORES = ([Tensor((3, 4, 4), np.float32, "image")], [Tensor((5,), np.float32, "scores")])


@batch
def add_sub(INPUT0: Any, INPUT1: Any) -> dict[str, Any]:
    return {"OUTPUT0": INPUT0 + INPUT1, "OUTPUT1": INPUT0 - INPUT1}


@batch
def text_add_sub(INPUT0: Any, INPUT1: Any) -> dict[str, Any]:
    first, second = INPUT0.astype(int), INPUT1.astype(int)
    return {
        "OUTPUT0": (first + second).astype(bytes).astype(object),
        "OUTPUT1": (first - second).astype(bytes).astype(object),
    }


class Accumulator:
    """Sums the values of each sequence."""

    def __init__(self) -> None:
        self.sums: dict[Any, int] = {}

    def __call__(self, requests: list[Any]) -> list[Any]:
        return [{"OUTPUT": np.array([[self._add(request)]], np.int32)} for request in requests]

    def _add(self, request: Any) -> int:
        sequence = request.correlation_id
        before = 0 if request.sequence_start else self.sums[sequence]
        self.sums[sequence] = before + int(request["INPUT"][0, 0])
        return self.sums.pop(sequence) if request.sequence_end else self.sums[sequence]


@batch
def scores(image: Any) -> dict[str, Any]:
    """The brightest class wins: the values of the first row's pixels, and the mean."""
    return {"scores": np.concatenate([image[:, 0, 0, :], image.mean(axis=(1, 2, 3))[:, np.newaxis]], axis=1)}
