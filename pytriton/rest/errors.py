"""Errors of the app: each is an object of JSON with a status.

::

    {"error": {"code": "INVALID_INPUT", "message": "...",
               "details": [{"path": [], "expected": "", "got": ""}], "more": 3}}

``details`` has ten entries at most, ``more`` tells how many others there are, and the whole has at most 16 KiB.

====== ======================= =====================================================================================
status code                    when
====== ======================= =====================================================================================
400    INVALID_REQUEST         the body is no JSON, no multipart form, or no array
400    INVALID_ARG             the callable refuses the request; also ALREADY_EXISTS, CANCELLED, UNKNOWN
401    UNAUTHORIZED            the access token is missing or wrong
403    FORBIDDEN               a browser calls for a page whose origin is not in ``RestConfig.cors``
404    NOT_FOUND               no such model, version or route; or the callable says so
405    METHOD_NOT_ALLOWED      ``Allow`` lists the methods of the route
406    NOT_ACCEPTABLE          the result has no form that ``Accept`` asks for
408    REQUEST_TIMEOUT         nothing of the body came within ``RestConfig.timeout_s``
413    BODY_TOO_LARGE          the body is longer than ``RestConfig.max_body_bytes``
415    UNSUPPORTED_MEDIA_TYPE  the model has no input for a body of this type
422    INVALID_INPUT           values do not fit the model's inputs; ``details`` lists each
429    TOO_MANY_REQUESTS       the model's queue, or the app, is full; ``Retry-After`` says when to try again
500    INTERNAL                the callable, or the app, failed
501    UNSUPPORTED             the model cannot do this; or the app cannot reach the server's endpoint for it
503    UNAVAILABLE             the model or the server is not ready, or the callable says so
504    DEADLINE_EXCEEDED       there was no answer within ``RestConfig.timeout_s``, or the queue's limit
====== ======================= =====================================================================================
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientTimeoutError,
)
from pytriton.exceptions import ErrorCode, PyTritonError
from pytriton.logs import get_logger
from pytriton.signature.problems import Problem, ValueMismatchError, as_json, message_of, problems_of

__all__ = ["RestError", "hidden", "invalid_input", "is_unknown_model", "of_client", "send_error", "unavailable"]

LOGGER = get_logger("pytriton.rest")

RETRY_AFTER_S = 1
MOST_LINES, LINES_PER_S = 100, 10  # of failed requests in the log; a burst, and what follows it
QUEUE_FULL = "maximum queue size"  # in the server's message
UNKNOWN_MODEL = "unknown model"
STATUSES = {
    ErrorCode.INVALID_ARG: 400,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.ALREADY_EXISTS: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.CANCELLED: 400,
    ErrorCode.INTERNAL: 500,
    ErrorCode.UNKNOWN: 400,
}
MOST_BYTES = 16 * 1024
MOST_CHARACTERS = 2000  # of a message that is longer: with each escaped, it fits
PREFIX = re.compile(r"^\[(StatusCode\.[A-Z_]+|\d{3})\] ")  # of messages that come over a network


class RestError(PyTritonError):
    """A request that fails, as its client sees it.

    Args:
        status: Of HTTP.
        code: A name for programs.
        message: A sentence for people.
        details: The parts of the request that do not fit.
        headers: Beyond those of the body.
        more: How many parts beyond those do not fit.
        others: The end of the message, which names other models than that of the request.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
        more: int = 0,
        others: str = "",
    ) -> None:
        super().__init__(f"{message}: {others}" if others else message)
        self.status = status
        self.code = code
        self.details = details
        self.more = more
        self.headers = dict(headers or {})
        self._alone = message

    def without_others(self) -> RestError:
        """The same error, which names no other model."""
        return RestError(self.status, self.code, self._alone, self.details, self.headers, self.more)

    def body(self) -> dict[str, Any]:
        """The object that the client gets."""
        return {"error": {"code": self.code, "message": self.message, **as_json(self.details, self.more)}}

    def encoded(self) -> bytes:
        """The body as JSON: of at most ``MOST_BYTES``, for which details are left out and the message is cut."""
        text = _json(self.body())
        while len(text) > MOST_BYTES and self.details:
            self.details, self.more = self.details[:-1], self.more + 1
            text = _json(self.body())
        if len(text) > MOST_BYTES:
            self.message = f"{self.message[:MOST_CHARACTERS]}..."
            text = _json(self.body())
        return text


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, in a name or value of the request
        return json.dumps(value).encode()


