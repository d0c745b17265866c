"""``/mcp``: the typed models as tools of the Model Context Protocol, by the server of the package ``mcp``."""

from __future__ import annotations

import importlib
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import orjson
from starlette.routing import Route

from pytriton.llm.requests import MOST_CONTAINERS, MOST_VALUES
from pytriton.rest.bodies import Headers, read_body
from pytriton.rest.config import RestConfig
from pytriton.rest.costs import SMALL_BYTES, charges_of
from pytriton.rest.errors import RestError, send_error
from pytriton.rest.inference import CallDetails, Inference, Question, Served
from pytriton.rest.json_arrays import dumps, parse
from pytriton.rest.middleware import request_id, trace_headers
from pytriton.rest.models import Model
from pytriton.rest.openapi import schemas_of
from pytriton.rest.permits import as_key_may_see, check_model, may_call
from pytriton.rest.predict import counted, reserving
from pytriton.rest.tokens import Spending
from pytriton.rest.waits import ClientDisconnectedError, Receive
from pytriton.signature.json_texts import size_of
from pytriton.signature.problems import ValueMismatchError
from pytriton.signature.schema import Signature

__all__ = ["Tools", "mcp_tools"]

ROUTE = "/mcp"
COPIES = 3  # of a message's objects: as it is parsed, as it is checked, and as the arguments of a tool
RESULTS = "results"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # that clients allow in the names of tools


@dataclass(frozen=True)
class Tools:
    """What the application needs of this module.

    Attributes:
        routes: Of the application; none without ``RestConfig(mcp=True)``.
        running: Runs the server of the protocol.
    """

    routes: list[Route]
    running: Any


def mcp_tools(inference: Inference, config: RestConfig) -> Tools:
    """The tools of an app.

    Raises:
        ImportError: ``config`` asks for them, and mcp is not installed.
    """
    if not config.mcp:
        return Tools([], _nothing)
    route = McpRoute(inference, config)
    return Tools([Route(ROUTE, route, methods=["POST"])], route.running)


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


class McpRoute:
    """``/mcp`` as an ASGI application. Each request stands for itself; there are no sessions."""

    def __init__(self, inference: Inference, config: RestConfig) -> None:
        try:
            lowlevel = importlib.import_module("mcp.server.lowlevel.server")
            self._managers = importlib.import_module("mcp.server.streamable_http_manager")
            self._types = importlib.import_module("mcp.types")
        except ModuleNotFoundError as error:
            raise ImportError("RestConfig(mcp=True) needs mcp; install it with: pip install 'pytriton[mcp]'") from error
        self._inference = inference
        self._config = config
        self._server = lowlevel.Server(
            "pytriton", version=version("pytriton"), on_list_tools=self._list, on_call_tool=self._call
        )
        self._manager: Any = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests within this block."""
        self._manager = self._managers.StreamableHTTPSessionManager(
            self._server, stateless=True, max_request_body_size=self._config.max_body_bytes
        )
        context: AbstractAsyncContextManager[None] = self._manager.run()
        async with context:
            yield
        self._manager = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        try:
            if self._manager is None:
                raise RestError(503, "UNAVAILABLE", "the application's lifespan has not begun, which /mcp needs")
            if scope["method"] == "POST":
                receive = await self._received(scope, headers, receive)
        except ClientDisconnectedError:
            return
        except RestError as error:
            return await send_error(send, error)
        await self._manager.handle_request(scope, receive, send)

    async def _received(self, scope: Any, headers: Headers, receive: Receive) -> Receive:
        """What brings the body of a message, which the package parses, once its size is known.

        Raises:
            RestError: It has too many values, or there is no memory for it.
        """
        charges = charges_of(scope)
        body = await read_body(receive, headers, self._config.max_body_bytes, self._config.timeout_s, charges)
        scope["headers"] = [
            each for each in scope["headers"] if each[0] not in (b"content-encoding", b"content-length")
        ]
        size = await charges.run(len(body), partial(size_of, body))
        if size.containers > MOST_CONTAINERS or size.values > MOST_VALUES:
            text = f"a message may have {MOST_CONTAINERS} lists and objects, and {MOST_VALUES} values"
            raise RestError(413, "BODY_TOO_LARGE", text)
        if len(body) >= SMALL_BYTES:
            charges.charge(COPIES * size.tree_bytes)
        messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

        async def received() -> Any:
            return messages.pop() if messages else await receive()

        return received

    async def _list(self, context: Any, _: Any) -> Any:
        models = [model for model in await self._inference.models.ready() if _is_tool(model)]
        scope = context.request.scope
        tools = [self._tool(model) for model in models if may_call(scope, model.config.model_name)]
        return self._types.ListToolsResult(tools=tools)

    def _tool(self, model: Model) -> Any:
        taken, given = schemas_of(model)
        if model.config.decoupled:
            definitions = {"$defs": given.pop("$defs")} if "$defs" in given else {}
            rows = {"type": "array", "items": given}
            given = {"type": "object", "properties": {RESULTS: rows}, "required": [RESULTS], **definitions}
        return self._types.Tool(
            name=model.config.model_name,
            description=model.signature.description or f"The model {model.config.model_name}.",
            input_schema=taken,
            output_schema=given,
        )

    async def _call(self, context: Any, params: Any) -> Any:
        """Call a model. What is wrong with the call is told in the result, for the language model to read."""
        scope = context.request.scope
        try:
            check_model(scope, params.name)
            scope["state"]["model"] = params.name
            result = await self._result(context, params)
        except RestError as error:
            return self._answer(as_key_may_see(scope, error).encoded().decode(), None, is_error=True)
        return self._answer(result.decode(), orjson.loads(result), is_error=False)

    def _answer(self, text: str, value: Any, *, is_error: bool) -> Any:
        content = [self._types.TextContent(type="text", text=text)]
        return self._types.CallToolResult(content=content, structured_content=value, is_error=is_error)

    async def _result(self, context: Any, params: Any) -> bytes:
        scope = context.request.scope
        body = orjson.dumps(params.arguments or {})

        async def read(served: Served) -> Question:
            if not _is_tool(served.model):
                raise RestError(404, "NOT_FOUND", f"there is no tool {params.name!r}")
            return Question([served.converter.row(parse(body), body.count(b"["))])

        details = CallDetails(request_id(scope), trace_headers(dict(scope["headers"])), charges_of(scope))
        with Spending.of(scope) as spending:
            served, _, answer = await self._inference.answer(params.name, "", reserving(read, spending), details)
            try:
                if not isinstance(answer, AsyncGenerator):
                    spending.count_rows(answer)
                    return dumps(served.converter.result(answer[0]))
                results = []
                async with aclosing(counted(answer, spending)) as responses:
                    async for outputs in responses:
                        result = served.converter.result(outputs)
                        results.append(result)
                        await context.session.report_progress(len(results), None, dumps(result).decode())
                return dumps({RESULTS: results})
            except ValueMismatchError as error:
                raise RestError(500, "INTERNAL", f"an output is not what its model says: {error}") from error


def _is_tool(model: Model) -> bool:
    """Whether a model has a typed function, and a name that clients allow."""
    return Signature.of(model.config) is not None and NAME.fullmatch(model.config.model_name) is not None
