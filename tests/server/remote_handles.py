"""Factories for the worker of tests/server/test_remote_handles.py: callables that call models of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from pytriton import ModelHandle, batch
from tests.server.handle_models import arrays, arrays_in_coroutine, passed_on, passed_on_in_coroutine


@batch
def passing(x: Any, seen: ModelHandle) -> dict[str, Any]:
    """Needs no more than what the request brings: id, deadline and priority."""
    return {"y": seen(x)["y"]}


def hen(number: int, egg: ModelHandle) -> int:
    return egg(number - 1) if number else 0


def waits(number: float, endless: ModelHandle) -> float:
    return endless(number)


async def waits_in_coroutine(number: float, endless: ModelHandle) -> float:
    return await endless(number)


def waits_in_map(number: float, endless: ModelHandle) -> float:
    return endless.map([number])[0]


def waits_in_stream(number: float, endless_stream: ModelHandle) -> float:
    return sum(endless_stream(number))


async def slowly(count: int, counted: ModelHandle, halve: ModelHandle) -> AsyncIterator[int]:
    """Takes a part of a stream for each call of another model."""
    async for number in counted(count):
        await halve(float(number))
        yield number


def in_all_ways(number: float, halve: ModelHandle, count_up: ModelHandle) -> list[float]:
    first, second = halve.submit(number), halve.submit(2.0)
    return [halve(number), first.result(), second.result(), *halve.map([number] * 100), *map(float, count_up(3))]


async def in_all_ways_in_coroutine(number: float, halve: ModelHandle, count_up: ModelHandle) -> list[float]:
    both = await asyncio.gather(halve(number), halve(2.0))
    streamed = [float(count) async for count in count_up(3)]
    return [await halve(number), *both, *await halve.map([number] * 100), *streamed]


WAITING = [waits, waits_in_coroutine, waits_in_map, waits_in_stream]
WAYS = [in_all_ways, in_all_ways_in_coroutine]
STREAMS = [passed_on, passed_on_in_coroutine]
ARRAYS = [arrays, arrays_in_coroutine]


def _made(function: Any) -> Callable[[], Any]:
    return lambda: function


for _function in [passing, hen, slowly, *WAITING, *WAYS, *STREAMS, *ARRAYS]:
    globals()[f"make_{_function.__name__}"] = _made(_function)
