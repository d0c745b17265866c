"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

__all__ = ["LoopThread"]


class LoopThread:
    """Runs coroutines until it is stopped.

    The thread is a daemon, so that the interpreter's exit does not wait for it.

    Args:
        name: Of the thread.

    Attributes:
        stopping: Whether it was told to stop.
    """

    def __init__(self, name: str) -> None:
        self.stopping = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def start(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine; to be called before :meth:`stop`.

        Args:
            make: Makes the coroutine, in the loop's thread.
        """
        self._loop.call_soon_threadsafe(self._start, make)

    def stop(self) -> None:
        """Cancel what runs, and end the loop and the thread soon. May be called twice."""
        self.stopping = True
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stopped.set)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end; from within the thread itself that is not possible, and not done."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_report)
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready.set()
        await self._stopped.wait()

    def _start(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # The loop itself keeps weak references alone.
        task = self._loop.create_task(make())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Before 1.80, gRPC wakes all event loops of a process for what one of them gets, and the others find nothing.
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
