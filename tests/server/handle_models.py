"""Functions that call models, and those that they call, in forms of all kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from pytriton import ModelConfig, ModelHandle, Tensor, batch, sample

COLUMNS = [Tensor(name="x", dtype=np.float32, shape=(-1,))], [Tensor(name="y", dtype=np.float32, shape=(-1,))]


@dataclass
class Box:
    left: int
    label: str


def halve(number: float) -> float:
    if number < 0:
        raise ValueError("there is no half of that")
    return number / 2


def rooster(number: float, between: ModelHandle) -> float:
    """Part of a cycle, if that is a pipeline with it."""
    return between(number)


def boxes(count: int) -> list[Box]:
    return [Box(index, f"box {index}") for index in range(count)]


def count_up(count: int) -> Iterator[int]:
    yield from range(count)


@batch
def increase(x: Any) -> dict[str, Any]:
    return {"y": x + 1}


@sample
def sum_up(x: Any) -> dict[str, Any]:
    return {"y": x.sum(keepdims=True)}


def plain(number: float, halve: ModelHandle) -> float:
    return halve(number) + 1


async def coroutine(number: float, halve: ModelHandle) -> float:
    return await halve(number) + 1


class Method:
    def __call__(self, number: float, half: Annotated[ModelHandle, "halve"]) -> float:
        return half(number=number) + 1


@batch
def lists(number: list[float], halve: ModelHandle) -> list[float]:
    return [half + 1 for half in halve.map(number)]


def submitted(number: float, halve: ModelHandle) -> float:
    one, other = halve.submit(number), halve.submit(2.0)
    return one.result() + other.result()


def of_requests(requests: list[Any], increase: ModelHandle) -> list[Any]:
    return [{"y": increase(x=request["x"])["y"]} for request in requests]


@batch
def arrays(x: Any, increase: ModelHandle) -> dict[str, Any]:
    return {"y": increase(x)["y"]}


@batch
async def arrays_in_coroutine(x: Any, increase: ModelHandle) -> dict[str, Any]:
    return {"y": (await increase(x))["y"]}


@sample
def one_sample(x: Any, sum_up: ModelHandle) -> dict[str, Any]:
    return {"y": sum_up(x)["y"] + 1}


def halves(numbers: list[float], halve: ModelHandle) -> list[float]:
    return halve.map(numbers)


async def halves_in_coroutine(numbers: list[float], halve: ModelHandle) -> list[float]:
    first, rest = await asyncio.gather(halve(numbers[0]), halve.map(numbers[1:]))
    return [first, *rest]


def labels(count: int, boxes: ModelHandle) -> list[str]:
    return [box["label"] for box in boxes(count)]


def listed(count: int, count_up: ModelHandle) -> list[int]:
    return [*count_up(count)]


async def listed_in_coroutine(count: int, count_up: ModelHandle) -> list[int]:
    return [number async for number in count_up(count)]


def passed_on(count: int, count_up: ModelHandle) -> Iterator[int]:
    for number in count_up(count):
        yield 2 * number


async def passed_on_in_coroutine(count: int, count_up: ModelHandle) -> AsyncIterator[int]:
    async for number in count_up(count):
        yield 2 * number


VALUES = [
    (plain, 6.0, 4.0),
    (coroutine, 6.0, 4.0),
    (Method(), 6.0, 4.0),
    (lists, 6.0, 4.0),
    (submitted, 6.0, 4.0),
    (halves, [float(number) for number in range(200)], [number / 2 for number in range(200)]),
    (halves_in_coroutine, [float(number) for number in range(200)], [number / 2 for number in range(200)]),
    (labels, 2, ["box 0", "box 1"]),
    (listed, 5, [0, 1, 2, 3, 4]),
    (listed_in_coroutine, 5, [0, 1, 2, 3, 4]),
]
IN_PROCESSES = [each for each in VALUES if each[0] in (plain, coroutine, halves, listed)]
STREAMS = [passed_on, passed_on_in_coroutine]
ARRAYS = [(of_requests, True), (arrays, True), (arrays_in_coroutine, True), (one_sample, False)]


def name_of(function: Any) -> str:
    """The name under which a function is bound."""
    return str(getattr(function, "__name__", "method"))


def bind_all(triton: Any) -> None:
    """Bind all functions."""
    for function in (halve, boxes, count_up):
        triton.bind(function)
    triton.bind("increase", increase, *COLUMNS, config=ModelConfig(max_batch_size=2))
    triton.bind("sum_up", sum_up, *COLUMNS, config=ModelConfig(batching=False))
    for function in [*(function for function, _, _ in VALUES), *STREAMS]:
        triton.bind(name_of(function), function)
    for function, batching in ARRAYS:
        triton.bind(name_of(function), function, *COLUMNS, config=ModelConfig(batching=batching))
