"""What operators see of this process, at a terminal and on the pages of the app, and their commands."""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError
from pytriton.logs import get_logger
from pytriton.model import Model
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.server.model_server import ModelServer

if TYPE_CHECKING:
    from pytriton.rest.launched_app import LaunchedApp

__all__ = ["COMMANDS", "Console", "LogTail", "show_start", "shows_log"]

OURS = get_logger("pytriton")
MOST_RECORDS = 2000
MOST_CHARACTERS = 4000  # of a record
CODE_BYTES = 32
COMMANDS = ("scale", "restart", "unload", "serve", "record", "weigh")
RECORDINGS_VARIABLE = "PYTRITON_RECORDINGS"
RECORDING_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.ptr")


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
        if fallback is not None and record.levelno >= fallback.level and self._stands_in(record.name):
            fallback.handle(record)

    def after(self, number: int) -> list[dict[str, Any]]:
        """The records after one, the oldest first; each has number, time (seconds since 1970), level, logger, text."""
        self.acquire()
        try:
            return [each for each in self._records if each["number"] > number]
        finally:
            self.release()

    def _stands_in(self, name: str) -> bool:
        """Whether the program shows no log, and this is the first handler of this class."""
        return not shows_log(name) and next(each for each in OURS.handlers if isinstance(each, LogTail)) is self


