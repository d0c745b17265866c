"""The lifecycle of a ``Triton`` object: it starts once, stops once, and belongs to one process."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload
from weakref import WeakMethod

from pytriton import forks
from pytriton.exceptions import PyTritonInvalidOperationError

__all__ = ["Lifecycle", "weakly"]

ResultT = TypeVar("ResultT")


class Lifecycle:
    """Whether an object was started and stopped. All methods are thread-safe.

    Args:
        owner: The name of the object's class, for messages.
        at_exit: Stops the object at the interpreter's exit. Until :meth:`begin_stop`, this keeps what it refers to.

    Attributes:
        at_exit: As given.
        started: Whether there is something to stop.
        stopping: Whether the stop has begun; in a process that was forked from the object's, it has.
        wake: Set when serving shall end.
    """

    def __init__(self, owner: str, at_exit: Callable[[], object]) -> None:
        self.at_exit = at_exit
        self.started = self.stopping = False
        self.wake = threading.Event()
        self._owner = owner
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        forks.register(self)
        atexit.register(at_exit)

    def after_fork(self) -> None:
        """In a forked child, be stopped: server, workers and files are those of the process that made the object."""
        atexit.unregister(self.at_exit)
        self._lock = threading.Lock()
        self._stopped, self.wake = threading.Event(), threading.Event()
        self.stopping = True
        self._stopped.set()

    def begin_stop(self) -> bool:
        """Begin the stop, once; later calls wait for :meth:`end_stop` and return False."""
        with self._lock:
            first, self.stopping = not self.stopping, True
        if first:
            atexit.unregister(self.at_exit)
        else:
            self._stopped.wait()
        return first

    def end_stop(self) -> None:
        """Note that the object has stopped; serving ends."""
        self._stopped.set()
        self.wake.set()

    def is_wanted(self) -> bool:
        """Whether to go on waiting for a start."""
        return not self.stopping and not self.wake.is_set()

    def check_running(self, what: str) -> None:
        """Check that the object can do something.

        Raises:
            PyTritonInvalidOperationError: It was stopped, or belongs to another process; so it cannot ``what``.
        """
        owner = self._owner
        if self._process != os.getpid():
            raise PyTritonInvalidOperationError(
                f"cannot {what}: this {owner} object belongs to process {self._process}, from which this process was "
                f"forked; create a new {owner} in this process"
            )
        if self.stopping:
            raise PyTritonInvalidOperationError(f"cannot {what}: this {owner} object was stopped; create a new one")

    def check_threads_start(self, what: str) -> None:
        """Check that threads can start.

        Raises:
            PyTritonInvalidOperationError: This is an atexit handler; so the object cannot ``what``.
        """
        main = threading.main_thread()
        if threading.current_thread() is main and not main.is_alive():
            raise PyTritonInvalidOperationError(
                f"cannot {what}: the interpreter is exiting, as this is an atexit handler; do it earlier"
            )


@overload
def weakly(method: Callable[[], None]) -> Callable[[], None]: ...
@overload
def weakly(method: Callable[[], ResultT]) -> Callable[[], ResultT | None]: ...
def weakly(method: Callable[[], Any]) -> Callable[[], Any]:
    """Call a method of an object without keeping the object; None once it has gone."""
    reference = WeakMethod(method)

    def call() -> Any:
        found = reference()
        return None if found is None else found()

    return call
