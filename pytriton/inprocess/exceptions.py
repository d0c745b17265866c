"""Errors of the server in this process.

::

    PyTritonError
    └── TritonError                the server refuses or fails; its message
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

from pytriton.exceptions import PyTritonError

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
    "error_of",
]


class TritonError(PyTritonError):
    """Root of what the server in this process, and the Python around it, raise."""


class UnknownError(TritonError):
    """The server knows no better name for what went wrong."""


class InternalError(TritonError):
    """Something failed within the server, a model or an allocator."""


class NotFoundError(TritonError, LookupError):
    """There is no such model, version, repository or file."""


class InvalidArgumentError(TritonError, ValueError):
    """An argument is wrong, or the server is not in the state for the call: not started, for example."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument, an option or a field of a request has the wrong type."""


class UnavailableError(TritonError):
    """What is asked for is not there now: a model that is not loaded, a full queue, or a wait that timed out."""


class UnsupportedError(TritonError, NotImplementedError):
    """The server was built or configured without it."""


class AlreadyExistsError(TritonError):
    """There is one of that name already."""


class CancelledError(TritonError):
    """The request was cancelled before it was answered."""


# In the order of the C API's codes.
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


def error_of(code: int, message: str) -> TritonError:
    """The error for a code of the C API; one for an unknown code is an UnknownError."""
    return (_CLASSES[code] if 0 <= code < len(_CLASSES) else UnknownError)(message)
