"""The routes of the pages.

=================================  ================================================================================
``GET /``                          the page, without data
``GET /pages/static/{file}``       its files
``GET /pages/about``               what this caller may do; needs no token
``GET /pages/live``                the samples, as server-sent events
``GET /pages/history``             those of the last 15 minutes, or with ``?range=day`` of the last 24 hours
``GET /pages/models``              what each model takes and returns
``GET /pages/batches``             batch sizes of a model, and the last requests
``GET /pages/workers``             the workers of all models
``GET /pages/log``                 the end of the log; needs the operator's token
``POST /pages/commands``           a command; needs the operator's token
=================================  ================================================================================

The operator's token is the server's access token, or that of the front where the server has none. A page sends it in
the header ``Authorization`` alone, which a page of another site cannot do.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from pytriton.exceptions import PyTritonError
from pytriton.llm.kinds import Kind
from pytriton.rest.bodies import SSE, read_body
from pytriton.rest.config import RestConfig
from pytriton.rest.errors import RestError, of_client
from pytriton.rest.examples import example_of
from pytriton.rest.host import Host, HostError
from pytriton.rest.middleware import bearer, has_token
from pytriton.rest.models import Model, ModelDirectory
from pytriton.rest.openai.answers import kinds_of
from pytriton.rest.pages.live import Live
from pytriton.rest.permits import KeyRing
from pytriton.rest.predict import refuse_other_sites
from pytriton.rest.upstream import Upstream

__all__ = ["Pages"]

STATIC = Path(__file__).with_name("static")
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}
PAGE = STATIC / "index.html"
POLICY = "; ".join(
    [
        "default-src 'none'",
        "base-uri 'none'",
        "connect-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "img-src 'self' data: blob:",
        "script-src 'self'",
        "style-src 'self'",
    ]
)
SECURITY = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
FRESH = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
MOST_COMMAND_BYTES = 4096
COMMANDS: dict[str, tuple[str, ...]] = {
    "scale": ("count",),
    "restart": (),
    "load": (),
    "unload": (),
    "serve": ("version",),
}
REMOTE_COMMANDS = {"load": "load_model", "unload": "unload_model"}


class Pages:
    """Serves the pages and their data.

    Args:
        live: The samples.
        models: The models of the server.
        upstream: The server.
        host: The process that runs the front; None if there is none, or it cannot be asked.
        config: Options of the front.
        keys: The API keys, which open the data, but are not for operators.
    """

    def __init__(
        self,
        live: Live,
        models: ModelDirectory,
        upstream: Upstream,
        host: Host | None,
        config: RestConfig,
        keys: KeyRing,
    ) -> None:
        self._live = live
        self._models = models
        self._upstream = upstream
        self._host = host
        self._config = config
        self._keys = keys
        self._asks_token = config.access_token is not None or config.api_keys is not None
        self._operator_token = upstream.token or config.access_token  # None refuses commands and the log

    def routes(self) -> list[Route]:
        """All routes."""
        return [
            Route("/", page),
            Route("/pages/static/{name}", file),
            Route("/pages/about", self._about),
            Route("/pages/live", self._events),
            Route("/pages/history", self._history),
            Route("/pages/models", self._described),
            Route("/pages/batches", self._batches),
            Route("/pages/workers", self._workers),
            Route("/pages/log", self._log),
            Route("/pages/commands", self._command, methods=["POST"]),
        ]

    async def _about(self, request: Request) -> Response:
        headers, token, is_operator = request.scope["headers"], self._config.access_token, self._is_operator(request)
        has_key = self._keys.find(bearer(headers)) is not None
        has_access = is_operator or has_key or (token is not None and has_token(headers, [token]))
        is_allowed = has_access or not self._asks_token
        return _json(
            {
                "server": self._upstream.url if is_allowed else "",
                "allowed": is_allowed,
                "operator": is_operator,
                "asksToken": self._asks_token,
                "hasOperatorToken": self._operator_token is not None,
                "hasHost": self._host is not None,
            }
        )

    async def _events(self, _: Request) -> Response:
        headers = {**FRESH, "X-Accel-Buffering": "no"}  # nginx would collect the events
        return StreamingResponse(self._live.events(), headers=headers, media_type=SSE)

    async def _history(self, request: Request) -> Response:
        by_minute = request.query_params.get("range") == "day"
        histories = {"models": self._live.models, "processes": self._live.processes}
        return _json({name: each.read(by_minute=by_minute) for name, each in histories.items()})

    async def _described(self, _: Request) -> Response:
        return _json([_description(model) for model in await self._models.ready()])

    async def _batches(self, request: Request) -> Response:
        model = request.query_params.get("model", "")
        sizes = self._live.batches(model)
        return _json(
            {
                "sizes": [{"rows": rows, "count": count, "seconds": total} for rows, (count, total) in sizes],
                "requests": self._live.recent(model),
            }
        )

    async def _workers(self, request: Request) -> Response:
        if self._host is None:
            return _json({"workers": None})
        workers: list[dict[str, Any]] = await self._asked("workers")
        if not self._is_operator(request):  # an error may tell values of requests
            workers = [{**each, "last_error": None if each["last_error"] else ""} for each in workers]
        return _json({"workers": workers})

    async def _log(self, request: Request) -> Response:
        self._check_operator(request)
        after = request.query_params.get("after", "0")
        if self._host is None:
            return _json({"records": None})
        return _json({"records": await self._asked("log", after=int(after) if after.isdecimal() else 0)})

    async def _command(self, request: Request) -> Response:
        headers = dict(request.scope["headers"])
        refuse_other_sites(request.scope, headers, self._config)
        self._check_operator(request)
        body = await read_body(request.receive, headers, MOST_COMMAND_BYTES, self._config.timeout_s)
        command, arguments = _parse_command(body)
        if self._host is not None:
            await self._asked(command, **arguments)
        elif command in REMOTE_COMMANDS:
            try:
                await self._upstream.control(REMOTE_COMMANDS[command], arguments["model"])
            except PyTritonError as error:
                raise of_client(error) from error
        else:
            raise RestError(
                501, "UNSUPPORTED", f"{command!r} needs the process that bound the model, which is elsewhere"
            )
        return _json({})

    async def _asked(self, question: str, **arguments: Any) -> Any:
        assert self._host is not None
        try:
            return await self._host.ask(question, **arguments)
        except HostError as error:
            raise RestError(409, "REFUSED", str(error)) from error

    def _is_operator(self, request: Request) -> bool:
        return self._operator_token is not None and has_token(request.scope["headers"], [self._operator_token])

    def _check_operator(self, request: Request) -> None:
        if self._operator_token is None:
            text = "this needs an access token, and neither the server nor the front has one"
            raise RestError(403, "FORBIDDEN", text)
        if not self._is_operator(request):
            message = "this needs the server's access token, as the header 'Authorization: Bearer <token>'"
            raise RestError(401, "UNAUTHORIZED", message, headers={"WWW-Authenticate": "Bearer"})


async def page(request: Request) -> Response:
    """The page itself. What it shows depends on the part of the URL after ``#``, which stays in the browser."""
    root = str(request.scope.get("root_path", "")).rstrip("/")
    text = PAGE.read_text().replace("{root}", escape(root))
    return HTMLResponse(text, headers={**SECURITY, "Cache-Control": "no-cache"})


