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
def translated(model_name: str = "", model_version: str = "") -> Iterator[None]:
    """Raise an :class:`InferenceServerException` for every error of the body.

    The original error is its ``__context__``, which is not printed: one failure prints one traceback.

    Args:
        model_name: A refusal of the server has to name this model; empty for none.
        model_version: And this version of it; empty for none.
    """
    try:
        yield
    except InferenceServerException:
        raise
    except Exception as error:
        text = _text(_source(error)) or ""
        if not _is_ours(error) and not (model_name in text and model_version in text):
            version = f" version {model_version}" if model_version else ""
            text = f"model {model_name!r}{version}: {text}"
        raise InferenceServerException(text) from None


def _source(error: Exception) -> BaseException:
    """Where the message is that a program of v1 would show: without a status, if it is the server's own."""
    cause = error.__cause__
    return cause if isinstance(cause, TritonException) and not _is_ours(error) else error


def _is_ours(error: Exception) -> bool:
    """Whether the message is this package's, and not what the server said."""
    return isinstance(error, (PyTritonClientConnectionError, PyTritonClientTimeoutError))


def _text(err: object) -> str | None:
    if isinstance(err, TritonException):
        text: str | None = err.message()
        return text
    return None if err is None else str(err)
