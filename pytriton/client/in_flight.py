"""Calls that have not ended, and how closing ends them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from pytriton.client.exceptions import PyTritonClientClosedError

__all__ = ["CallsInFlight"]

T = TypeVar("T")


class CallsInFlight:
    """The tasks that wait for a client's calls."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._interrupted: set[asyncio.Task[Any]] = set()

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for one call, in this task.

        Raises:
            PyTritonClientClosedError: It was interrupted.
        """
        task = asyncio.current_task()
        assert task is not None  # coroutines run in tasks
        before = _cancellations(task)
        self._tasks.add(task)
        try:
            return await call
        except asyncio.CancelledError:
            if task not in self._interrupted:
                raise
            if sys.version_info >= (3, 11) and task.uncancel() > before:
                raise  # somebody else cancelled the task as well, who expects it to end
            raise PyTritonClientClosedError("the client was closed before this call had ended") from None
        finally:
            self._tasks.discard(task)
            self._interrupted.discard(task)

    def interrupt(self) -> None:
        """End all calls with ``PyTritonClientClosedError``."""
        for task in self._tasks - self._interrupted:
            if not task.get_loop().is_closed():
                self._interrupted.add(task)
                task.cancel()


def _cancellations(task: asyncio.Task[Any]) -> int:
    return task.cancelling() if sys.version_info >= (3, 11) else 0