def shows_log(name: str) -> bool:
    """Whether the program has set logging up: a handler of its own gets the records of a logger of ours."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if not all(isinstance(handler, LogTail) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def show_start(configs: Sequence[TritonModelConfig], server: ModelServer | None, app: LaunchedApp | None) -> None:
    """Show at a terminal what is served, and where, if no log does; warn if nothing is."""
    logger = get_logger("pytriton.triton")
    models = sorted(configs, key=lambda config: config.model_name)
    if not models:
        logger.warning("no model is bound, so nothing is served; call bind() before serve()")
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not models or server is None or not is_terminal or shows_log(logger.name):
        return
    names = ", ".join(dict.fromkeys(config.model_name for config in models))
    lines = [f"Serving {names} at {server.url}"]
    if app is None:
        lines += server.announcement(models[0]).splitlines()[-1:]
    else:
        _, *command = app.announcement(models).splitlines()
        lines += [f"  Dashboard:      {app.url}/", f"  JSON API:       {app.url}/docs", *command]
    print("\n".join([*lines, "  End:            Ctrl+C"]), file=sys.stderr, flush=True)


def _recording_of(given: Any) -> Recording:
    """The recording of a command, which may write only new files of one kind into one folder."""
    if not isinstance(given, dict) or not given.keys() <= {"path", *Recording.options()}:
        raise PyTritonBadParameterError(f"a recording has a path, and may have {', '.join(Recording.options())}")
    path = given.get("path")
    if not isinstance(path, str) or not RECORDING_FILE.fullmatch(path):
        raise PyTritonBadParameterError(
            f"the file is {path!r:.200}; give a name without folders that ends with .ptr, such as day.ptr"
        )
    folder = Path(os.environ.get(RECORDINGS_VARIABLE) or ".").absolute()
    if os.path.lexists(folder / path):
        raise PyTritonInvalidOperationError(f"{folder / path} exists; choose another name")
    return Recording(**{**given, "path": folder / path})


def _traffic_of(model: Model) -> dict[str, Any]:
    traffic = model.traffic
    return {} if traffic is None else {"weights": dict(traffic.weights), "counts": traffic.counted()}


class Console:
    """Answers the questions of the pages, and carries out the commands.

    Args:
        server_process: Process id of the server; None if it is unknown, or this process.
        app_processes: Process ids of the app.

    Attributes:
        offers_codes: Whether :meth:`offer_code` prints one.
    """

    def __init__(
        self,
        models: Iterable[Model],
        server_process: Callable[[], int | None],
        app_processes: Callable[[], list[int]],
        scale: Callable[[str, int], None],
        unload: Callable[[str], None],
        serve_versions: Callable[[str, list[int] | None], None],
    ) -> None:
        self._models = models
        self._server_process = server_process
        self._app_processes = app_processes
        self._commands: Mapping[str, Callable[..., Any]] = {
            "processes": self.processes,
            "workers": self.workers,
            "log": self.log,
            "scale": self._scale,
            "restart": self._restart,
            "unload": lambda model: unload(model),
            "unlock": self._unlock,
            "serve": lambda model, version: serve_versions(model, None if version is None else [version]),
            "record": self._record,
            "weigh": self._weigh,
        }
        self._scale_model = scale
        self._commanding = threading.Lock()
        self._unlocking = threading.Lock()
        self.offers_codes = False
        self._code = ""  # empty: there is none
        self._url = ""
        self._log = LogTail()
        OURS.addHandler(self._log)

    def close(self) -> None:
        """Keep no more records of the log. May be called twice."""
        OURS.removeHandler(self._log)

    def answer(self, question: str, **arguments: Any) -> Any:
        """Answer a question, or carry out a command, of which one runs at a time.

        Args:
            question: ``processes``, ``workers``, ``log`` or ``unlock``, or one of :data:`COMMANDS`.
            arguments: ``after`` of ``log``; ``code`` of ``unlock``; ``model`` of a command, ``count`` of ``scale``,
                ``version`` of ``serve``, which is None for the versions that the program says; ``action`` of
                ``record``, which is ``start``, ``stop`` or ``status``, its ``version``, which may be None, and its
                ``recording``, which has the arguments of :class:`Recording`; ``weights`` of ``weigh``, by model.

        Returns:
            What is JSON; None for a command but ``record``.

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
        for index, pid in enumerate(self._app_processes()):
            found.append({"name": f"app {index}", "kind": "app", "pid": pid})
        for worker in self.workers():
            if worker["pid"] not in (None, os.getpid()) and worker["kind"] != "remote":
                found.append({"name": f"worker {worker['name']}", "kind": "worker", "pid": worker["pid"]})
        return found

    def workers(self) -> list[dict[str, Any]]:
        """The workers of all models: the fields of :class:`pytriton.pool.pool.WorkerStatus`, and ``scales``.

        Those of models that pass requests on have ``weights`` and ``counts``.
        """
        return [
            {"scales": model.can_scale(), **_traffic_of(model), **asdict(status)}
            for model in self._models
            for status in model.worker_statuses()
        ]

    def log(self, after: int = 0) -> list[dict[str, Any]]:
        """As :meth:`LogTail.after`."""
        return self._log.after(after)

    def offer_code(self, url: str) -> None:
        """Print a URL that unlocks the log and the commands for one visit of the pages, if codes are offered.

        The code in it, which stays in the browser, is used once: the next one is printed then.

        Args:
            url: Of the app, which listens on this machine alone.
        """
        if not self.offers_codes:
            return
        self._code, self._url = secrets.token_urlsafe(CODE_BYTES), url
        text = f"Dashboard with log and commands, for one visit (or pytriton status): {url}/#/unlock/{self._code}"
        print(text, file=sys.stderr, flush=True)

    def _unlock(self, code: str) -> bool:
        """Whether a code is the one that was printed last, which is used up then."""
        with self._unlocking:
            if not self._code or not hmac.compare_digest(code.encode(), self._code.encode()):
                return False
            self.offer_code(self._url)
        OURS.info("a visit was unlocked with the code that was printed")
        return True

    def _scale(self, model: str, count: int) -> None:
        self._scale_model(model, count)

    def _record(self, model: str, action: str, version: int | None, recording: Any) -> dict[str, Any]:
        found = [each for each in self._bound(model) if version in (None, each.version)]
        if len(found) != 1:
            versions = ", ".join(str(each.version) for each in self._bound(model))
            raise PyTritonInvalidOperationError(f"model {model!r} has the versions {versions}; say which one")
        (recorded,) = found
        if action == "start":
            recorded.start_recording(_recording_of(recording))
        status = recorded.stop_recording() if action == "stop" else recorded.recording_status()
        return {"recording": None if status is None else asdict(status)}

    def _weigh(self, model: str, weights: Any) -> None:
        splits = [each.traffic for each in self._bound(model) if each.traffic is not None and each.traffic.weights]
        if not splits:
            raise PyTritonInvalidOperationError(f"model {model!r} has no weights; bind a pytriton.Split")
        for each in splits:
            each.weights = weights

    def _bound(self, model: str) -> list[Model]:
        found = [each for each in self._models if each.name == model]
        if not found:
            raise PyTritonInvalidOperationError(f"model {model!r} is not bound")
        return found

    def _restart(self, model: str) -> None:
        for each in self._bound(model):
            each.restart_workers()
