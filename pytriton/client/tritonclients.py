"""tritonclient: its modules, its clients, and those of its members that are not public.

The second half of this module is all that the project uses of tritonclient's private members, where there is no public
way. They were tested with tritonclient 2.73.0. ``tests/unit/client/test_client_tritonclients.py`` fails when a new
version changes them.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client.arguments import check_timeout
from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import NETWORK_TIMEOUT_S, AsyncTransport, Call, Transport
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInvalidUrlError, PyTritonClientValueError
from pytriton.client.grpc_protocol import GrpcProtocol, channel_options, plain_answer
from pytriton.client.transport import ProtocolAdapter, time_limit
from pytriton.client.warnings import NotSupportedTimeoutWarning

__all__ = [
    "adopt_async_client",
    "adopt_client",
    "bare_client",
    "cuda_contents",
    "is_region",
    "load_async_lib",
    "load_lib",
    "region_fields",
]

_CUDA = "tritonclient.utils.cuda_shared_memory"

_THE_SERVER = "the server"  # whose address an adopted client does not tell


def load_lib(scheme: str) -> Any:
    """``tritonclient.http`` or ``tritonclient.grpc``, imported when a program needs it.

    Each costs 0.1 to 0.2 s to import, and each needs an extra of tritonclient that the other does not.
    """
    return importlib.import_module(f"tritonclient.{scheme}")


def load_async_lib(scheme: str) -> Any:
    """``tritonclient.http.aio`` or ``tritonclient.grpc.aio``, imported when a program needs it."""
    return importlib.import_module(f"tritonclient.{scheme}.aio")


def bare_client(lib: Any, url: TritonUrl, network_timeout_s: float | None) -> Any:
    """A bare ``InferenceServerClient``; the caller closes it.

    Args:
        lib: What :func:`load_lib` or :func:`load_async_lib` returns. HTTP clients for asyncio can only be made in an
            event loop.
        network_timeout_s: For HTTP, bounds connecting, and every wait for data, or for asyncio every call; None is
            tritonclient's default of 60. gRPC has no such setting, which is a :class:`NotSupportedTimeoutWarning`.

    Raises:
        PyTritonClientInvalidUrlError: The URL names a Unix socket, which tritonclient cannot use.
    """
    if url.socket:
        raise PyTritonClientInvalidUrlError(
            f"tritonclient cannot use a Unix socket such as {url.with_scheme}; use ModelClient, or a URL with host and "
            "port"
        )
    if url.scheme == "grpc":
        if network_timeout_s is not None:
            warnings.warn(
                "network_timeout_s has no effect on a gRPC client; pass client_timeout to each of its calls",
                NotSupportedTimeoutWarning,
                stacklevel=3,
            )
        return lib.InferenceServerClient(url.without_scheme, channel_args=channel_options(url.without_scheme))
    timeout_s = check_timeout("network_timeout_s", network_timeout_s, NETWORK_TIMEOUT_S)
    is_async = lib.__name__.endswith(".aio")
    names = ("conn_timeout",) if is_async else ("connection_timeout", "network_timeout")
    return lib.InferenceServerClient(url.without_scheme, **dict.fromkeys(names, timeout_s))


def adopt_client(client: Any, headers: Mapping[str, str]) -> Transport:
    """A transport for waiting and status on a client of the program, which closes it.

    Args:
        client: A ``tritonclient.http`` or ``tritonclient.grpc`` client.
    """
    # By the names of modules, so that the other protocol's module need not be imported.
    if any(module.startswith("tritonclient.grpc") for module in _modules(client)):
        return _AdoptedTransport(GrpcProtocol(_THE_SERVER, headers), client, limit=None)
    # geventhttpclient raises its parser's error for connections that end early and for peers that are no servers.
    broken = importlib.import_module("geventhttpclient.response").HTTPParseError
    protocol = ProtocolAdapter(_THE_SERVER, headers, connection_errors=(OSError, broken))
    return _AdoptedTransport(protocol, client, _gevent_limit)


def adopt_async_client(client: Any, headers: Mapping[str, str]) -> AsyncTransport:
    """A transport for waiting and status on a client of the program, which closes it.

    Args:
        client: A client of ``tritonclient.http.aio`` or ``tritonclient.grpc.aio``.

    Raises:
        PyTritonClientValueError: It is a synchronous client.
    """
    modules = _modules(client)
    if any(module.startswith("tritonclient.grpc.aio") for module in modules):
        return _AsyncAdoptedTransport(GrpcProtocol(_THE_SERVER, headers), client)
    if any(module.startswith("tritonclient.") for module in modules) and not any(".aio" in each for each in modules):
        raise PyTritonClientValueError(
            f"{type(client).__module__}.{type(client).__name__} is a synchronous client; pass one of "
            "tritonclient.http.aio or tritonclient.grpc.aio, or use the functions of pytriton.client.utils"
        )
    failed = importlib.import_module("aiohttp").ClientError
    return _AsyncAdoptedTransport(ProtocolAdapter(_THE_SERVER, headers, connection_errors=(OSError, failed)), client)


def _modules(client: Any) -> list[str]:
    return [kind.__module__ for kind in type(client).__mro__]


def _arguments(protocol: ProtocolAdapter, call: Call) -> dict[str, Any]:
    """Keyword arguments of the client's method."""
    if not isinstance(protocol, GrpcProtocol):
        return {**call.arguments, "headers": protocol.headers(call)}
    timeout_s = None if math.isinf(call.timeout_s) else call.timeout_s
    as_json = {"as_json": True} if call.method.startswith("get_") else {}
    return {**call.arguments, "headers": protocol.metadata(call), "client_timeout": timeout_s, **as_json}


