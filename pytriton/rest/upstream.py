"""The server behind the app: calls to it over its network endpoints, or within this process."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from pytriton.client.aio import drive_async, open_async_transport
from pytriton.client.arguments import InferRequest
from pytriton.client.auth import TritonUrl
from pytriton.client.codec import Arrays
from pytriton.client.conversations import AsyncTransport, Call, Deadline
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInferenceServerError
from pytriton.client.http_messages import RequestWriter
from pytriton.client.http_pool import ConnectionPool
from pytriton.client.repository_index import repository_index
from pytriton.client.session import ModelSession
from pytriton.client.waiting import model_arguments
from pytriton.constants import ERROR_CODE_PARAMETER
from pytriton.exceptions import ErrorCode, PyTritonBadParameterError, PyTritonModelConfigError
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.costs import Unread
from pytriton.server.access import Rule
from pytriton.server.endpoints import ServerEndpoints

__all__ = ["Upstream", "upstream_of"]

CONTROL_TIMEOUT_S = 10.0
LOAD_TIMEOUT_S = 600.0
CODE = re.compile(r"\[([A-Z_]+)\] (.*)", re.DOTALL)


class StreamTransport(AsyncTransport, Protocol):
    """A transport that also streams."""

    def stream(self, call: Call) -> AsyncGenerator[Any, None]:
        """Send a request, and yield the responses; closing the generator cancels it."""


class LocalTransport(AsyncTransport, Protocol):
    """A transport to a server in this process, which keeps the responses that nobody has read."""

    def stream(self, call: Call, unread: Unread | None = None) -> AsyncGenerator[Any, None]:
        """As :meth:`StreamTransport.stream`.

        Args:
            unread: Counts these responses, and says when they are too many: the request is cancelled then.
        """


@runtime_checkable
class Inprocess(Protocol):
    """A server in this process: ``pytriton.inprocess.Triton``, whose package is above this one."""

    def async_transport(self) -> LocalTransport:
        """What calls it, also for streams."""

    async def read_metrics(self) -> str:
        """Its metrics."""


class Upstream:
    """Calls to a server, for any number of tasks.

    Args:
        transport: For all calls but streams.
        streams: For streams; None if the server can be reached over HTTP alone.
        texts: For streams of models that take and return texts alone; None if those use ``streams``, too.
        metrics: Reads the server's metrics.
        is_local: Whether the server is in this process. Errors of streams have their code then.
        url: For people; empty if the server is in this process.
        token: The server's access token, which operators have; None if there is none.
        rules: What the server asks for over HTTP, which the app has to ask for as well.
        is_encrypted: Whether ``url`` needs TLS.

    Attributes:
        url: As given.
        token: As given.
        rules: As given.
        is_encrypted: As given.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        streams: StreamTransport | None,
        texts: StreamTransport | None,
        metrics: Callable[[], Awaitable[str]],
        is_local: bool,
        url: str = "",
        token: str | None = None,
        rules: Sequence[Rule] = (),
        is_encrypted: bool = False,
    ) -> None:
        self.url, self.token, self.rules, self.is_encrypted = url, token, rules, is_encrypted
        self._transport = transport
        self._streams = streams
        self._texts = texts or streams
        self._metrics = metrics
        self._is_local = is_local

    def can_stream(self, *, texts: bool) -> bool:
        """Whether decoupled models can be called; ``texts`` as for :meth:`stream`."""
        return (self._texts if texts else self._streams) is not None

    async def infer(self, session: ModelSession, request: InferRequest) -> Arrays:
        """One inference; cancelling it cancels the request as far as the protocol can.

        Raises:
            PyTritonClientError: As the clients raise it.
        """
        return await drive_async(session.infer(request), self._transport)

    async def stream(
        self, session: ModelSession, request: InferRequest, *, texts: bool, unread: Unread | None = None
    ) -> AsyncGenerator[Arrays, None]:
        """The responses to one request; closing the generator cancels the request.

        Args:
            unread: Limits the responses that wait to be read, if the server is in this process.
            texts: Whether the model returns lists of texts in UTF-8 alone, without a batch axis. Over HTTP, those come
                at less than half of the cost of gRPC.

        Raises:
            PyTritonClientError: As the clients raise it.
        """
        transport = self._texts if texts else self._streams
        assert transport is not None
        if not self._is_local:
            request.parameters = {ERROR_CODE_PARAMETER: True}
        codec, call = await drive_async(session.stream(request), transport)
        try:
            streaming = (
                cast("LocalTransport", transport).stream(call, unread) if self._is_local else transport.stream(call)
            )
            async with aclosing(streaming) as responses:
                async for response in responses:
                    yield codec.decode(response, sample=request.sample)
        except PyTritonClientInferenceServerError as error:
            match = CODE.fullmatch(error.message)
            if match is None or match[1] not in ErrorCode.__members__:
                raise
            told = PyTritonClientInferenceServerError(match[2])
            told.code, told.details = ErrorCode(match[1]), error.details
            raise told from error

    async def model_config(self, name: str, version: str) -> TritonModelConfig:
        """The configuration of a model.

        Raises:
            PyTritonClientError: The server has no such model, or did not answer.
            PyTritonModelConfigError: It cannot be understood.
        """
        answer = await self._transport.call(
            Call("get_model_config", CONTROL_TIMEOUT_S, model_arguments(name, version or None))
        )
        try:
            return ModelConfigParser.from_dict(answer)
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
            raise PyTritonModelConfigError(
                f"the configuration of model {name!r} cannot be understood: {type(error).__name__} {error}"
            ) from error

    async def index(self) -> list[Mapping[str, str]]:
        """The entries of the server's repository index; raises as the clients."""
        return await drive_async(repository_index(Deadline(CONTROL_TIMEOUT_S)), self._transport)

    async def statistics(self) -> Mapping[str, Any]:
        """What the server has counted of its models, as its statistics endpoint tells it; raises as the clients."""
        answer = await self._transport.call(Call("get_inference_statistics", CONTROL_TIMEOUT_S, {"model_name": ""}))
        return cast("Mapping[str, Any]", answer)

    async def control(self, method: str, name: str) -> None:
        """``load_model`` or ``unload_model``; raises as the clients."""
        await self._transport.call(Call(method, LOAD_TIMEOUT_S, {"model_name": name}))

    async def is_live(self) -> bool:
        """Whether the server answers."""
        return await self._is("is_server_live")

    async def is_ready(self) -> bool:
        """Whether the server can serve all of its models."""
        return await self._is("is_server_ready")

    async def metrics(self) -> str:
        """The server's metrics as Prometheus reads them; empty where there are none.

        Raises:
            OSError: The page cannot be reached.
        """
        return await self._metrics()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()
        if self._streams is not None and self._streams is not self._transport:
            await self._streams.close()

    async def _is(self, question: str) -> bool:
        try:
            return bool(await self._transport.call(Call(question, CONTROL_TIMEOUT_S)))
        except PyTritonClientError:
            return False


