"""Streams of a server in this process whose clients do not read them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pytriton.base import TritonBase
from pytriton.inprocess import Triton
from pytriton.rest import RestConfig, create_app
from tests.server.processes import DEADLINE_S
from tests.server.proxies import native_part_only
from tests.server.rest.test_costs import peak_bytes

pytestmark = [pytest.mark.either_proxy, native_part_only]

MIB = 2**20
closed = threading.Event()


def flood(text: str) -> Iterator[str]:
    """Yields as fast as it can; 4 GiB, if nothing stops it."""
    try:
        for _ in range(4 * 2**10):
            yield text * MIB
    finally:
        closed.set()


def trickle(text: str) -> Iterator[str]:
    try:
        while True:
            yield text
            time.sleep(0.01)
    finally:
        closed.set()


class Reader:
    """A client that stops to read after the first piece of the body, until :meth:`go_on`.

    Attributes:
        status: Of the answer.
        last: The last piece of the body that it has got.
    """

    def __init__(self) -> None:
        self.status, self.last = 0, b""
        self._may_go_on = asyncio.Event()

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        if self.last:
            await self._may_go_on.wait()
        self.last = message["body"] or self.last

    def go_on(self) -> None:
        self._may_go_on.set()


async def post(app: Any, path: str, fields: Any, reader: Reader) -> None:
    body = json.dumps(fields).encode()
    messages = iter([{"type": "http.request", "body": body}])

    async def receive() -> Any:
        return next(messages, None) or await reader.receive()

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
    await app(scope, receive, reader.send)


async def until_closed() -> None:
    assert await asyncio.to_thread(closed.wait, DEADLINE_S)
    closed.clear()


@pytest.fixture(scope="module")
def triton() -> Iterator[TritonBase]:
    with Triton() as triton:
        triton.bind(flood)
        triton.bind(trickle)
        yield triton


def test_a_stream_that_is_not_read_is_cancelled_when_it_takes_its_share_of_memory(triton: TritonBase):
    async def run() -> None:
        app = create_app(triton, RestConfig(max_memory_bytes=64 * MIB))
        before = peak_bytes(os.getpid(), "VmRSS")
        reader = Reader()
        task = asyncio.ensure_future(post(app, "/predict/flood", {"text": "a"}, reader))
        await until_closed()
        assert peak_bytes(os.getpid(), "VmRSS") - before < 256 * MIB
        assert not task.done()
        reader.go_on()
        await task
        assert reader.status == 200
        error = json.loads(reader.last)["error"]
        assert (error["code"], "not read" in error["message"]) == ("UNAVAILABLE", True)

    asyncio.run(run())


def test_a_stream_of_which_nothing_is_read_for_a_while_ends(triton: TritonBase):
    async def run() -> None:
        app = create_app(triton, RestConfig(timeout_s=0.2))
        await asyncio.wait_for(post(app, "/predict/trickle", {"text": "a"}, Reader()), DEADLINE_S)
        await until_closed()

    asyncio.run(run())


def test_a_stream_that_is_read_slowly_comes_whole(triton: TritonBase):
    async def run() -> None:
        app = create_app(triton, RestConfig(max_memory_bytes=64 * MIB))
        pieces = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                pieces.append(len(message["body"]))
                await asyncio.sleep(0)

        reader = Reader()
        reader.send = send  # type: ignore[method-assign]
        await post(app, "/predict/count", {"numbers": 2000}, reader)
        assert sum(pieces) == sum(len(f'{{"result":{number}}}\n') for number in range(2000))

    def count(numbers: int) -> Iterator[int]:
        yield from range(numbers)

    triton.bind(count)
    asyncio.run(run())
