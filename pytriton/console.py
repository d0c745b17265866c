"""What operators see of this process, and the commands that they give it: for the pages of the REST front."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import count
from typing import Any

from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.model import Model

__all__ = ["COMMANDS", "Console", "LogTail"]

OURS = logging.getLogger("pytriton")
MOST_RECORDS = 2000
MOST_CHARACTERS = 4000  # of a record
COMMANDS = ("scale", "restart", "unload", "serve")


class LogTail(logging.Handler):
    """Keeps the last records of our loggers that the program's levels let through.

    A program that sets no logging up sees warnings all the same, as without this handler.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: deque[dict[str, Any]] = deque(maxlen=MOST_RECORDS)
        self._numbers = count(1)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + logging.Formatter().formatException(record.exc_info)
        except Exception:  # its arguments do not fit its message
            text = str(record.msg)
        self._records.append(
            {
                "number": next(self._numbers),
                "time": record.created,
                "level": record.levelname,
                "logger": record.name,
                "text": text[:MOST_CHARACTERS],
            }
        )
        fallback = logging.lastResort
        if fallback is not None and record.levelno >= fallback.level and self._is_alone(record.name):
            fallback.handle(record)

    def after(self, number: int) -> list[dict[str, Any]]:
        """The records after one, the oldest first; each has number, time (seconds since 1970), level, logger, text."""
        self.acquire()
        try:
            return [each for each in self._records if each["number"] > number]
        finally:
            self.release()

    def _is_alone(self, name: str) -> bool:
        """Whether no handler but this one and others of this class, of which it is the first, gets a record."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            for handler in logger.handlers:
                if not isinstance(handler, LogTail):
                    return False
            logger = logger.parent if logger.propagate else None
        return next((each for each in OURS.handlers if isinstance(each, LogTail)), None) is self


class Console:
    """Answers the questions of the pages, and carries out the commands.

    Args:
        models: Those that are bound.
        server_process: Process id of the server; None if it is unknown, or this process.
        front_processes: Process ids of the front.
        scale: Of :class:`pytriton.base.TritonBase`.
        unload: Its method ``unbind``.
        serve_versions: Its method.
    """

    def __init__(
        self,
        models: Iterable[Model],
        server_process: Callable[[], int | None],
        front_processes: Callable[[], list[int]],
        scale: Callable[[str, int], None],
        unload: Callable[[str], None],
        serve_versions: Callable[[str, list[int] | None], None],
    ) -> None:
        self._models = models
        self._server_process = server_process
        self._front_processes = front_processes
        self._commands: Mapping[str, Callable[..., Any]] = {
            "processes": self.processes,
            "workers": self.workers,
            "log": self.log,
            "scale": self._scale,
            "restart": self._restart,
            "unload": lambda model: unload(model),
            "serve": lambda model, version: serve_versions(model, None if version is None else [version]),
        }
        self._scale_model = scale
        self._commanding = threading.Lock()
        self._log = LogTail()
        OURS.addHandler(self._log)

    def close(self) -> None:
        """Keep no more records of the log. May be called twice."""
        OURS.removeHandler(self._log)

    def answer(self, question: str, **arguments: Any) -> Any:
        """Answer a question, or carry out a command, of which one runs at a time.

        Args:
            question: ``processes``, ``workers`` or ``log``, or one of :data:`COMMANDS`.
            arguments: ``after`` of ``log``; ``model`` of a command, ``count`` of ``scale``, ``version`` of ``serve``,
                which is None for the versions that the program says.

        Returns:
            What is JSON; None for a command.

        Raises:
            PyTritonError: The command is refused.
        """
        perform = self._commands.get(question)
        if perform is None:
            raise PyTritonInvalidOperationError(f"there is no command {question!r}")
        if question not in COMMANDS:
            return perform(**arguments)
        OURS.info("a page commands: %s %s", question, arguments)
        with self._commanding:
            return perform(**arguments)

    def processes(self) -> list[dict[str, Any]]:
        """The processes of this server: name, kind and process id of each."""
        found: list[dict[str, Any]] = [{"name": "host", "kind": "host", "pid": os.getpid()}]
        server = self._server_process()
        if server is not None:
            found.append({"name": "server", "kind": "server", "pid": server})
        for index, pid in enumerate(self._front_processes()):
            found.append({"name": f"front {index}", "kind": "front", "pid": pid})
        for worker in self.workers():
            if worker["pid"] not in (None, os.getpid()) and worker["kind"] != "remote":
                found.append({"name": f"worker {worker['name']}", "kind": "worker", "pid": worker["pid"]})
        return found

    def workers(self) -> list[dict[str, Any]]:
        """The workers of all models: the fields of :class:`pytriton.pool.pool.WorkerStatus`, and ``scales``."""
        return [
            {"scales": model.can_scale(), **asdict(status)}
            for model in self._models
            for status in model.worker_statuses()
        ]

    def log(self, after: int = 0) -> list[dict[str, Any]]:
        """As :meth:`LogTail.after`."""
        return self._log.after(after)

    def _scale(self, model: str, count: int) -> None:
        self._scale_model(model, count)

    def _restart(self, model: str) -> None:
        found = [each for each in self._models if each.name == model]
        if not found:
            raise PyTritonInvalidOperationError(f"model {model!r} is not bound")
        for each in found:
            each.restart_workers()