def upstream_of(server: Any) -> Upstream:
    """The upstream of what :func:`pytriton.rest.create_app` takes.

    Raises:
        PyTritonBadParameterError: It is something else, or no endpoint for inference is open.
        PyTritonClientInvalidUrlError: It is a URL that cannot be understood.
    """
    if isinstance(server, Inprocess):
        transport = server.async_transport()
        return Upstream(transport, transport, None, server.read_metrics, is_local=True)
    if isinstance(server, str):
        server = ServerEndpoints.of_other(server)
    elif hasattr(server, "endpoints"):
        server = server.endpoints()
    if not isinstance(server, ServerEndpoints):
        raise PyTritonBadParameterError(
            f"create_app() takes a Triton, a RemoteTriton, a pytriton.inprocess.Triton, or the URL of a server, got "
            f"{server!r:.100}"
        )
    return _over_network(server)


def _over_network(server: ServerEndpoints) -> Upstream:
    http = server.http and open_async_transport(TritonUrl.from_url(server.http), server.http_headers)
    grpc: Any = server.grpc and open_async_transport(TritonUrl.from_url(server.grpc), server.grpc_headers)
    transport = http or grpc
    if not transport:
        raise PyTritonBadParameterError("the server has neither HTTP nor gRPC open, one of which the app needs")
    metrics = partial(_metrics_page, server.metrics)
    url = server.public or server.http or server.grpc or ""
    about = url, server.access_token, server.rules, server.is_encrypted
    return Upstream(transport, grpc or None, http or None, metrics, False, *about)


async def _metrics_page(url: str | None) -> str:
    if url is None:
        return ""
    address, _, path = url.rpartition("/")
    parsed = TritonUrl.from_url(address)
    pool = ConnectionPool(parsed, 1, None)
    try:
        response = await pool.exchange([RequestWriter(parsed).head(b"GET", path, {}, 0)], CONTROL_TIMEOUT_S)
    finally:
        await pool.close()
    return str(response.body, "utf-8")
