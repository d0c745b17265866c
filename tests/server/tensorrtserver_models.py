"""The models that programs of the first protocol ask for, by the names that they use."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytriton.decorators import batch
from pytriton.exceptions import PyTritonRequestError
from pytriton.model_config import ModelConfig, SequenceBatcher, Tensor
from pytriton.triton import Triton

__all__ = ["ADD_SUB", "SEQUENCE", "TEXT_ADD_SUB", "Accumulator", "add_sub", "bind_all", "bind_counted", "text_add_sub"]

ADD_SUB, TEXT_ADD_SUB = (
    [[Tensor((16,), dtype, name) for name in pair] for pair in (("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1"))]
    for dtype in (np.int32, bytes)
)
SEQUENCE = ([Tensor((1,), np.int32, "INPUT")], [Tensor((1,), np.int32, "OUTPUT")])

IDLE_US = 60_000_000  # longer than a test: a slot is given up at the end of its sequence alone


def bind_all(triton: Triton) -> None:
    """Serve all but those of :func:`bind_counted`."""
    triton.bind("simple", add_sub, *ADD_SUB, config=ModelConfig(max_batch_size=8))
    triton.bind("simple_string", text_add_sub, *TEXT_ADD_SUB, config=ModelConfig(max_batch_size=8))
    one_slot = ModelConfig(max_batch_size=1, batcher=SequenceBatcher(max_sequence_idle_microseconds=IDLE_US))
    triton.bind("simple_sequence", Accumulator(), *SEQUENCE, config=one_slot)
    triton.bind("simple_correlation", correlation, SEQUENCE[0], [Tensor((1,), np.uint64, "CORRID")])
    triton.bind(
        "resnet50",
        colors,
        [Tensor((3, 4, 4), np.float32, "image", format="NCHW")],
        [Tensor((3,), np.float32, "scores", labels=["RED", "GREEN", "BLUE"])],
    )
    triton.bind("controlled", batch(double), *_one(np.float32, (-1,)))
    triton.bind("choosy", choosy, *_one(np.float32, (-1,)), config=ModelConfig(isolate_errors=True))
    triton.bind("custom_nobatch", one_by_one, *_one(np.float32, (-1, 3)), config=ModelConfig(batching=False))
    words, matrix = ((-1,), bytes), ((-1, 3), np.float32)
    triton.bind(
        "varsize",
        echo,
        [Tensor(*words, "words"), Tensor(*matrix, "matrix")],
        [Tensor(*words, "words_out"), Tensor(*matrix, "matrix_out")],
    )
    triton.bind("preprocess_ensemble", parse, [Tensor((1,), bytes, "raw")], [Tensor((4,), np.float32, "class")])


def bind_counted(triton: Triton, name: str) -> None:
    """Serve a model each of whose requests is one execution, so that the server's counts are known."""
    config = ModelConfig(max_batch_size=4, batcher=None)
    triton.bind(name, batch(double), *_one(np.float32, (-1,)), config=config)


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


def correlation(requests: list[Any]) -> list[Any]:
    return [{"CORRID": np.array([[request.correlation_id or 0]], np.uint64)} for request in requests]


@batch
def colors(image: Any) -> dict[str, Any]:
    return {"scores": image.mean(axis=(2, 3))}


def double(x: Any) -> dict[str, Any]:
    return {"y": x * 2}


def one_by_one(requests: list[Any]) -> list[Any]:
    return [double(request["x"]) for request in requests]


def choosy(requests: list[Any]) -> list[Any]:
    if any(request["x"].min() < 0 for request in requests):
        raise PyTritonRequestError("too small", code="INVALID_ARG")
    return one_by_one(requests)


def echo(requests: list[Any]) -> list[Any]:
    return [{f"{name}_out": value for name, value in request.items()} for request in requests]


@batch
def parse(raw: Any) -> dict[str, Any]:
    return {"class": np.array([np.array(text.split(b","), np.float32) for text in raw[:, 0]])}


def _one(dtype: Any, shape: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    return [Tensor(shape, dtype, "x")], [Tensor(shape, dtype, "y")]
