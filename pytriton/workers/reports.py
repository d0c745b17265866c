"""What a worker process and the process that launched it tell each other, over a pipe.

========================  ==========================================================================================
commands                  to the worker
``task``, pickled         the first one: what to do
``drain``                 take no batch any more, answer those that have come, and end
``rebind``, pickled       have what this factory makes answer the batches from now on; answered with ``rebound``
``quiet``                 answered with ``quiet``
``observe``               tell of batches
the end                   end, when the callable has returned
events                    from the worker
``ready``, is_async       the factory has returned, and the instance waits for its proxy
``failed``, traceback     it cannot be started; the worker ends
``derived``, pickled      the model's tensors, which was all the task
``refused``, text         they cannot be derived
``connected``             a proxy has come
``disconnected``, bools   a proxy has gone; whether another is there, and whether the server has ended it
``unrecoverable``         the callable wants the server to stop
``worn``                  the worker has answered ``max_requests``
``quiet``, seconds        since the last batch was answered; 0 while one is
``rebound``, text         None, or why not
``batch``, tuple          number, what has happened to it, and details (batch_reports.py)
``log``, record           a record of :mod:`logging`, whose arguments are part of the text
========================  ==========================================================================================
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from pytriton import forks

__all__ = ["RecordSender", "Reports", "log_record"]


class Reports:
    """One end of the pipe: any thread sends, one receives.

    Args:
        connection: A duplex pipe.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._ending = threading.Lock()  # for whoever cannot wait until all is sent
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, say and hear nothing: the other process would take it for the parent's."""
        self._sending, self._ending = threading.Lock(), threading.Lock()
        if not self._connection.closed:
            forks.abandon(self._connection.fileno())

    def tell(self, word: str, value: Any = None) -> None:
        """Send a command or an event; nothing happens if the other process has ended."""
        with self._sending, suppress(OSError):
            self._connection.send((word, value))

    def hear(self) -> tuple[str, Any] | None:
        """Wait for the next one; None if the other process has ended."""
        try:
            word, value = self._connection.recv()
        except (EOFError, OSError):
            return None
        return word, value

    def fileno(self) -> int:
        """Readable when there is something to hear."""
        return self._connection.fileno()

    def end(self) -> None:
        """Send nothing any more: the other process hears that after all else; whoever waits for it to read is woken."""
        with self._ending, suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as copy:
            copy.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Give the descriptor back."""
        with self._sending, self._ending:
            self._connection.close()


class RecordSender(logging.Handler):
    """Sends records of a worker to the process that launched it."""

    def __init__(self, reports: Reports) -> None:
        super().__init__()
        self._reports = reports
        forks.register(self)

    def after_fork(self) -> None:
        """In a child that the callable forks, write to standard error, whose lines get into the same log."""
        logging.root.removeHandler(self)
        logging.root.addHandler(logging.StreamHandler())

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record in a form that can be pickled whatever its arguments are."""
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[0]:
                text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
            fields = {name: getattr(record, name) for name in ("name", "levelno", "levelname", "pathname", "filename")}
            fields |= {name: getattr(record, name) for name in ("module", "lineno", "funcName", "created", "msecs")}
            fields |= {name: getattr(record, name) for name in ("threadName", "thread", "process")}
            self._reports.tell("log", {**fields, "msg": text, "args": None, "exc_info": None})
        except Exception:
            self.handleError(record)


def log_record(worker: str, fields: dict[str, Any]) -> None:
    """Log a record of a worker in this process, below the worker's name."""
    record = logging.makeLogRecord({**fields, "msg": f"[{worker}] {fields['msg']}", "processName": worker})
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)
