"""The errors of this package.

::

    PyTritonError                       the root, also of the clients' errors
    ├── PyTritonValidationError         a name, endpoint, signature or configuration object is wrong
    ├── PyTritonInvalidOperationError   the call is not possible in this state, e.g. a model bound twice
    ├── PyTritonBadParameterError       a value in a model configuration or decorator is out of range
    ├── PyTritonModelConfigError        a configuration received from a server cannot be parsed
    ├── PyTritonServerError             the server could not be found, started or kept alive
    │   └── PyTritonModelControlError   the server refused to load, unload or describe a model, or did not answer
    ├── PyTritonWorkerError             a worker process could not be started
    ├── PyTritonUnrecoverableError      raised by a callable to stop the server
    ├── PyTritonRequestError            raised or returned by a callable to fail a request, with a status code
    ├── PyTritonRuntimeError            a decorator is misused, or its data is inconsistent, at call time
    └── PyTritonClientError             a client's call failed; its tree is in :mod:`pytriton.client.exceptions`
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "ErrorCode",
    "PyTritonBadParameterError",
    "PyTritonError",
    "PyTritonInvalidOperationError",
    "PyTritonModelConfigError",
    "PyTritonModelControlError",
    "PyTritonRequestError",
    "PyTritonRuntimeError",
    "PyTritonServerError",
    "PyTritonUnrecoverableError",
    "PyTritonValidationError",
    "PyTritonWorkerError",
]


class PyTritonError(Exception):
    """Root of this package's errors.

    Attributes:
        message: The text given at construction; ``str(error)`` is the same.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class PyTritonValidationError(PyTritonError, ValueError):
    """A model name, endpoint name, signature or configuration object is wrong."""


class PyTritonInvalidOperationError(PyTritonError):
    """The operation is not possible in this state; for example the model is bound already."""


class PyTritonBadParameterError(PyTritonError, ValueError):
    """A value given to a model configuration or to a decorator is out of its range."""


class PyTritonModelConfigError(PyTritonError, ValueError):
    """A model configuration received from a server or a file cannot be parsed."""


class PyTritonServerError(PyTritonError, RuntimeError):
    """The server binary is missing, refused to start, or ended by itself."""


class PyTritonModelControlError(PyTritonServerError):
    """The server refused to load, unload or describe a model, or could not be reached to do so.

    ``__cause__`` is the error of tritonclient or of the network.
    """


class PyTritonWorkerError(PyTritonError, RuntimeError):
    """A worker process could not be started; the message has its traceback, or its last lines."""


class PyTritonUnrecoverableError(PyTritonError):
    """Raise it from an inference callable to stop serving: the process state can no longer be trusted."""


class ErrorCode(str, Enum):
    """The kind of a failure, for clients. ``docs/requests.md`` has the statuses of HTTP and gRPC."""

    UNKNOWN = "UNKNOWN"
    INTERNAL = "INTERNAL"
    NOT_FOUND = "NOT_FOUND"
    INVALID_ARG = "INVALID_ARG"
    UNAVAILABLE = "UNAVAILABLE"
    UNSUPPORTED = "UNSUPPORTED"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    CANCELLED = "CANCELLED"


class PyTritonRequestError(PyTritonError):
    """Raise it from an inference callable, or return it in place of a result, to tell the client what is wrong.

    Args:
        message: All that the client gets to read.
        code: What kind of failure it is; a member of :class:`ErrorCode`, or its name.

    Attributes:
        code: As given.

    Raises:
        PyTritonBadParameterError: There is no such code.
    """

    def __init__(self, message: str = "", code: ErrorCode | str = ErrorCode.INTERNAL) -> None:
        super().__init__(message)
        try:
            self.code = ErrorCode(code)
        except ValueError as error:
            names = [*ErrorCode.__members__]
            raise PyTritonBadParameterError(f"{code!r} is no error code; use one of {names}") from error

    @property
    def details(self) -> str:
        """What programs get beside the message: an object of JSON, or nothing."""
        return ""


class PyTritonRuntimeError(PyTritonError, RuntimeError):
    """A decorator was misused, or its data was inconsistent, while a request was handled."""
