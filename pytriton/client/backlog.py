"""Work that waits for its turn."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from pytriton import forks
from pytriton.client.callbacks import CallbackThread, DetachedFuture
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientQueueFullError,
)
from pytriton.client.loop_thread import LoopThread

__all__ = ["Backlog"]

T = TypeVar("T")

_EXIT_PATIENCE_S = 1.0


@dataclass(eq=False)
class _Job:
    future: DetachedFuture[Any]
    work: Callable[[], Coroutine[Any, Any, Any]]


class Backlog:
    """Runs coroutines in a background event loop, a limited number at once, in the order in which they came.

    Threads start with the first work and end after :meth:`close`, or when nobody refers to the backlog any more.

    Args:
        owner: Of the backlog, for messages and the threads' names.
        max_running: Coroutines at once; None does not limit them.
        max_waiting: Others that wait for their turn; None does not limit them.
        patience_s: How long adding waits for a place; None waits for ever.
    """

    def __init__(
        self, owner: str, *, max_running: int | None, max_waiting: int | None, patience_s: float | None
    ) -> None:
        self._owner = owner
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._patience_s = patience_s
        self._closed = False
        self._begin()
        forks.register(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: OrderedDict[_Job, None] = OrderedDict()
        self._running: set[_Job] = set()
        self._loop: LoopThread | None = None
        self._finalizer: weakref.finalize[..., Backlog] | None = None
        self._callbacks = CallbackThread(f"callbacks of {self._owner}")

    def after_fork(self) -> None:
        """In a forked child, begin anew, with threads of its own; the work at hand is the parent's, and fails here."""
        lost = [*self._running, *self._waiting]
        if self._finalizer is not None:
            self._finalizer.detach()  # it would wait for locks that the parent's threads may have held
        self._begin()
        for job in lost:
            job.future.fail_after_fork(
                PyTritonClientConnectionError(
                    f"{self._owner}: the process from which this one was forked has sent this request, and gets the "
                    "answer; send it again in this process"
                )
            )

    def add(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Have a coroutine run.

        Args:
            work: Makes it, when its turn has come.

        Raises:
            PyTritonClientClosedError: The backlog is closed.
            PyTritonClientQueueFullError: There was no place, and none came free in time.
        """
        future = DetachedFuture[T](self._callbacks)
        job = _Job(future, work)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_place(), self._patience_s)
            if self._closed:
                raise PyTritonClientClosedError(f"{self._owner} is closed; make a new one")
            if not self._has_place():
                raise PyTritonClientQueueFullError(
                    f"{self._owner} has {len(self._running)} requests under way and {len(self._waiting)} waiting, "
                    "which is its limit; wait for some of them, or raise max_workers or max_queue_size"
                )
            if self._may_run():
                self._running.add(job)
                self._started_loop().start(lambda: self._work_off(job))
            else:
                self._waiting[job] = None
                future.when_done(lambda: self._forget_cancelled(job))
        return future

    def close(self, wait: bool) -> None:
        """Take no more work.

        Args:
            wait: Return when all work has been done, instead of at once; it is done in both cases.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._stop_when_done()
        if wait:
            if self._loop is not None:
                self._loop.join()
            self._callbacks.join()

    def _has_place(self) -> bool:
        return self._may_run() or self._max_waiting is None or len(self._waiting) < self._max_waiting

    def _may_run(self) -> bool:
        return self._max_running is None or len(self._running) < self._max_running

    def _started_loop(self) -> LoopThread:
        if self._loop is None:
            self._loop = LoopThread(self._owner)
            # Also at the interpreter's exit, where connections would otherwise be found open.
            self._finalizer = weakref.finalize(self, _end, self._loop, self._callbacks)
        return self._loop

    async def _work_off(self, job: _Job | None) -> None:
        while job is not None:
            if job.future.set_running_or_notify_cancel():
                try:
                    job.future.set_result(await job.work())
                except asyncio.CancelledError:
                    job.future.set_exception(PyTritonClientClosedError(f"{self._owner} was given up"))
                    if self._started_loop().stopping:
                        raise
                except BaseException as error:
                    job.future.set_exception(error)
            job = self._next(job)

    def _next(self, done: _Job) -> _Job | None:
        with self._changed:
            self._running.discard(done)
            if self._waiting:
                job, _ = self._waiting.popitem(last=False)
                self._running.add(job)
                self._changed.notify()
                return job
            self._changed.notify()
            self._stop_when_done()
            return None

    def _forget_cancelled(self, job: _Job) -> None:
        with self._changed:
            if job in self._waiting:
                del self._waiting[job]
                self._changed.notify()

    def _stop_when_done(self) -> None:
        if self._closed and not self._running and not self._waiting:
            if self._loop is not None:
                self._loop.stop()
            self._callbacks.stop()


def _end(loop: LoopThread, callbacks: CallbackThread) -> None:
    loop.stop()
    callbacks.stop()
    loop.join(_EXIT_PATIENCE_S)
