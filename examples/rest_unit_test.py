"""Unit tests of a service without any network: the server is in this process, and httpx calls the app directly.

It needs the extra `rest`, httpx and pytest. Run it with `pytest examples/rest_unit_test.py`.
"""

import asyncio

import httpx
import pytest

from pytriton.inprocess import Triton
from pytriton.rest import create_app


def double(x: int) -> int:
    """Twice a number."""
    return 2 * x


@pytest.fixture(scope="module")
def triton():
    with Triton() as triton:
        triton.bind(double)
        yield triton


def post(triton, path, content):
    async def call():
        transport = httpx.ASGITransport(create_app(triton))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(path, json=content)

    return asyncio.run(call())


def test_a_number_is_doubled(triton):
    answer = post(triton, "/predict/double", {"x": 21})
    assert answer.status_code == 200
    assert answer.json() == {"result": 42}


def test_text_is_refused_with_its_path(triton):
    answer = post(triton, "/predict/double", {"x": "21"})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["path"] == ["x"]
