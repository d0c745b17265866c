"""What the app says when the server behind it cannot be reached, or has only a part of its endpoints."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.rest import RestConfig, create_app
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.own_server import address
from tests.server.ports import reserved_ports

pytestmark = pytest.mark.either_proxy


def shout(text: str) -> str:
    return text.upper()


def tell(text: str) -> Iterator[str]:
    yield text


def slow(text: str) -> str:
    import time

    time.sleep(1)
    return text


def post(app, path, fields):
    async def call():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
            return await client.post(path, json=fields)

    return asyncio.run(call())


def test_a_server_that_is_not_there_is_unavailable():
    with reserved_ports(1) as (port,):
        app = create_app(f"http://{LOCALHOST}:{port}")
        response = post(app, "/predict/shout", {"text": "a"})
        assert (response.status_code, response.json()["error"]["code"]) == (503, "UNAVAILABLE")
        assert "retry-after" in response.headers


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_url_of_one_protocol_is_enough(protocol):
    with local_config() as config, Triton(config=config) as triton:
        for function in (shout, tell, slow):
            triton.bind(function)
        app = create_app(address(config, protocol), RestConfig(timeout_s=0.5))
        assert post(app, "/predict/shout", {"text": "a"}).json() == {"result": "A"}
        response = post(app, "/predict/tell", {"text": "a"})
        if protocol == "grpc":
            assert response.text == '{"result":"a"}\n'
        else:
            assert (response.status_code, response.json()["error"]["code"]) == (501, "UNSUPPORTED")
        response = post(app, "/predict/slow", {"text": "a"})
        assert (response.status_code, response.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")


def test_something_else_than_a_server_is_refused():
    with pytest.raises(PyTritonBadParameterError, match="create_app"):
        create_app(7)


def test_a_body_that_stalls_is_late():
    messages = []

    async def call():
        app = create_app(f"http://{LOCALHOST}:1", RestConfig(timeout_s=0.05))
        pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}])

        async def receive():
            return next(pieces, None) or await asyncio.Event().wait()

        async def send(message):
            messages.append(message)

        scope = {"type": "http", "method": "POST", "path": "/predict/m", "query_string": b"", "headers": []}
        await app(scope, receive, send)

    asyncio.run(call())
    assert messages[0]["status"] == 408
