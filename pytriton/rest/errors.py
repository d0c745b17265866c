"""Errors of the front: each is an object of JSON with a status.

::

    {"error": {"code": "INVALID_INPUT", "message": "...", "details": [{"path": [], "expected": "", "got": ""}]}}

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
429    TOO_MANY_REQUESTS       the model's queue, or the front, is full; ``Retry-After`` says when to try again
500    INTERNAL                the callable, or the front, failed
501    UNSUPPORTED             the model cannot do this; or the front cannot reach the server's endpoint for it
503    UNAVAILABLE             the model or the server is not ready, or the callable says so
504    DEADLINE_EXCEEDED       there was no answer within ``RestConfig.timeout_s``, or the queue's limit
====== ======================= =====================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientTimeoutError,
)
from pytriton.exceptions import ErrorCode, PyTritonError
from pytriton.signature.validation import Problem, ValueMismatchError

__all__ = ["RestError", "invalid_input", "is_unknown_model", "of_client", "send_error", "unavailable"]

RETRY_AFTER_S = 1
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
PREFIX = re.compile(r"^\[(StatusCode\.[A-Z_]+|\d{3})\] ")  # of messages that come over a network


class RestError(PyTritonError):
    """A request that fails, as its client sees it.

    Args:
        status: Of HTTP.
        code: A name for programs.
        message: A sentence for people.
        details: The parts of the request that do not fit.
        headers: Beyond those of the body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The object that the client gets."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details:
            error["details"] = [
                {"path": list(each.path), "expected": each.expected, "got": each.got} for each in self.details
            ]
        return {"error": error}

    def encoded(self) -> bytes:
        """The body as JSON."""
        try:
            return orjson.dumps(self.body())
        except TypeError:  # a lone surrogate, in a name or value of the request
            return json.dumps(self.body()).encode()


def invalid_input(problems: Sequence[Problem]) -> RestError:
    """The error for values that do not fit."""
    return RestError(422, "INVALID_INPUT", "; ".join(map(str, problems)), problems)


def of_client(error: PyTritonError) -> RestError:
    """The front's error for what a call to the server raised."""
    if isinstance(error, RestError):
        return error
    if isinstance(error, ValueMismatchError):
        return invalid_input(error.problems)
    text = PREFIX.sub("", str(error))
    if isinstance(error, PyTritonClientTimeoutError):
        return RestError(504, "DEADLINE_EXCEEDED", text)
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
    if error.code == ErrorCode.INVALID_ARG and (problems := _problems_in(text)):
        return invalid_input(problems)
    return RestError(STATUSES[error.code], error.code.value, text)


def is_unknown_model(error: PyTritonError) -> bool:
    """Whether the server has no such model, or no such version."""
    return UNKNOWN_MODEL in str(error)


def unavailable(message: str) -> RestError:
    """The error for what may be possible a little later."""
    return RestError(503, ErrorCode.UNAVAILABLE.value, message, headers={"Retry-After": str(RETRY_AFTER_S)})


def _problems_in(text: str) -> list[Problem]:
    """The problems that a worker's message tells, as :class:`ValueMismatchError` writes them; none of another text."""
    decoder = json.JSONDecoder()
    found = []
    for part in re.split(r"; (?=\[)", text):
        try:
            path, end = decoder.raw_decode(part)
        except ValueError:
            return []
        match = re.match(r": expected (.*), got (.*)", part[end:], re.DOTALL)
        if not isinstance(path, list) or match is None:
            return []
        found.append(Problem(tuple(path), match[1], match[2]))
    return found


Send = Callable[[Any], Awaitable[None]]


async def send_error(send: Send, error: RestError) -> None:
    """Answer a request with an error."""
    body = error.encoded()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
