"""What all contexts have in common."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from pytriton.client.flows import NETWORK_TIMEOUT_S
from pytriton.compat.tensorrtserver.connection import Connection
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException

__all__ = ["Context", "next_number"]

ContextT = TypeVar("ContextT", bound="Context")

_numbers = itertools.count(1)


def next_number() -> int:
    """A number that no other request of this process has."""
    return next(_numbers)


class Context:
    """A conversation with one server; ``with`` closes it.

    Servers no longer number requests. This process numbers its own: all contexts together, from 1, so that programs can
    keep the answers of several contexts by the requests' numbers.

    Args:
        url: ``host:port`` of the server's endpoint for the protocol.
        protocol: How to speak; 0 is HTTP, and 1 is gRPC.
        verbose: Print what is asked and answered.
        http_headers: Texts ``name:value``, sent with every request over HTTP; over gRPC they count for nothing, as in
            v1, except for the access token. A server with restricted endpoints wants ``triton-access-token:<token>``.
            Without it, the token in the environment variable ``PYTRITON_ACCESS_TOKEN`` is taken, if there is one.
        headers: Name to value, sent with every request over either protocol; v1 did not have them.

    Raises:
        InferenceServerException: An argument is wrong.
    """

    def __init__(
        self,
        url: str,
        protocol: int,
        verbose: bool = False,
        http_headers: Sequence[str] | None = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._start(Connection(url, protocol, verbose, http_headers, headers))

    def __enter__(self: ContextT) -> ContextT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; may be called twice.

        Later calls that need the server raise ``InferenceServerException``.
        """
        self._closed = True
        self._connection.close()

    def get_last_request_id(self) -> int | None:
        """Number of the last request; None if it failed, and before the first. Also after :meth:`close`."""
        return self._last_request_id

    def _start(self, connection: Connection) -> None:
        self._connection = connection
        weakref.finalize(self, connection.close)  # programs of v1 often forget it
        self._closed = False
        self._last_request_id: int | None = None
        self._server_id: str | None = None

    @contextmanager
    def _request(self) -> Iterator[None]:
        """One request of v1, however many calls it takes."""
        self._check_open()
        number = next_number()
        self._last_request_id = None
        with self._numbered(number):
            try:
                yield
            except InferenceServerException:
                raise
            except Exception as error:
                raise InferenceServerException(
                    f"the server's answer cannot be understood: {type(error).__name__} {error}"
                ) from None
        self._last_request_id = number

    @contextmanager
    def _numbered(self, number: int) -> Iterator[None]:
        """Errors within tell the request's number."""
        try:
            yield
        except InferenceServerException as error:
            error.identify(number, self._server_id)
            raise

    def _call(self, method: str, timeout_s: float = NETWORK_TIMEOUT_S, **arguments: Any) -> Any:
        return self._connection.call(method, arguments, timeout_s)

    def _check_open(self) -> None:
        if self._closed:
            raise InferenceServerException(f"this {type(self).__name__} is closed; make a new one")
