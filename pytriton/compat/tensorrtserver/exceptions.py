"""The one error of the v1 API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tritonclient.utils import InferenceServerException as TritonException

from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientTimeoutError,
)

__all__ = ["InferenceServerException", "translated"]


class InferenceServerException(Exception):
    """Anything that went wrong: an argument, the connection, or what the server said.

    Args:
        err: A text, or the error whose text this one takes; None has no text.
    """

    def __init__(self, err: object = None) -> None:
        self._message = _text(err)
        super().__init__(self._message)
        self._request_id = 0
        self._server_id: str | None = None

    def __str__(self) -> str:
        text = self._message or ""
        return text if self._server_id is None else f"[{self._server_id} {self._request_id}] {text}"

    def message(self) -> str | None:
        """What went wrong."""
        return self._message

    def request_id(self) -> int:
        """Number of the request that failed, among those of its context; 0 if nothing was sent."""
        return self._request_id

    def server_id(self) -> str | None:
        """Name of the server; known to a :class:`ServerStatusContext` that has got a status, else None."""
        return self._server_id

    def identify(self, request_id: int, server_id: str | None) -> None:
        """Say which request of which server has failed."""
        self._request_id, self._server_id = request_id, server_id


@contextmanager
def translated() -> Iterator[None]:
    """Raise an :class:`InferenceServerException` for every error, whoever's it is."""
    try:
        yield
    except InferenceServerException:
        raise
    except Exception as error:
        raise InferenceServerException(_source(error)) from error


def _source(error: Exception) -> BaseException:
    """Where the message is that a program of v1 would show: without a status, if it is the server's own."""
    ours = isinstance(error, (PyTritonClientConnectionError, PyTritonClientTimeoutError))
    cause = error.__cause__
    return cause if isinstance(cause, TritonException) and not ours else error


def _text(err: object) -> str | None:
    if isinstance(err, TritonException):
        text: str | None = err.message()
        return text
    return None if err is None else str(err)
