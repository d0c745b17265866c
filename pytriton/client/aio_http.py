"""tritonclient's HTTP client for asyncio, on connections of our own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pytriton.client.http_infer import infer_request
from pytriton.client.http_message import HttpResponse
from pytriton.client.http_pool import HttpPool
from pytriton.client.reply import HttpReply

__all__ = ["http_client_class"]


class Response:
    """A response as tritonclient's client looks at it, whose own ``infer`` is not used."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status
        self._response = response

    async def read(self) -> bytes:
        """The body."""
        return self._response.understood()


@cache
def http_client_class(lib: Any) -> Any:
    """A subclass of ``InferenceServerClient`` that does not use aiohttp, which takes half of the time of a call.

    Args:
        lib: ``tritonclient.http.aio``.
    """

    class HttpClient(lib.InferenceServerClient):  # type: ignore[misc]  # the base is known at run time alone
        """Sends requests through a pool.

        Args:
            pool: Of connections; closed with the client.
        """

        def __init__(self, pool: HttpPool) -> None:
            # Not the base's, which would open a session of aiohttp; it sets this, too.
            self._verbose = False
            self._plugin = None
            self._pool = pool

        async def close(self) -> None:
            await self._pool.close()

        async def infer(self, model_name: str, inputs: list[Any], **options: Any) -> HttpReply:
            request = infer_request(lib, model_name, inputs, **options)
            response = await self._pool.request(b"POST", request.uri, request.headers, request.body)
            if response.status != 200:
                raise lib.InferenceServerException(response.refusal(), str(response.status))
            return HttpReply(response)

        async def _get(self, request_uri: str, headers: Mapping[str, Any], query_params: Any) -> Response:
            return Response(await self._pool.request(b"GET", request_uri, headers, b""))

        async def _post(
            self, request_uri: str, request_body: bytes | str, headers: Mapping[str, Any], query_params: Any
        ) -> Response:
            body = request_body.encode() if isinstance(request_body, str) else request_body
            return Response(await self._pool.request(b"POST", request_uri, headers, body))

    return HttpClient
