"""Streams of responses over gRPC, for clients in an event loop."""

from __future__ import annotations

import asyncio
import importlib
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

from pytriton.client.aio_transport import AsyncGrpcTransport, Lease, grpc_lease
from pytriton.client.dialect import GrpcDialect
from pytriton.client.exceptions import PyTritonClientError
from pytriton.client.flows import Call
from pytriton.client.reply import GrpcReply, check_request_id
from pytriton.client.tls import Tls
from pytriton.client.transport import grpc_dialect
from pytriton.client.url import TritonUrl

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["AsyncGrpcStreamTransport", "open_async_stream_transport"]


def open_async_stream_transport(
    url: TritonUrl,
    lib: Any,
    headers: Mapping[str, str],
    tls: Tls | None,
    max_response_bytes: int | None,
) -> AsyncGrpcStreamTransport:
    """A transport that connects at its first call; the arguments are those of :func:`open_async_transport`."""
    lease = grpc_lease(url, lib, tls, max_response_bytes)
    return AsyncGrpcStreamTransport(grpc_dialect(url, lib, headers, tls), lease, lib)


class AsyncGrpcStreamTransport(AsyncGrpcTransport):
    """gRPC over one channel, with a stream for each request that has several responses.

    Args:
        dialect: How calls are put.
        connect: Leases a ``tritonclient.grpc.aio.InferenceServerClient``.
        lib: The tritonclient module.
    """

    def __init__(self, dialect: GrpcDialect, connect: Callable[[], Lease], lib: Any) -> None:
        super().__init__(dialect, connect)
        self._lib = lib
        self._rpc_error = importlib.import_module("grpc").RpcError

    async def stream(self, call: Call) -> AsyncGenerator[GrpcReply, None]:
        """Send a request; the responses to it, as they come.

        The call's timeout bounds the wait for each response. Closing the generator cancels the request.

        Raises:
            PyTritonClientError: A response did not come in time, it is an error, or the connection failed.
        """
        connection = await self._begin()
        arguments = self._dialect.arguments(call)
        responses = connection.client.stream_infer(
            _single(arguments),
            headers=arguments.pop("headers"),
            compression_algorithm=arguments.pop("compression_algorithm", None),
        )
        try:
            while True:
                async with timeout(None if math.isinf(call.timeout_s) else call.timeout_s):
                    try:
                        result, error = await anext(responses)
                    except StopAsyncIteration:
                        return
                if error is not None:
                    raise error
                response = result.get_response()
                check_request_id(response, call.arguments["request_id"])
                yield GrpcReply(response)
        except asyncio.TimeoutError as error:  # in Python 3.10 it is not the built-in TimeoutError
            raise self._dialect.timeout(call) from error
        except self._rpc_error as error:
            # As tritonclient does for all other calls.
            failed = self._lib.InferenceServerException(error.details(), str(error.code()))
            raise self._failure(connection, call, failed) from error
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._failure(connection, call, error) from error
        finally:
            responses.cancel()
            await self._end(connection)


async def _single(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    # The stream ends after the last response to the last request.
    yield request
