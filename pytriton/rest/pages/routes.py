"""The routes of the pages.

=================================  ================================================================================
``GET /``                          the page, without data
``GET /pages/static/{file}``       its files
``GET /pages/about``               what this caller may do
``GET /pages/live``                the samples, as server-sent events
``GET /pages/history``             those of the last 15 minutes, or with ``?range=day`` of the last 24 hours
``GET /pages/models``              what each model takes and returns; with ``?missing=``, why there is none of that name
``GET /pages/batches``             batch sizes of a model, and the last requests
``GET /pages/workers``             the workers of all models
``GET /pages/log``                 the end of the log; needs the operator's token
``POST /pages/commands``           a command; needs the operator's token
``POST /pages/unlock``             the operator's token, for a code that ``pytriton serve`` has printed, once
``GET /embed/{model}``             a page for one model, without data, that other sites may show in a frame
=================================  ================================================================================

The table of :mod:`pytriton.security` says what else needs a token. The operator's token is the server's access token,
or that of the app where the server has none. A page sends it in the header ``Authorization`` alone, which a page of
another site cannot do.
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
from pytriton.model_config import LatencyTarget
from pytriton.rest.authorization import Access, has_token
from pytriton.rest.bodies import SSE, read_body
from pytriton.rest.config import RestConfig
from pytriton.rest.costs import charges_of
from pytriton.rest.errors import RestError, of_client
from pytriton.rest.examples import example_of
from pytriton.rest.host import Host, HostError
from pytriton.rest.models import Model, ModelDirectory
from pytriton.rest.openai.answers import kinds_of
from pytriton.rest.pages.live import Live
from pytriton.rest.permits import as_key_may_see, check_model, may_call
from pytriton.rest.upstream import Upstream

__all__ = ["Pages"]

STATIC = Path(__file__).with_name("static")
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}
PAGE, EMBEDDED = STATIC / "index.html", STATIC / "embed.html"
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
MOST_EXAMPLES = 8
COMMANDS: dict[str, tuple[str, ...]] = {
    "scale": ("count",),
    "restart": (),
    "load": (),
    "unload": (),
    "serve": ("version",),
    "record": ("action", "version", "recording"),
    "weigh": ("weights",),
}
REMOTE_COMMANDS = {"load": "load_model", "unload": "unload_model"}


class Pages:
    """Serves the pages and their data.

    Args:
        live: The samples.
        models: The models of the server.
        host: The process that runs the app; None if there is none, or it cannot be asked.
        access: Says which groups ask for a token.
    """

    def __init__(
        self,
        live: Live,
        models: ModelDirectory,
        upstream: Upstream,
        host: Host | None,
        config: RestConfig,
        access: Access,
    ) -> None:
        self._live = live
        self._models = models
        self._upstream = upstream
        self._host = host
        self._config = config
        self._access = access
        self._operator_token = upstream.token or config.access_token  # None refuses commands and the log

    def routes(self) -> list[Route]:
        """All routes."""
        return [
            Route("/", self._page),
            Route("/pages/static/{name}", file),
            Route("/pages/about", self._about),
            Route("/pages/live", self._events),
            Route("/pages/history", self._history),
            Route("/pages/models", self._described),
            Route("/pages/batches", self._batches),
            Route("/pages/workers", self._workers),
            Route("/pages/log", self._log),
            Route("/pages/commands", self._command, methods=["POST"]),
            Route("/pages/unlock", self._unlock, methods=["POST"]),
            Route("/embed/{model}", self._embedded),
        ]

    async def _page(self, request: Request) -> Response:
        """The page itself. What it shows depends on the part of the URL after ``#``, which stays in the browser."""
        return HTMLResponse(self._html(PAGE, request), headers={**SECURITY, "Cache-Control": "no-cache"})

    async def _embedded(self, request: Request) -> Response:
        """The page of one model, whose name it takes from its own address. It has nothing for operators."""
        headers = {**SECURITY, "Cache-Control": "no-cache"}
        if self._config.frames:
            del headers["X-Frame-Options"]
            ancestors = f"frame-ancestors {' '.join(self._config.frames)}"
            headers["Content-Security-Policy"] = POLICY.replace("frame-ancestors 'none'", ancestors)
        return HTMLResponse(self._html(EMBEDDED, request), headers=headers)

    def _html(self, path: Path, request: Request) -> str:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return path.read_text().replace("{root}", escape(root)).replace("{asks}", " ".join(self._access.asked()))

    async def _about(self, request: Request) -> Response:
        return _json(
            {
                "server": self._upstream.url,
                "operator": self._is_operator(request),
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

    async def _described(self, request: Request) -> Response:
        if (name := request.query_params.get("missing")) is not None:
            return _json({"reason": await self._reason(request, name)})
        models = await self._models.ready()
        return _json([_description(each) for each in models if may_call(request.scope, each.config.model_name)])

    async def _reason(self, request: Request, name: str) -> str:
        """Why a model cannot be called, with the name that may be meant; empty if it can."""
        try:
            check_model(request.scope, name)
            await self._models.find(name)
        except RestError as error:
            return str(as_key_may_see(request.scope, error).message)
        return ""

    async def _batches(self, request: Request) -> Response:
        model = request.query_params.get("model")
        if model is None:
            return _json({"reasons": self._live.all_reasons()})
        sizes = self._live.batches(model)
        return _json(
            {
                "sizes": [{"rows": rows, "count": count, "seconds": total} for rows, (count, total) in sizes],
                "reasons": self._live.reasons(model),
                "learned": [{"rows": rows, "seconds": seconds} for rows, seconds in self._live.learned(model)],
                "refused": self._live.refused(model),
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
        self._check_operator(request)
        body = await read_body(
            request.receive, headers, MOST_COMMAND_BYTES, self._config.timeout_s, charges_of(request.scope)
        )
        command, arguments = _parse_command(body)
        answer = None
        if self._host is not None:
            answer = await self._asked(command, **arguments)
        elif command in REMOTE_COMMANDS:
            try:
                await self._upstream.control(REMOTE_COMMANDS[command], arguments["model"])
            except PyTritonError as error:
                raise of_client(error) from error
        else:
            raise RestError(
                501, "UNSUPPORTED", f"{command!r} needs the process that bound the model, which is elsewhere"
            )
        return _json(answer or {})

    async def _unlock(self, request: Request) -> Response:
        headers = dict(request.scope["headers"])
        body = await read_body(
            request.receive, headers, MOST_COMMAND_BYTES, self._config.timeout_s, charges_of(request.scope)
        )
        try:
            code = orjson.loads(body)["code"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise RestError(400, "INVALID_REQUEST", 'give {"code": "..."}') from error
        has_code = self._operator_token is not None and self._host is not None and isinstance(code, str)
        if not has_code or not await self._asked("unlock", code=code):
            text = "this code was used before, or is none; pytriton serve prints the next one, on this machine alone"
            raise RestError(403, "FORBIDDEN", text)
        server = {"server": self._upstream.url, "tls": self._upstream.is_encrypted}
        return _json({"token": self._operator_token, **server})

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
            text = "this needs an access token, and neither the server nor the app has one"
            raise RestError(403, "FORBIDDEN", text)
        if not self._is_operator(request):
            message = "this needs the server's access token, as the header 'Authorization: Bearer <token>'"
            raise RestError(401, "UNAUTHORIZED", message, headers={"WWW-Authenticate": "Bearer"})


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
        text = "a command is an object with command and model, and more for some: count, version, weights, ..."
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
        "example": example_of(signature),
        "examples": [each["input"] for each in signature.examples[:MOST_EXAMPLES]],
        "batching": config.batching,
        "max_batch_size": config.max_batch_size if config.batching else 0,
        "queue_delay_us": getattr(batcher, "max_queue_delay_microseconds", None),
        "preferred": list(getattr(batcher, "preferred_batch_size", None) or ()),
        "latency_target": [batcher.ms, batcher.percentile] if isinstance(batcher, LatencyTarget) else None,
        "max_batch_cost": config.max_batch_cost,
        "steps": [
            {"model": each.model_name, "inputs": each.input_map, "outputs": each.output_map}
            for each in config.steps or ()
        ],
    }


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), headers=FRESH, media_type="application/json")
