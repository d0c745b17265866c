"""tritonclient's synchronous HTTP client, on connections of our own."""

from __future__ import annotations

import math
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES
from pytriton.client.http_infer import infer_request
from pytriton.client.http_message import HttpResponse, RequestWriter
from pytriton.client.http_socket import HttpSocket
from pytriton.client.reply import HttpReply
from pytriton.client.url import TritonUrl

__all__ = ["http_client_class"]


class Response:
    """A response as tritonclient's client looks at it, whose own ``infer`` is not used."""

    def __init__(self, response: HttpResponse) -> None:
        self.status_code = response.status
        self._response = response

    def read(self) -> bytes:
        """The body."""
        return self._response.understood()


@cache
def http_client_class(lib: Any) -> Any:
    """A subclass of ``InferenceServerClient`` that does not use gevent.

    gevent keeps two files open for each thread that has ever called it, and asks :func:`select.select` whether a
    connection is still good, which knows none beyond the 1,024th file of a process: each call makes a new one then.

    Args:
        lib: ``tritonclient.http``.
    """

    class HttpClient(lib.InferenceServerClient):  # type: ignore[misc]  # the base is known at run time alone
        """Sends one request after the other over a kept-alive connection; from any thread, but one at a time.

        Args:
            url: The server.
            tls: None does not encrypt.
            max_response_bytes: As of :class:`ResponseReader`.

        Attributes:
            deadline: For the next request, in :func:`time.monotonic` seconds; infinite unless it is set.
        """

        def __init__(
            self,
            url: TritonUrl,
            tls: ssl.SSLContext | None = None,
            max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
        ) -> None:
            # Not the base's, which would make a pool of greenlets; it sets this, too.
            self._verbose = False
            self._plugin = None
            self._url = url
            self._tls = tls
            self._max_response_bytes = max_response_bytes
            self._writer = RequestWriter(url)
            self._connection: HttpSocket | None = None
            self.deadline = math.inf

        def close(self) -> None:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

        def infer(self, model_name: str, inputs: list[Any], **options: Any) -> HttpReply:
            request = infer_request(lib, model_name, inputs, **options)
            response = self._request(b"POST", request.uri, request.headers, request.body)
            if response.status != 200:
                raise lib.InferenceServerException(response.refusal(), str(response.status))
            return HttpReply(response)

        def _get(self, request_uri: str, headers: Mapping[str, Any] | None, query_params: Any) -> Response:
            return Response(self._request(b"GET", request_uri, headers, b""))

        def _post(
            self, request_uri: str, request_body: bytes | str, headers: Mapping[str, Any] | None, query_params: Any
        ) -> Response:
            body = request_body.encode() if isinstance(request_body, str) else request_body
            return Response(self._request(b"POST", request_uri, headers, body))

        def _request(self, method: bytes, uri: str, headers: Mapping[str, Any] | None, body: bytes) -> HttpResponse:
            head = self._writer.head(method, uri, headers or {}, len(body))
            connection, self._connection = self._connection, None
            if connection is None or not connection.is_usable():
                if connection is not None:
                    connection.close()
                connection = HttpSocket(self._url, self._tls, self.deadline, self._max_response_bytes)
            try:
                response = connection.exchange(head, body, self.deadline)
            except BaseException:
                connection.close()  # else the answer would be that to the next request
                raise
            self._connection = connection
            return response

    return HttpClient
