"""The ways to run the app, behind one synchronous client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import uvicorn
from fastapi import FastAPI

from pytriton.base import TritonBase
from pytriton.inprocess import Triton as InprocessTriton
from pytriton.rest import RestConfig, create_app
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S

T = TypeVar("T")

WAYS = ("own process", "mounted", "in process", "native")
SHORT = {"heartbeat_s": 0.1, "max_body_bytes": 2**20, "timeout_s": 20.0}


@dataclass
class RunningApp:
    """An app and what is behind it.

    Attributes:
        triton: The server.
        loop: Of the client.
        client: Of the app.
        streaming: Likewise, but sees each piece of a stream as it comes.
        way: One of ``WAYS``.
    """

    triton: TritonBase
    loop: asyncio.AbstractEventLoop
    client: httpx.AsyncClient
    streaming: httpx.AsyncClient
    way: str

    def run(self, make: Callable[[], Any]) -> Any:
        """Run a coroutine to its end."""
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result(DEADLINE_S)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Make a request."""
        return self.run(lambda: self.client.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        if json is not None:
            options["json"] = json
        return self.request("POST", path, **options)

    def predict(self, model: str, fields: Any, **options: Any) -> Any:
        """The JSON of a successful prediction."""
        response = self.post(f"/predict/{model}", fields, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def refusal(self, path: str, json: Any = None, **options: Any) -> tuple[int, dict[str, Any]]:
        """Status and error of a request that fails."""
        response = self.post(path, json, **options)
        assert response.headers["content-type"] == "application/json"
        assert "Traceback" not in response.text
        return response.status_code, response.json()["error"]


@contextmanager
def app_of(way: str, **options: Any) -> Iterator[RunningApp]:
    """An app that runs in one of the ways, without models, with options of RestConfig."""
    options = {**SHORT, **options}
    with ExitStack() as stack:
        loop = stack.enter_context(running_loop())
        if way == "in process":
            triton: TritonBase = stack.enter_context(InprocessTriton())
            app = create_app(triton, RestConfig(**options))
            plain: Any = httpx.ASGITransport(app)
            streaming: Any = StreamingTransport(app)
            base = "http://app"
        else:
            config = stack.enter_context(local_config())
            (port,) = stack.enter_context(reserved_ports(1))
            rest = RestConfig(port=port, address=LOCALHOST, **options)
            if way in ("native", "own process"):
                config.http_frontend = "native" if way == "native" else "triton"
                triton = stack.enter_context(Triton(config=config, rest=rest))
                base = f"http://{LOCALHOST}:{port}"
            else:
                triton = stack.enter_context(Triton(config=config))
                stack.enter_context(mounted(create_app(triton, rest), port))
                base = f"http://{LOCALHOST}:{port}/models"
            plain = streaming = None
        clients = [
            httpx.AsyncClient(transport=transport, base_url=base, timeout=DEADLINE_S, trust_env=False)
            for transport in (plain, streaming)
        ]
        try:
            yield RunningApp(triton, loop, *clients, way)
        finally:
            for client in clients:
                asyncio.run_coroutine_threadsafe(client.aclose(), loop).result(DEADLINE_S)


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def finish() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await loop.shutdown_asyncgens()

    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(finish(), loop).result(DEADLINE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def mounted(app: Any, port: int) -> Iterator[None]:
    """The app below ``/models`` of another application, which uvicorn serves on a thread."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with app.router.lifespan_context(app):
            yield

    site = FastAPI(lifespan=lifespan)
    site.mount("/models", app)
    server = uvicorn.Server(uvicorn.Config(site, LOCALHOST, port, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join()


class StreamingTransport(httpx.AsyncBaseTransport):
    """Calls an ASGI application; a response begins before its end, and closing it is a disconnect."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        messages: asyncio.Queue[Any] = asyncio.Queue()
        gone = asyncio.Event()
        received = False

        async def receive() -> Any:
            nonlocal received
            if not received:
                received = True
                return {"type": "http.request", "body": body}
            await gone.wait()
            return {"type": "http.disconnect"}

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.url.path,
            "raw_path": request.url.raw_path,
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("test", 1),
            "server": ("app", 80),
        }

        async def run() -> None:
            await self._app(scope, receive, messages.put)
            await messages.put(None)

        task = asyncio.ensure_future(run())
        try:
            start = await messages.get()
        except asyncio.CancelledError:
            gone.set()
            await task
            raise
        if start is None:
            raise httpx.RemoteProtocolError("no response")
        return httpx.Response(start["status"], headers=start["headers"], stream=_Pieces(messages, gone, task))


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, messages: asyncio.Queue[Any], gone: asyncio.Event, task: asyncio.Task[None]) -> None:
        self._messages = messages
        self._gone = gone
        self._task = task

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._messages.get()) is not None:
            yield message.get("body", b"")
            if not message.get("more_body"):
                return

    async def aclose(self) -> None:
        self._gone.set()
        await self._task
