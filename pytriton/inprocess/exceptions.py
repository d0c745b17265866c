"""Errors of the server in this process.

::

    PyTritonError
    └── TritonError                the server refuses or fails
        ├── UnknownError
        ├── InternalError
        ├── NotFoundError          also a LookupError
        ├── InvalidArgumentError   also a ValueError
        │   └── InvalidTypeError   also a TypeError
        ├── UnavailableError
        ├── UnsupportedError       also a NotImplementedError
        ├── AlreadyExistsError
        └── CancelledError
"""

from __future__ import annotations

from pytriton.exceptions import ErrorCode, PyTritonError

__all__ = [
    "AlreadyExistsError",
    "CancelledError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "NotFoundError",
    "TritonError",
    "UnavailableError",
    "UnknownError",
    "UnsupportedError",
    "code_of",
    "error_of",
]


class TritonError(PyTritonError):
    """Root of the errors of the server in this process."""


class UnknownError(TritonError):
    """The server has no other code for the error."""


class InternalError(TritonError):
    """The server, a model or an allocator failed."""


class NotFoundError(TritonError, LookupError):
    """There is no such model, version, repository or file."""


class InvalidArgumentError(TritonError, ValueError):
    """An argument is wrong, or the server is in the wrong state for the call, for example not started."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument, an option or a field of a request has the wrong type."""


class UnavailableError(TritonError):
    """A model is not loaded, a queue is full, or a wait timed out."""


class UnsupportedError(TritonError, NotImplementedError):
    """The server was built or configured without the function."""


class AlreadyExistsError(TritonError):
    """Something of that name exists already."""


class CancelledError(TritonError):
    """The request was cancelled before it was answered."""


# By the codes of the C API.
_CLASSES: tuple[type[TritonError], ...] = (
    UnknownError,
    InternalError,
    NotFoundError,
    InvalidArgumentError,
    UnavailableError,
    UnsupportedError,
    AlreadyExistsError,
    CancelledError,
)
_CODES = dict(zip(_CLASSES, ErrorCode, strict=True))


def code_of(error: TritonError) -> ErrorCode | None:
    """The code that clients get for an error; None for a subclass of those that the C API knows."""
    return _CODES.get(type(error))


def error_of(code: int, message: str) -> TritonError:
    """The error for a code of the C API; one for an unknown code is an UnknownError."""
    return (_CLASSES[code] if 0 <= code < len(_CLASSES) else UnknownError)(message)
