"""The pipe between a process that this package has started and the one that launched it, and what comes through it."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import IO, Any, TypeVar

from pytriton import forks
from pytriton.logs import handle
from pytriton.signals import ignored_signals, kill_with_parent, reset_inherited_signals
from pytriton.wire.control import LOG

__all__ = ["MessagePipe", "log_child_record", "log_levels", "log_through", "run_child"]

ResultT = TypeVar("ResultT")

RECORD_FIELDS = (
    *("name", "levelno", "levelname", "pathname", "filename", "module", "lineno"),
    *("funcName", "created", "msecs", "threadName", "thread", "process"),
)


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

    def send(self, message: bytes, *details: Any) -> None:
        """Send a command or a report. Blocks while the pipe is full; does nothing if the other process has ended."""
        with self._sending, suppress(OSError):
            self._connection.send((message, *details))

    def receive(self) -> tuple[Any, ...] | None:
        """Wait for the next message; None if the other process has ended."""
        try:
            return tuple(self._connection.recv())
        except (EOFError, OSError):
            return None

    def send_descriptors(self, message: bytes, descriptors: Sequence[int], *details: Any) -> None:
        """As :meth:`send`, with descriptors that the other process gets copies of."""
        with self._sending, suppress(OSError), self._as_socket() as pipe:
            self._connection.send((message, *details))
            socket.send_fds(pipe, [b"\0"], descriptors)

    def receive_descriptors(self, most: int) -> list[int]:
        """What came with the message that was just received."""
        with self._as_socket() as pipe:
            return socket.recv_fds(pipe, 1, most, socket.MSG_CMSG_CLOEXEC)[1]

    @contextmanager
    def _as_socket(self) -> Iterator[socket.socket]:
        """This end as a socket; needs no further descriptor, as there may be none."""
        pipe = socket.socket(fileno=self._connection.fileno())
        try:
            yield pipe
        finally:
            pipe.detach()

    def fileno(self) -> int:
        """Readable when there is a message."""
        return self._connection.fileno()

    def end_sending(self) -> None:
        """Signal the end to the other process, after all that was sent; wakes a :meth:`send` that blocks."""
        with self._ending, suppress(OSError), self._as_socket() as pipe:
            pipe.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the descriptor."""
        with self._sending, self._ending:
            self._connection.close()


class _LogHandler(logging.Handler):
    """Sends log records to the process that launched this one."""

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
            self._pipe.send(LOG, {**fields, "msg": self.format(record), "args": None, "exc_info": None})
        except Exception:
            self.handleError(record)


def log_child_record(name: str, fields: dict[str, Any]) -> None:
    """Log a record of a child in this process, with the child's name before its text."""
    record = logging.makeLogRecord({**fields, "msg": f"[{name}] {fields['msg']}", "processName": name})
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        handle(logger, record)


def log_levels() -> dict[str, int]:
    """The levels that were set on loggers of this process, by name; the root logger's name is empty."""
    named = logging.root.manager.loggerDict.copy()  # another thread may add to it
    levels = {name: logger.level for name, logger in named.items() if isinstance(logger, logging.Logger)}
    return {**{name: level for name, level in levels.items() if level}, "": logging.root.level}


def log_through(pipe: MessagePipe, levels: dict[str, int]) -> logging.Handler:
    """Have what is logged here logged by the process that launched this one, whose levels these are.

    Returns:
        The handler, which was added to the root logger.
    """
    handler = _LogHandler(pipe)
    logging.root.addHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    return handler


def run_child(
    serve: Callable[[IO[bytes], MessagePipe], ResultT], spec: int, pipe: int, parent: int, descriptors: Sequence[int]
) -> ResultT | None:
    """Run the program of a :class:`pytriton.pool.process.ChildProcess`, which ends with the process that launched it.

    Args:
        serve: The program; gets the file with what it was given, and the pipe.
        spec: Descriptor of the file.
        parent: Id of the launching process.
        descriptors: Others that the program inherits.

    Returns:
        What ``serve`` returns; None if the launching process has ended.
    """
    if not kill_with_parent(parent):
        return None
    for descriptor in (spec, pipe, *descriptors):
        os.set_inheritable(descriptor, False)  # or what the program starts would hold connections open
    with ignored_signals(), open(spec, "rb") as file:  # the launching process decides
        reset_inherited_signals()
        return serve(file, MessagePipe(Connection(pipe)))
