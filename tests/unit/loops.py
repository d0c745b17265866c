"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable, Coroutine
from typing import Any

PATIENCE_S = 100.0  # less than a test may take


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine function in an event loop that finds fault with what is left open."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        complaints: list[dict[str, Any]] = []

        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            await asyncio.wait_for(test(*args, **kwargs), PATIENCE_S)

        asyncio.run(watched(), debug=True)
        gc.collect()
        assert complaints == [], [str(each) for each in complaints]

    return run


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks run until the condition holds."""
    while not condition():
        await asyncio.sleep(0.001)
