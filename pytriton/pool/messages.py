"""Messages between a worker process and the process that launched it: commands, reports and log records.

===============================  ===================================================================================
commands                         to the worker
``drain``                        accept no further batch, answer those that have arrived, and end
``observe``                      report batches from now on
``quiet``, number, None          question, answered with the seconds since the last batch; 0 while one is answered
``rebind``, number, bytes        question: call the factory of this pickled :class:`WorkerSpec` and serve its callable;
                                 answered with an empty text, or with the traceback
end of the pipe                  end when the callable has returned
reports                          from the worker
``ready``, is_async              the callable is warmed up, and the instance waits for its proxy
``failed``, traceback            the worker cannot start, and ends
``derived``, bytes               the pickled tensors of the model, which was all that the process was asked for
``refused``, text                they cannot be derived of its callable
``connected``                    a proxy has connected
``disconnected``, bool, bool     a proxy has disconnected; is another one connected, and did the server close it
``unrecoverable``                the callable wants the server to stop
``max_requests_reached``         the worker has been sent ``max_requests``
``answer``, number, value        to the question with this number
``batch``, number, what, ...     for metrics; see batch_reports.py
``log``, dict                    fields of a record of :mod:`logging`
===============================  ===================================================================================
"""

from __future__ import annotations

import io
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import unwrap
from multiprocessing.connection import Connection
from types import FunctionType, MethodType
from typing import Any

import cloudpickle
import wrapt

from pytriton import forks
from pytriton.decorators.signatures import wrapper_of
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.processes import WorkerResources
from pytriton.worker.inference import Options

__all__ = ["MessagePipe", "PipeLogHandler", "WorkerSpec", "dumps", "log_levels", "log_worker_record"]

RECORD_FIELDS = (
    *("name", "levelno", "levelname", "pathname", "filename", "module", "lineno"),
    *("funcName", "created", "msecs", "threadName", "thread", "process"),
)


@dataclass(frozen=True)
class WorkerSpec:
    """The data that a worker needs to start.

    Attributes:
        takes_device: Whether the factory has a parameter ``device``.
        path: Of the instance's socket, on which the launching process listens.
        trace_config: Of the server, if the worker exports traces.
        max_requests: The worker reports when it has been sent this many; None is never.
        log_levels: Of the launching process's loggers, by name.
    """

    name: str
    factory: Callable[..., Any]
    takes_device: bool
    resources: WorkerResources
    path: str
    config: TritonModelConfig
    options: Options
    trace_config: Sequence[str] | None
    max_requests: int | None
    log_levels: dict[str, int] = field(default_factory=dict)

    def call_factory(self) -> Any:
        """Returns the inference callable."""
        return self.factory(device=self.resources.device_in_worker) if self.takes_device else self.factory()


class MessagePipe:
    """One end of the duplex pipe. Any thread sends; one thread receives."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._ending = threading.Lock()  # a second one: _sending is held for as long as the pipe is full
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, close this end without a message: the other process would take it for the parent's."""
        self._sending, self._ending = threading.Lock(), threading.Lock()
        if not self._connection.closed:
            forks.abandon(self._connection.fileno())

    def send(self, message: str, *details: Any) -> None:
        """Send a command or a report. Blocks while the pipe is full; does nothing if the other process has ended."""
        with self._sending, suppress(OSError):
            self._connection.send((message, *details))

    def receive(self) -> tuple[Any, ...] | None:
        """Wait for the next message; None if the other process has ended."""
        try:
            return tuple(self._connection.recv())
        except (EOFError, OSError):
            return None

    def fileno(self) -> int:
        """Readable when there is a message."""
        return self._connection.fileno()

    def end_sending(self) -> None:
        """Signal the end to the other process, after all that was sent; wakes a :meth:`send` that blocks."""
        with self._ending, suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as copy:
            copy.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the descriptor."""
        with self._sending, self._ending:
            self._connection.close()


class PipeLogHandler(logging.Handler):
    """Sends log records of a worker to the process that launched it."""

    def __init__(self, pipe: MessagePipe) -> None:
        super().__init__()
        self._pipe = pipe
        forks.register(self)

    def after_fork(self) -> None:
        """In a child that the callable forks, write to standard error, which goes to the same log."""
        logging.root.removeHandler(self)
        logging.root.addHandler(logging.StreamHandler())

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record's text, with its traceback, instead of its arguments: they may not be picklable."""
        try:
            fields = {name: getattr(record, name) for name in RECORD_FIELDS}
            self._pipe.send("log", {**fields, "msg": self.format(record), "args": None, "exc_info": None})
        except Exception:
            self.handleError(record)


def log_worker_record(worker: str, fields: dict[str, Any]) -> None:
    """Log a record of a worker in this process, with the worker's name before its text."""
    record = logging.makeLogRecord({**fields, "msg": f"[{worker}] {fields['msg']}", "processName": worker})
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def log_levels() -> dict[str, int]:
    """The levels that were set on loggers of this process, by name; the root logger's name is empty."""
    named = logging.root.manager.loggerDict.copy()  # another thread may add to it
    levels = {name: logger.level for name, logger in named.items() if isinstance(logger, logging.Logger)}
    return {**{name: level for name, level in levels.items() if level}, "": logging.root.level}


def dumps(value: Any) -> bytes:
    """Pickle a value for :func:`pickle.loads` in another interpreter.

    Functions of any kind can be pickled, also those of ``__main__`` and of notebooks, with their decorators.

    Raises:
        Exception: A part of the value cannot be pickled; of any class.
    """
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Keeps decorators. cloudpickle drops them silently, because they look like the functions that they wrap."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, wrapt.BoundFunctionWrapper):
            method = value.__wrapped__
            if isinstance(method, MethodType):
                return getattr, (method.__self__, method.__name__)
        elif isinstance(value, wrapt.FunctionWrapper):
            if value.__module__ != "__main__" and _importable(value) is value:
                return str(value.__qualname__)  # by reference
            return _decorated, (value.__wrapped__, wrapper_of(value))
        elif isinstance(value, FunctionType) and (decorator := _decorator_of(value)) is not None:
            return unwrap, (decorator,)
        return super().reducer_override(value)


def _decorated(wrapped: Any, wrapper: Any) -> Any:
    # The class cannot be pickled itself: its compiled version does not know its module.
    return wrapt.FunctionWrapper(wrapped, wrapper)


def _decorator_of(function: FunctionType) -> Any:
    """The object that replaced a function under its name, if ``wrapt.decorator`` made it of that function."""
    named = _importable(function)
    is_made_of_it = named is not function and callable(named) and unwrap(named) is function
    return named if is_made_of_it and function.__module__ != "__main__" else None


def _importable(value: Any) -> Any:
    """The object that a function's module has under the function's name; None if there is none."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found
