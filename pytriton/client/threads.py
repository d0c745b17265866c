"""The threads of clients: event loops, callbacks of futures, and time limits."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from pytriton import forks
from pytriton.logs import get_logger
from pytriton.threads import keep_running

__all__ = ["CallbackThread", "DetachedFuture", "LoopThread", "TimeLimit"]

LOGGER = get_logger(__name__)

T = TypeVar("T")
Work = Callable[[], Any]

_IDLE_S = 5.0


class LoopThread:
    """Runs coroutines until it is stopped.

    The thread is a daemon, so that the interpreter's exit does not wait for it.

    Attributes:
        stopping: Whether :meth:`stop` was called.
    """

    def __init__(self, name: str) -> None:
        self.stopping = False
        self._ready = threading.Event()
        self._thread = keep_running(lambda: asyncio.run(self._main()), name)
        self._ready.wait()

    def start(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine; to be called before :meth:`stop`.

        Args:
            make: Makes the coroutine, in the loop's thread.
        """
        self._loop.call_soon_threadsafe(self._start, make)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Cancel what runs, and end the loop and the thread soon. May be called twice."""
        self.stopping = True
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stopped.set)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the thread; returns at once in the thread itself."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_log_error)
        self._stopped = asyncio.Event()
        if self.stopping:
            self._stopped.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready.set()
        await self._stopped.wait()

    def _start(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # The loop itself keeps weak references alone.
        task = self._loop.create_task(make())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _log_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Before 1.80, gRPC wakes all event loops of a process for an event of one of them; the others find nothing.
    if not isinstance(context.get("exception"), BlockingIOError):
        with suppress(Exception):  # of handlers of the program's log
            loop.default_exception_handler(context)


class CallbackThread:
    """Runs callbacks one after the other, in a thread that starts with the first one.

    They may block and wait for other futures, because only callbacks wait for them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Collecting garbage may call stop() while this thread is within run().
        self._lock = threading.RLock()
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def run(self, work: Work) -> None:
        """Run one callback in the thread; after :meth:`stop`, at once in the calling thread."""
        with self._lock:
            stopped = self._stopped
            if not stopped:
                if self._thread is None:
                    self._thread = threading.Thread(target=_run_all, args=(self._queue,), name=self._name, daemon=True)
                    self._thread.start()
                self._queue.put(work)
        if stopped:
            _run(work)

    def stop(self) -> None:
        """End the thread when all callbacks have run."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._queue.put(None)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the thread; returns at once in the thread itself."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)


class DetachedFuture(Future[T]):
    """A future whose callbacks do not hold up the thread that sets its result."""

    def __init__(self, callbacks: CallbackThread) -> None:
        super().__init__()
        self._detached = callbacks

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """Call ``fn`` with this future in the callbacks' thread when it is done; at once if it is done already."""
        if self.done():
            super().add_done_callback(fn)
        else:
            super().add_done_callback(lambda future: self._detached.run(lambda: fn(future)))

    def fail_after_fork(self, error: Exception) -> None:
        """In a forked child, fail without calling callbacks: only the parent gets the result."""
        # Members of the base that are not public: another thread may have held the lock at the fork.
        self._condition = threading.Condition()
        self._done_callbacks: list[Callable[[Future[T]], Any]] = []
        if not self.done():
            self.set_exception(error)

    def when_done(self, fn: Callable[[], None]) -> None:
        """Call ``fn``, which must not block, in the thread that finishes or cancels the future."""
        super().add_done_callback(lambda _: fn())


def _run_all(queue: SimpleQueue[Work | None]) -> None:
    while (work := queue.get()) is not None:
        _run(work)
        del work  # free its objects while this thread waits


def _run(work: Work) -> None:
    try:
        work()
    except BaseException:  # the thread must go on for other callbacks
        LOGGER.exception("a callback of a future failed")


class TimeLimit:
    """Calls a function if a wait takes too long: a time limit for waits that have none of their own.

    One wait at a time. Its thread ends when there was no wait for 5 s. Starting the next wait is cheap, because the
    thread sleeps on until the first one would have expired.
    """

    def __init__(self) -> None:
        self._reset()
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, start again: there is no thread."""
        self._reset()

    def _reset(self) -> None:
        self._condition = threading.Condition()
        self._deadline = math.inf
        self._act: Callable[[], object] | None = None
        self._expired = False
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None

    def start(self, timeout_s: float, act: Callable[[], object]) -> None:
        """Have the thread call ``act`` unless :meth:`stop` is called within ``timeout_s`` seconds."""
        with self._condition:
            self._deadline = time.monotonic() + timeout_s
            self._act, self._expired = act, False
            if self._thread is None:
                self._thread = keep_running(self._watch, "pytriton-time-limit")
            elif self._deadline < self._wakes_at:
                self._condition.notify()

    def stop(self) -> bool:
        """End the wait, and tell whether it took too long."""
        with self._condition:
            self._deadline, self._act = math.inf, None
            return self._expired

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            thread, self._thread = self._thread, None
            self._condition.notify()
        if thread is not None:
            thread.join()

    def _watch(self) -> None:
        with self._condition:
            idle = False
            while self._thread is threading.current_thread():
                left_s = self._deadline - time.monotonic()
                if left_s <= 0 and self._act is not None:
                    act = self._act
                    self._deadline, self._act, self._expired = math.inf, None, True
                    act()
                    continue
                if math.isinf(left_s) and idle:
                    self._thread = None
                    return
                idle = math.isinf(left_s)
                pause_s = min(left_s, _IDLE_S)
                self._wakes_at = time.monotonic() + pause_s
                self._condition.wait(pause_s)
