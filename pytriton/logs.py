"""Our loggers. Their handlers, filters and formatters are code of the program: what these raise stays with them.

An exception that a handler raises would leave :meth:`logging.Logger.error` in the middle of our own work: a request
would fail, or a dead worker would not be started again, because of a line about it.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["get_logger", "handle"]


def get_logger(name: str) -> logging.Logger:
    """As :func:`logging.getLogger`, for a logger whose methods do not raise what code of the program raises."""
    logger = logging.getLogger(name)
    if "handle" not in vars(logger):
        vars(logger).update(handle=partial(handle, logger), makeRecord=partial(_make_record, logger))
    return logger


def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
    """Pass a record to a logger's handlers; what one raises is printed, as :mod:`logging` prints errors of handlers."""
    try:
        type(logger).handle(logger, record)
    except BaseException as error:
        if _is_for_the_program(error):
            raise
        _report(error, record)


def _make_record(logger: logging.Logger, *arguments: Any) -> logging.LogRecord:
    """Make a record as the program's factory does, or without it if it raises."""
    try:
        return type(logger).makeRecord(logger, *arguments)
    except BaseException as error:
        if _is_for_the_program(error):
            raise
        name, level, path, line, message, values, exception, function, _, stack = arguments
        record = logging.LogRecord(name, level, path, line, message, values, exception, function, stack)
        _report(error, record)
        return record


def _is_for_the_program(error: BaseException) -> bool:
    """Whether an exception may come from a handler of signals, as that of Ctrl+C, which has interrupted this."""
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


def _report(error: BaseException, record: logging.LogRecord) -> None:
    if logging.raiseExceptions and sys.stderr is not None:
        with suppress(Exception):
            trace = "".join(traceback.format_exception(error))
            sys.stderr.write(f"--- Logging error ---\n{trace}Message: {record.getMessage()!r}\n")