async def file(request: Request) -> Response:
    """A file of the page."""
    path = FILES.get(request.path_params["name"])
    if path is None:
        raise HTTPException(404, "no such file")
    return FileResponse(path, headers={**SECURITY, "Cache-Control": "no-cache"}, media_type=TYPES[path.suffix])


def _parse_command(body: bytes) -> tuple[str, dict[str, Any]]:
    """The command of a body such as ``{"command": "scale", "model": "sentiment", "count": 2}``."""
    try:
        given = orjson.loads(body)
        command, model = given["command"], given["model"]
        arguments = {"model": model, **{name: given[name] for name in COMMANDS.get(command, ())}}
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        text = "a command is an object with command and model, count of 'scale', and version of 'serve'"
        raise RestError(400, "INVALID_REQUEST", text) from error
    if command not in COMMANDS or not isinstance(model, str):
        raise RestError(400, "INVALID_REQUEST", f"there is no command {command!r:.100}")
    if not isinstance(arguments.get("version"), int | None):
        raise RestError(400, "INVALID_REQUEST", "version is a number, or null for those that the program says")
    return command, arguments


def _description(model: Model) -> dict[str, Any]:
    signature, config = model.signature, model.config
    kind, batcher = Kind.of(config), config.batcher
    return {
        "name": config.model_name,
        "description": signature.description if kind is None else kind.description,
        "inputs": signature.inputs,
        "required": signature.required,
        "outputs": signature.outputs,
        "definitions": signature.definitions,
        "typed": config.backend_parameters.get("pytriton.signature") is not None,
        "result": signature.result,
        "streams": config.decoupled,
        "kinds": kinds_of(config),
        "example": example_of(model),
        "batching": config.batching,
        "max_batch_size": config.max_batch_size if config.batching else 0,
        "queue_delay_us": getattr(batcher, "max_queue_delay_microseconds", None),
        "preferred": list(getattr(batcher, "preferred_batch_size", None) or ()),
    }


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), headers=FRESH, media_type="application/json")
