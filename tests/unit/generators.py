"""Inference callables that answer several times."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing

from pytriton.decorators import batch


@batch
def count_up(x):
    """As many responses as the first number of ``x`` says, numbered from 0."""
    for number in range(int(x[0, 0])):
        yield {"y": x * 0 + number}


@batch
async def count_up_async(x):
    """The same as a coroutine, which lets others run before each response."""
    for number in range(int(x[0, 0])):
        await asyncio.sleep(0)
        yield {"y": x * 0 + number}


def count_up_requests(requests):
    """The same without a decorator."""
    for number in range(int(requests[0]["x"][0, 0])):
        yield [{"y": request["x"] * 0 + number} for request in requests]


def as_async(function, pause_s=None):
    """The same callable as an asynchronous generator, which sleeps after each response, or else never waits itself."""

    async def async_function(requests):
        with closing(function(requests)) as all_responses:
            for responses in all_responses:
                yield responses
                if pause_s is not None:
                    await asyncio.sleep(pause_s)

    return async_function


class Endless:
    """Answers with its inputs until it is closed, which sets :attr:`closed`."""

    def __init__(self):
        self.closed = threading.Event()

    def __call__(self, requests):
        try:
            while True:
                yield [{"y": request["x"]} for request in requests]
        finally:
            self.closed.set()
