"""``/mcp`` through the client of the package mcp."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from pytriton.exceptions import PyTritonRequestError
from pytriton.llm import ChatModel
from pytriton.rest import ApiKey, RestConfig
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.openai.models import parrot
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

DIGEST = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"  # of "key"
COUNTED = {tool: hashlib.sha256(f"key of {tool}".encode()).hexdigest() for tool in ("say", "say_twice")}


@dataclass
class Word:
    text: str
    length: int


class Order(BaseModel):
    item: str
    count: int = Field(1, ge=1)


def longest(text: str) -> Word:
    """Find the longest word."""
    word = max(text.split(), key=len)
    return Word(word, len(word))


def price(order: Order, rebate: Annotated[float, Field(ge=0, le=1)] = 0.0) -> float:
    if order.item == "nothing":
        raise PyTritonRequestError("nothing has no price")
    return 10 * order.count * (1 - rebate)


def tell(prompt: str, words: int = 3) -> Iterator[str]:
    """Tell a story."""
    for number in range(words):
        yield f"{prompt} {number}"


@dataclass
class Said:
    text_output: str


def say(text_input: str) -> Said:
    """Generate a text."""
    return Said(text_input)


def say_twice(text_input: str) -> Iterator[Said]:
    """Generate texts."""
    yield Said(text_input)
    yield Said(text_input)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with reserved_ports(1) as (port,), local_config() as config:
        keys = [
            ApiKey(name="some", sha256=DIGEST, models=["longest"]),
            *(ApiKey(name=name, sha256=digest, tokens_per_minute=6) for name, digest in COUNTED.items()),
        ]
        rest = RestConfig(port=port, address=LOCALHOST, mcp=True, access_token="root", api_keys=keys)
        with Triton(config=config, rest=rest) as triton:
            for function in (longest, price, tell, say, say_twice):
                triton.bind(function)
            triton.bind(ChatModel(parrot))
            yield f"http://{LOCALHOST}:{port}"


def use(url: str, work: Callable[[Client], Awaitable[Any]], token: str = "root") -> Any:
    async def main() -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=DEADLINE_S) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            return await asyncio.wait_for(work(client), DEADLINE_S)

    return asyncio.run(main())


def test_typed_models_are_tools_with_schemas(url):
    async def names(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in use(url, names)}
    assert tools.keys() == {"longest", "price", "tell", "say", "say_twice"}
    assert tools["longest"].description == "Find the longest word."
    assert tools["longest"].input_schema["required"] == ["text"]
    assert tools["longest"].output_schema["properties"].keys() == {"text", "length"}
    order = tools["price"].input_schema["properties"]["order"]["$ref"]
    definition = tools["price"].input_schema["$defs"][order.rpartition("/")[2]]
    assert definition["properties"]["count"]["minimum"] == 1


def test_a_tool_answers_with_text_and_structure(url):
    async def call(client: Client) -> Any:
        return await client.call_tool("longest", {"text": "a bcd"})

    result = use(url, call)
    assert not result.is_error
    assert result.structured_content == {"text": "bcd", "length": 3}
    assert json.loads(result.content[0].text) == result.structured_content


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("price", {"order": {"item": "x", "count": 0}}, "expected an integer of at least 1"),
        ("price", {}, "order"),
        ("price", {"order": {"item": "nothing"}}, "nothing has no price"),
        ("parrot", {}, "there is no tool"),
        ("prize", {}, "'price'"),
    ],
)
def test_an_error_is_told_in_the_result(url, tool, arguments, message):
    async def call(client: Client) -> Any:
        return await client.call_tool(tool, arguments)

    result = use(url, call)
    assert result.is_error
    assert message in json.loads(result.content[0].text)["error"]["message"]


def test_a_stream_reports_its_progress(url):
    told = []

    async def call(client: Client) -> Any:
        async def progress(count: float, total: float | None, message: str | None) -> None:
            told.append((count, json.loads(message or "")))

        return await client.call_tool("tell", {"prompt": "x"}, progress_callback=progress)

    result = use(url, call)
    assert result.structured_content == {"results": [{"result": f"x {number}"} for number in range(3)]}
    assert told == [(number + 1, {"result": f"x {number}"}) for number in range(3)]


def test_a_key_sees_and_calls_its_models_alone(url):
    async def calls(client: Client) -> Any:
        tools = (await client.list_tools()).tools
        return [tool.name for tool in tools], await client.call_tool("price", {"order": {"item": "x"}})

    names, refused = use(url, calls, "key")
    assert names == ["longest"]
    assert "may not call" in refused.content[0].text


@pytest.mark.parametrize("tool", COUNTED)
def test_tools_that_generate_use_up_the_tokens_of_a_key(url, tool):
    async def calls(client: Client) -> int:
        for number in range(6):  # of 3 or 4 tokens each; the minute of the clock may change once
            try:
                result = await client.call_tool(tool, {"text_input": "abcdefgh"})
            except MCPError:  # of status 429: all are used up
                return number
            if result.is_error:
                assert "tokens in a minute" in result.content[0].text
                return number
        return 6

    assert 1 <= use(url, calls, f"key of {tool}") < 6


def test_it_asks_for_the_access_token(url):
    assert httpx.post(f"{url}/mcp", json={}, trust_env=False, timeout=DEADLINE_S).status_code == 401


def test_there_is_no_such_route_by_default():
    from pytriton.inprocess import Triton as InprocessTriton
    from pytriton.rest import create_app

    async def status(app: Any) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return (await client.post("/mcp", json={})).status_code

    with InprocessTriton() as triton:
        assert asyncio.run(status(create_app(triton))) == 404
