"""What every request passes before its route, without a server."""

import asyncio
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from pytriton.rest import RestConfig
from pytriton.rest.authorization import Access, Guarded, GuardedRoute
from pytriton.rest.metrics import AppMetrics
from pytriton.rest.middleware import request_id, stack, trace_headers
from pytriton.rest.permits import KeyRing
from pytriton.rest.sites import Sites

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class App:
    """An application with the middleware of these options."""

    def __init__(self, rules=(), operator_token=None, **options):
        self.metrics = AppMetrics()
        self.entered, self.go = asyncio.Event(), asyncio.Event()
        config = RestConfig(**options)
        routes = [
            Route("/health/live", self.live),
            Route("/pages/about", self.fail),
            Route("/openapi.json", self.hold),
            Route("/predict/{model}", self.echo, methods=["POST"]),
        ]
        access = Access(config, KeyRing(config.keys()), rules, operator_token)
        self.app = Starlette(
            routes=[GuardedRoute(route, access, Sites(config)) for route in routes],
            middleware=stack(config, self.metrics),
        )
        self.app.state.models = SimpleNamespace(is_known="m".__eq__)
        self.app.router.default = Guarded(self.app.router.not_found, access, "metadata")
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://app")

    async def live(self, request):
        return PlainTextResponse("live")

    async def fail(self, request):
        raise RuntimeError("no")

    async def hold(self, request):
        self.entered.set()
        await self.go.wait()
        return PlainTextResponse("held")

    async def echo(self, request):
        body = await request.body()
        seen = {
            "id": request_id(request.scope),
            "trace": trace_headers(dict(request.scope["headers"])),
            "bytes": len(body),
        }
        return JSONResponse(seen | {"root": request.scope["root_path"], "path": request.scope["path"]})

    def post(self, path, content=b"", **headers):
        return asyncio.run(self.client.post(path, content=content, headers=headers))


def test_a_request_has_the_id_of_its_response():
    response = App().post("/predict/m", **{"X-Request-ID": "order-7"})
    assert response.headers["x-request-id"] == response.json()["id"] == "order-7"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "ä".encode()])
def test_an_id_that_cannot_be_sent_on_is_replaced(given):
    response = App().post("/predict/m", **{"X-Request-ID": given})
    assert len(response.headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("headers", "passed"),
    [
        ({"traceparent": TRACEPARENT, "tracestate": "a=1"}, {"traceparent": TRACEPARENT, "tracestate": "a=1"}),
        ({"traceparent": TRACEPARENT}, {"traceparent": TRACEPARENT}),
        ({"traceparent": "00-xyz", "tracestate": "a=1"}, {}),
        ({"tracestate": "a=1"}, {}),
    ],
)
def test_the_context_of_a_trace_is_passed_on_if_it_is_well_formed(headers, passed):
    assert App().post("/predict/m", **headers).json()["trace"] == passed


def test_requests_are_counted_with_route_and_model():
    app = App()
    app.post("/predict/m", b"12345")
    assert 'requests_total{route="/predict/{model}",model="m",status="200"} 1\n' in app.metrics.text()
    assert 'request_bytes_total{route="/predict/{model}",model="m"} 5\n' in app.metrics.text()


def test_a_failure_counts_as_500_and_an_unknown_route_has_no_name():
    app = App()
    assert app.post("/predict").status_code == 404
    assert asyncio.run(app.client.get("/pages/about")).status_code == 500
    assert 'requests_total{route="/pages/about",model="",status="500"} 1\n' in app.metrics.text()
    assert 'requests_total{route="",model="",status="404"} 1\n' in app.metrics.text()
    assert "requests_in_progress 0\n" in app.metrics.text()


@pytest.mark.parametrize("token", ["wrong", "", "sécret"])
def test_the_token_is_compared(token):
    app = App(access_token="secret")
    assert app.post("/predict/m", Authorization=f"Bearer {token}".encode()).status_code == 401
    assert app.post("/predict/m", Authorization="bearer secret").status_code == 200
    assert asyncio.run(app.client.get("/health/live")).status_code == 200


def test_a_refused_request_is_counted_without_its_path():
    app = App(access_token="secret")
    app.post("/predict/m")
    assert 'requests_total{route="",model="",status="401"} 1\n' in app.metrics.text()


def test_requests_beyond_the_limit_are_refused_and_none_is_forgotten():
    async def run():
        app = App(max_requests=1)
        async with app.client:
            held = asyncio.ensure_future(app.client.get("/openapi.json"))
            await app.entered.wait()
            refused = await app.client.post("/predict/m")
            live = await app.client.get("/health/live")
            app.go.set()
            first = await held
            after = await app.client.post("/predict/m")
            failed = await app.client.get("/pages/about")
            last = await app.client.post("/predict/m")
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["message"].startswith("1 requests are in progress")
        return [each.status_code for each in (refused, live, first, after, failed, last)]

    assert asyncio.run(run()) == [429, 200, 200, 200, 500, 200]


def test_a_cancelled_request_counts_as_499():
    async def run():
        app = App()
        held = asyncio.ensure_future(app.client.get("/openapi.json"))
        await app.entered.wait()
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        await app.client.aclose()
        return app.metrics.text()

    assert 'requests_total{route="/openapi.json",model="",status="499"} 1\n' in asyncio.run(run())


@pytest.mark.parametrize("path", ["/models/predict/m", "/predict/m"])
def test_a_root_path_is_found_whether_or_not_the_proxy_removes_it(path):
    seen = App(root_path="/models").post(path).json()
    assert (seen["root"], seen["path"]) == ("/models", "/models/predict/m")


def test_a_root_path_is_not_mistaken_for_the_beginning_of_a_name():
    assert App(root_path="/pred").post("/predict/m").json()["path"] == "/pred/predict/m"


def test_health_is_open_below_a_root_path_only_where_it_is():
    app = App(root_path="/models", access_token="secret")
    assert asyncio.run(app.client.get("/models/health/live")).status_code == 200
    assert app.post("/models/healthy").status_code == 401


def test_a_log_line_cannot_be_forged(caplog):
    caplog.set_level("INFO", "pytriton.rest.access")
    app = App(access_log=True)
    app.post("/predict/a%0Ab%22%1B[31m", **{"X-Request-ID": "order-7"})
    (line,) = [record.getMessage() for record in caplog.records]
    assert r' POST "/predict/a\nb\"\u001b[31m" 200 ' in line
    assert line.endswith(" ms order-7")
