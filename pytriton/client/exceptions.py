"""Errors of the clients.

::

    PyTritonError, of pytriton.exceptions
    └── PyTritonClientError
        ├── PyTritonClientValueError (ValueError)               an argument is wrong; nothing was sent
        │   ├── PyTritonClientInvalidUrlError                   the URL cannot be understood
        │   └── PyTritonClientInputError *                      an array does not fit the model's inputs
        ├── PyTritonClientTimeoutError (TimeoutError)           no answer in time
        │   ├── PyTritonClientModelUnavailableError             the server has no such model or version
        │   ├── PyTritonClientUnreachableError *                at a first use: no server answers at this address
        │   └── PyTritonClientQueueTimeoutError *               it waited too long in the server's queue
        ├── PyTritonClientClosedError                           the client is closed
        ├── PyTritonClientModelDoesntSupportBatchingError       infer_batch on a model without a batch axis
        ├── PyTritonClientInferenceServerError                  the server answered with an error
        │   ├── PyTritonClientConnectionError (ConnectionError) the server could not be reached, or went away
        │   │   ├── PyTritonClientTlsError                      client and server do not trust each other
        │   │   └── PyTritonClientUnreachableError *
        │   ├── PyTritonClientServerUnavailableError            it cannot take the request now, but may later
        │   ├── PyTritonClientQueueTimeoutError *
        │   └── PyTritonClientInputError *
        └── PyTritonClientQueueFullError                        too many requests wait in the client

``*`` has two parents.
"""

from __future__ import annotations

from pytriton.exceptions import ErrorCode, PyTritonError

__all__ = [
    "PyTritonClientClosedError",
    "PyTritonClientConnectionError",
    "PyTritonClientError",
    "PyTritonClientInferenceServerError",
    "PyTritonClientInputError",
    "PyTritonClientInvalidUrlError",
    "PyTritonClientModelDoesntSupportBatchingError",
    "PyTritonClientModelUnavailableError",
    "PyTritonClientQueueFullError",
    "PyTritonClientQueueTimeoutError",
    "PyTritonClientServerUnavailableError",
    "PyTritonClientTimeoutError",
    "PyTritonClientTlsError",
    "PyTritonClientUnreachableError",
    "PyTritonClientUrlParseError",
    "PyTritonClientValueError",
]


class PyTritonClientError(PyTritonError):
    """Root of the clients' errors.

    Attributes:
        message: The text given at construction; ``str(error)`` is the same.
    """


class PyTritonClientValueError(PyTritonClientError, ValueError):
    """An argument is wrong; nothing was sent."""


class PyTritonClientInvalidUrlError(PyTritonClientValueError):
    """The server's URL has an unknown scheme, no host, or a bad port."""


PyTritonClientUrlParseError = PyTritonClientInvalidUrlError
"""Older name of :class:`PyTritonClientInvalidUrlError`."""


class PyTritonClientTimeoutError(PyTritonClientError, TimeoutError):
    """The server did not answer, or did not become ready, in time; it may still be working on the request."""


class PyTritonClientModelUnavailableError(PyTritonClientTimeoutError):
    """The server has no such model or version, and did not get it in time.

    Raised for a first use of the model after some seconds in which the server was ready, and by ``wait_for_model`` at
    its timeout.
    """


class PyTritonClientClosedError(PyTritonClientError):
    """The client was used after ``close()``, or in a forked process in which gRPC for asyncio does not work."""


class PyTritonClientModelDoesntSupportBatchingError(PyTritonClientError):
    """``infer_batch`` was called on a model without a batch axis; use ``infer_sample``."""


class PyTritonClientInferenceServerError(PyTritonClientError):
    """The server answered with an error, or with something that cannot be understood.

    Attributes:
        code: The kind of failure, if the server told it.
        details: What a typed function said of values that do not fit, as JSON; else nothing.
    """

    code: ErrorCode | None = None
    details: str = ""


class PyTritonClientConnectionError(PyTritonClientInferenceServerError, ConnectionError):
    """The connection was refused, reset or lost, or the host does not exist.

    Attributes:
        is_other_program: Something answered that is no Triton server, or speaks another protocol than the URL says.
    """

    is_other_program: bool = False


class PyTritonClientTlsError(PyTritonClientConnectionError):
    """The TLS handshake failed: a certificate is not trusted or missing, or one of the two does not speak TLS.

    Retrying does not help, so clients do not retry.
    """


class PyTritonClientUnreachableError(PyTritonClientTimeoutError, PyTritonClientConnectionError):
    """Since its first use, a client has tried in vain to reach a server: connections fail, or another program answers.

    Raised at once where another program answers, else after some seconds, unless the client was given an
    ``init_timeout_s``, which then bounds the wait.
    """


class PyTritonClientServerUnavailableError(PyTritonClientInferenceServerError):
    """The server answered that it cannot take the request now: the model's queue is full, or the model is not loaded.

    The same request may succeed later; ``with_options(retries=...)`` tries it again.
    """


class PyTritonClientQueueTimeoutError(PyTritonClientTimeoutError, PyTritonClientInferenceServerError):
    """The request waited in the server's queue for longer than its limit; the model has not seen it."""


class PyTritonClientInputError(PyTritonClientValueError, PyTritonClientInferenceServerError, RuntimeError):
    """An array's name, type, shape or batch size does not fit the model; nothing was sent.

    It also has the classes of the errors that other clients raise for this mistake, so that programs which catch those
    work unchanged.
    """


class PyTritonClientQueueFullError(PyTritonClientError):
    """The client's queue of requests is full."""