def invalid_input(problems: Sequence[Problem], more: int = 0) -> RestError:
    """The error for values that do not fit, of which some may not be told."""
    return RestError(422, "INVALID_INPUT", message_of(problems, more), problems, more=more)


def of_client(error: PyTritonError) -> RestError:
    """The app's error for what a call to the server raised."""
    if isinstance(error, RestError):
        return error
    if isinstance(error, ValueMismatchError):
        return invalid_input(error.problems, error.more)
    text = PREFIX.sub("", str(error))
    if isinstance(error, PyTritonClientTimeoutError):
        return RestError(504, "DEADLINE_EXCEEDED", text)
    if isinstance(error, PyTritonClientClosedError):  # this process was forked from that of the server
        return unavailable(text)
    if isinstance(error, PyTritonClientConnectionError):
        return unavailable(f"the server cannot be reached: {text}")
    if isinstance(error, PyTritonClientInputError):
        return RestError(422, "INVALID_INPUT", text)
    if not isinstance(error, PyTritonClientInferenceServerError) or error.code is None:
        return RestError(500, ErrorCode.INTERNAL.value, text)
    if error.code == ErrorCode.UNAVAILABLE:
        if QUEUE_FULL in text:
            return RestError(429, "TOO_MANY_REQUESTS", text, headers={"Retry-After": str(RETRY_AFTER_S)})
        return unavailable(text)
    if error.code == ErrorCode.INVALID_ARG and error.details:
        problems, more = problems_of(error.details)
        if problems:
            return invalid_input(problems, more)
    return RestError(STATUSES[error.code], error.code.value, text)


class SparingLog:
    """A client that makes requests fail does not fill the log: lines beyond a burst and a rate are counted only.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lines, self._filled, self._left_out = float(MOST_LINES), clock(), 0

    def warning(self, request_id: str, message: str) -> None:
        """Write the line of a request, or count it."""
        with self._lock:
            now = self._clock()
            self._lines = min(MOST_LINES, self._lines + (now - self._filled) * LINES_PER_S)
            self._filled = now
            if self._lines < 1:
                self._left_out += 1
                return
            self._lines -= 1
            left_out, self._left_out = self._left_out, 0
        if left_out:
            LOGGER.warning("%d more requests failed; their messages were left out", left_out)
        LOGGER.warning("request %s: %s", request_id, message)


_hidden_errors = SparingLog()


def hidden(error: RestError, request_id: str) -> RestError:
    """What a client gets in place of an error of a callable or of the app, whose message is for the log alone."""
    if error.status != 500:
        return error
    _hidden_errors.warning(request_id, error.message)
    return RestError(500, ErrorCode.INTERNAL.value, f"internal error; the log tells it, for request {request_id}")


def is_unknown_model(error: PyTritonError) -> bool:
    """Whether the server has no such model, or no such version."""
    return UNKNOWN_MODEL in str(error)


def unavailable(message: str) -> RestError:
    """The error for what may be possible a little later."""
    return RestError(503, ErrorCode.UNAVAILABLE.value, message, headers={"Retry-After": str(RETRY_AFTER_S)})


Send = Callable[[Any], Awaitable[None]]


async def send_error(send: Send, error: RestError) -> None:
    """Answer a request with an error."""
    body = error.encoded()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