def _answer(protocol: ProtocolAdapter, call: Call, answer: Any) -> Any:
    return plain_answer(call.method, answer) if isinstance(protocol, GrpcProtocol) else answer


class _AdoptedTransport:
    """Calls by the methods of a synchronous client, which it leaves open.

    Args:
        limit: A context manager that ends a call after so many seconds; None if the client does so itself.
    """

    def __init__(
        self, protocol: ProtocolAdapter, client: Any, limit: Callable[[float], AbstractContextManager[None]] | None
    ) -> None:
        self._protocol = protocol
        self._client = client
        self._limit = limit or nullcontext

    def call(self, call: Call) -> Any:
        """Perform one call."""
        try:
            with self._limit(call.timeout_s):
                answer = getattr(self._client, call.method)(**_arguments(self._protocol, call))
            return _answer(self._protocol, call, answer)
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._protocol.translate(call, error) from error

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def close(self) -> None:
        """Leave the client open."""


@contextmanager
def _gevent_limit(timeout_s: float) -> Iterator[None]:
    """Raise TimeoutError after so many seconds in code that waits by gevent."""
    limit_s = None if math.isinf(timeout_s) else timeout_s
    # gevent throws it into whatever waits for the socket; the library cleans up as after any OSError.
    expired = TimeoutError()
    with importlib.import_module("gevent").Timeout(limit_s, expired) as timer:
        try:
            yield
        except Exception as error:
            # tritonclient may have made an error of the server of it.
            if limit_s is not None and not timer.pending:
                raise expired from error
            raise


class _AsyncAdoptedTransport:
    """Calls by the methods of a client for asyncio, which it leaves open."""

    def __init__(self, protocol: ProtocolAdapter, client: Any) -> None:
        self._protocol = protocol
        self._client = client

    async def call(self, call: Call) -> Any:
        """Perform one call."""
        try:
            async with time_limit(call.timeout_s):
                answer = await getattr(self._client, call.method)(**_arguments(self._protocol, call))
            return _answer(self._protocol, call, answer)
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._protocol.translate(call, error) from error

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Leave the client open."""


# From here on, private members of tritonclient.


def is_region(handle: Any) -> bool:
    """Whether a handle is one of ``tritonclient.utils.shared_memory`` or ``cuda_shared_memory``."""
    return hasattr(handle, "_triton_shm_name")


def region_fields(handle: Any) -> dict[str, Any] | None:
    """What a server needs to know of the region of a handle.

    Args:
        handle: From ``create_shared_memory_region`` of ``tritonclient.utils.shared_memory`` or
            ``tritonclient.utils.cuda_shared_memory``.

    Returns:
        ``name``, ``byte_size`` and either ``key``, or ``raw_handle`` (in base64) and ``device_id``; None if it is
        something else.
    """
    if hasattr(handle, "_mpsm_handle"):
        return {"name": handle._triton_shm_name, "byte_size": handle._mpsm_handle.size, "key": handle._shm_key}
    if hasattr(handle, "_cuda_shm_handle"):
        return {
            "name": handle._triton_shm_name,
            "byte_size": handle._byte_size,
            "raw_handle": importlib.import_module(_CUDA).get_raw_handle(handle),
            "device_id": handle._device_id,
        }
    return None


def cuda_contents(handle: Any, dtype: Any, shape: Sequence[int]) -> NDArray[Any] | None:
    """A new array of what a region of a GPU's memory holds; None if the handle is not one of tritonclient for CUDA."""
    if not hasattr(handle, "_cuda_shm_handle"):
        return None
    found: NDArray[Any] = importlib.import_module(_CUDA).get_contents_as_numpy(handle, np.dtype(dtype), list(shape))
    return found
