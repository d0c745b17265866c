"""Many streams at once: their order and text, slow readers, and clients that go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest

from pytriton.llm import ChatModel, ChatRequest
from pytriton.model_config import ModelConfig
from tests.server.openai.models import Endless, EndlessAsync
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

STREAMS, CHUNKS = 64, 160
PIECES = ["né", "日本", "語 ", "👩\u200d", "👩\u200d👧", "🇩", "🇪 ", "\\n\n", '"', "\u2028", "x" * 300]


def pieces_of(number: int, count: int) -> list[bytes]:
    """The chunks of a stream: every text is cut within a character somewhere."""
    text = "".join(f"{number}:{index}{PIECES[(index + number) % len(PIECES)]}" for index in range(count)).encode()
    size = len(text) // count
    cuts = [text[index * size : (index + 1) * size] for index in range(count - 1)]
    return [*cuts, text[(count - 1) * size :]]


def plan(request: ChatRequest) -> list[bytes]:
    number, count = map(int, request.messages[-1]["content"].split())
    return pieces_of(number, count)


def cut_up(request: ChatRequest) -> Any:
    yield from plan(request)


async def cut_up_async(request: ChatRequest) -> AsyncIterator[bytes]:
    for piece in plan(request):
        yield piece
        await asyncio.sleep(0)


@pytest.fixture(scope="module", autouse=True)
def models(triton):
    for function in (cut_up, cut_up_async):
        triton.bind(ChatModel(function), config=ModelConfig(max_batches_in_flight=2 * STREAMS))


def run(url: str, make: Callable[[Any], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        limits = httpx.Limits(max_connections=None)
        http = httpx.AsyncClient(limits=limits, trust_env=False, timeout=DEADLINE_S)
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=http) as client:
            return await asyncio.wait_for(make(client), DEADLINE_S)

    return asyncio.run(main())


async def streamed(client: openai.AsyncOpenAI, model: str, content: str) -> str:
    messages: Any = [{"role": "user", "content": content}]
    stream = await client.chat.completions.create(model=model, messages=messages, stream=True)
    return "".join([event.choices[0].delta.content or "" async for event in stream])


@pytest.mark.parametrize("model", ["cut_up", "cut_up_async"])
def test_the_texts_of_many_streams_are_exact(url, model):
    async def ask(client: openai.AsyncOpenAI) -> list[str]:
        calls = [streamed(client, model, f"{number} {CHUNKS}") for number in range(STREAMS)]
        return await asyncio.gather(*calls)

    for number, text in enumerate(run(url, ask)):
        assert text == b"".join(pieces_of(number, CHUNKS)).decode()


def test_a_client_that_does_not_read_does_not_hold_up_the_others(url):
    async def ask(client: openai.AsyncOpenAI) -> list[str]:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"), limit=2**10)
        message = {"role": "user", "content": "0 5000"}
        body = json.dumps({"model": "cut_up_async", "stream": True, "messages": [message]}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        await reader.readuntil(b"\r\n\r\n")
        found = await asyncio.gather(*(streamed(client, "cut_up_async", f"{number} 50") for number in range(8)))
        writer.close()
        return found

    assert run(url, ask) == [b"".join(pieces_of(number, 50)).decode() for number in range(8)]


@pytest.mark.parametrize("cls", [Endless, EndlessAsync])
def test_clients_that_go_away_end_their_generators(triton, url, cls):
    endless = cls()
    triton.bind("endless", ChatModel(endless), replace=True)
    count = 8

    async def leave(client: openai.AsyncOpenAI) -> None:
        streams = [
            await client.chat.completions.create(
                model="endless", messages=[{"role": "user", "content": "a"}], stream=True
            )
            for _ in range(count)
        ]
        for stream in streams:
            assert await anext(aiter(stream))
        with endless.changed:
            assert endless.running == count
        for stream in streams:
            await stream.close()

    run(url, leave)
    with endless.changed:
        assert endless.changed.wait_for(lambda: endless.running == 0, DEADLINE_S)


def test_a_client_that_goes_away_ends_all_of_its_answers(triton, url):
    endless = EndlessAsync()
    triton.bind("endless", ChatModel(endless), replace=True)

    async def leave(client: openai.AsyncOpenAI) -> None:
        messages: Any = [{"role": "user", "content": "a"}]
        stream = await client.chat.completions.create(model="endless", messages=messages, n=3, stream=True)
        seen = set()
        async for event in stream:
            seen.add(event.choices[0].index)
            if len(seen) == 3:
                break
        await stream.close()

    run(url, leave)
    with endless.changed:
        assert endless.changed.wait_for(lambda: endless.running == 0, DEADLINE_S)


def test_a_stop_sequence_ends_the_generator(triton, client):
    endless = EndlessAsync()
    triton.bind("endless", ChatModel(endless), replace=True)
    messages: Any = [{"role": "user", "content": "a"}]
    answer = client.chat.completions.create(model="endless", messages=messages, stop="d w")
    assert answer.choices[0].message.content == "wor"
    with endless.changed:
        assert endless.changed.wait_for(lambda: endless.running == 0, DEADLINE_S)


def test_a_silent_stream_has_heartbeats_that_clients_ignore(triton, url):
    release = asyncio.Event()

    async def silent(request: ChatRequest) -> AsyncIterator[str]:
        yield "first"
        while not release.is_set():
            await asyncio.sleep(0.01)
        yield "second"

    triton.bind(ChatModel(silent))
    with httpx.Client(base_url=url, timeout=DEADLINE_S, trust_env=False) as http:
        body = {"model": "silent", "stream": True, "messages": [{"role": "user", "content": "a"}]}
        seen = []
        with http.stream("POST", "/v1/chat/completions", json=body) as response:
            for line in response.iter_lines():
                seen.append(line)
                if line == ": heartbeat":
                    release.set()
    assert ": heartbeat" in seen
    assert seen[-2] == "data: [DONE]"
