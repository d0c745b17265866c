"""Failures of callables: the errors that clients get, and the log, which has each kind in full once and then counts."""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.logs import get_logger

__all__ = ["LIMIT_BYTES", "FailureLog", "describe", "sendable", "text_of"]

LOGGER = get_logger("pytriton.worker")

INTERVAL_S = 10.0
"""Seconds between two lines on failures of one kind."""

FORGOTTEN_S = 600.0
"""After so many seconds without a failure of a kind, the next one is logged in full again."""

LOOK_S = 1.0  # seconds between two checks for lines that are due
MOST_KINDS = 64
LONGEST_TEXT = 500

LIMIT_BYTES = 6000
"""gRPC sends a message as percent-encoded metadata; clients refuse a response with more than 8 KiB of metadata."""

Line = tuple[int, str]
"""A level and a text."""


def describe(error: BaseException, with_traceback: bool, with_code: bool = False) -> dict[str, str]:
    """An exception of a callable as the metadata of a reply: ``message``, ``code`` and ``details``, if it has some.

    Args:
        error: A PyTritonRequestError has both. For others, they are class and message, and the code INTERNAL.
        with_traceback: Add the traceback; never that of a PyTritonRequestError, which is meant for clients.
        with_code: Begin the message with the code.
    """
    if isinstance(error, PyTritonRequestError):
        code = error.code.value
        told = {"message": sendable(f"[{code}] {error.message}" if with_code else error.message), "code": code}
        return {**told, "details": error.details} if error.details else told
    if with_traceback:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    else:
        text = text_of(error)
    return {"message": sendable(text), "code": ErrorCode.INTERNAL.value}


def text_of(error: BaseException) -> str:
    """Class and message of an exception."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the error's __str__ is the user's code too
        return f"{type(error).__name__}: its text is not available"


def sendable(text: str) -> str:
    """A text that gRPC can send: without lone surrogates and NULs; the beginning and the end of a long one.

    Args:
        text: Of any length and content.

    Returns:
        A text whose percent-encoded form is little longer than LIMIT_BYTES.
    """
    text = text.encode(errors="replace").decode().replace("\0", "\\0")
    if sum(map(_encoded_bytes, text[: LIMIT_BYTES + 1])) <= LIMIT_BYTES:
        return text
    begin, end = _fitting(text[:LIMIT_BYTES]), _fitting(text[: -LIMIT_BYTES - 1 : -1])
    return f"{text[:begin]} [...] {text[len(text) - end :]}"


def _fitting(text: str) -> int:
    """Number of characters that take half of the limit."""
    return bisect(list(accumulate(map(_encoded_bytes, text))), LIMIT_BYTES // 2)


def _encoded_bytes(character: str) -> int:
    return 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())


@dataclass
class Repeated:
    """Failures of one kind: of one exception type, at one place.

    Attributes:
        level: Of their lines.
        what: What failed, and how, for the line with their count.
        since: When the last line was logged.
        latest: When the last failure happened.
        count: Number of failures since the last line.
        text: Class and message of the last failure.
    """

    level: int
    what: str
    since: float
    latest: float
    count: int = 0
    text: str = ""


class FailureLog:
    """Logs failures. A client that causes thousands of them a second does not fill the disk with their tracebacks.

    There is no thread: the count is logged with the next failure of the model, or at the end. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[tuple[Any, ...], Repeated] = {}
        self._next_look = -math.inf
        self._warned: set[str] = set()

    def add(
        self,
        error: BaseException,
        what: str,
        *,
        text: str = "",
        level: int = logging.WARNING,
        with_traceback: bool = True,
    ) -> None:
        """Log a failure, or count it if there was one of its kind.

        Args:
            what: What failed; the same for all failures of a kind.
            text: Text of the line for the first failure; empty means ``what``.
            with_traceback: Log the traceback with the first one.
        """
        if not LOGGER.isEnabledFor(level):
            return
        now = self._clock()
        place = _place(error)
        key = (what, level, type(error), place)
        with self._lock:
            lines = []
            known = self._kinds.get(key)
            if known is not None and now - known.latest > FORGOTTEN_S:
                lines += self._line(self._kinds.pop(key), now)
                known = None
            if known is not None:
                known.count, known.latest, known.text = known.count + 1, now, text_of(error)[:LONGEST_TEXT]
            elif len(self._kinds) >= MOST_KINDS:
                rarest = min(self._kinds, key=lambda kind: self._kinds[kind].latest)
                lines += self._line(self._kinds.pop(rarest), now)
            if known is None:
                about = f"{what}: {type(error).__name__}{place and f' at {place}'}"
                self._kinds[key] = Repeated(level, about, now, now)
            lines += self._due(now)
        _write(lines)
        if known is None:
            LOGGER.log(level, "model %s: %s", self._model, text or what, exc_info=error if with_traceback else None)

    def warn_once(self, subject: str, warning: str) -> None:
        """Log a warning, unless one on the same subject was logged before."""
        with self._lock:
            is_new = subject not in self._warned
            self._warned.add(subject)
        if is_new:
            LOGGER.warning("model %s: %s", self._model, warning)

    def flush(self, *, forget: bool = False) -> None:
        """Log the counts that were not logged yet.

        Args:
            forget: Log the next failure of each kind in full again, because the callable was replaced.
        """
        now = self._clock()
        with self._lock:
            lines = [line for repeated in self._kinds.values() for line in self._line(repeated, now)]
            if forget:
                self._kinds.clear()
                self._warned.clear()
        _write(lines)

    def _due(self, now: float) -> list[Line]:
        """The lines of kinds that were last logged ``INTERVAL_S`` ago or earlier."""
        if now < self._next_look:
            return []
        self._next_look = now + LOOK_S
        return [
            line
            for repeated in self._kinds.values()
            if now - repeated.since >= INTERVAL_S
            for line in self._line(repeated, now)
        ]

    def _line(self, repeated: Repeated, now: float) -> list[Line]:
        """The line with the count, which is then reset; no line if it is 0."""
        count, seconds = repeated.count, now - repeated.since
        if not count:
            return []
        repeated.count, repeated.since = 0, now
        times = "1 more time" if count == 1 else f"{count:,} more times"
        about = f"model {self._model}: {repeated.what}, {times} in the last {seconds:.0f} s"
        return [(repeated.level, f"{about}; the last was {repeated.text}")]


def _write(lines: list[Line]) -> None:
    for level, line in lines:  # without the lock, because handlers are user code
        LOGGER.log(level, "%s", line)


def _place(error: BaseException) -> str:
    """File and line where an exception was raised; empty if it was only returned."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
