"""Waits of a request: what ends them, and what that leaves behind."""

from __future__ import annotations

import asyncio
import sys

import pytest

from pytriton.rest.bodies import read_body
from pytriton.rest.costs import Account, Charges, Turns
from pytriton.rest.errors import RestError
from pytriton.rest.waits import CancelledOnDisconnect, ClientDisconnectedError, PieceLimit
from tests.unit.loops import in_loop


def charges() -> Charges:
    return Charges(Account(2**20), Turns(), "")


class Client:
    """What ASGI's ``receive`` of a request returns, one message after the other; then it waits for ever."""

    def __init__(self, *pieces, goes=False):
        last = len(pieces) - 1
        self.messages = [
            {"type": "http.request", "body": piece, "more_body": index < last} for index, piece in enumerate(pieces)
        ]
        self.messages += [{"type": "http.disconnect"}] * goes

    async def receive(self):
        if self.messages:
            return self.messages.pop(0)
        return await asyncio.Event().wait()


@pytest.mark.parametrize("pieces", [(b"abcd",), (b"", b"ab", b"cd"), (b"abcd", b"")])
@in_loop
async def test_a_body_as_long_as_the_limit_is_read(pieces):
    assert await read_body(Client(*pieces).receive, {}, 4, 60, charges()) == b"abcd"


@pytest.mark.parametrize("pieces", [(b"abcde",), (b"abc", b"de"), (b"abcde", b"fgh", b"i")])
@in_loop
async def test_a_body_beyond_the_limit_is_refused_at_its_end_and_leaves_the_connection_open(pieces):
    client = Client(*pieces)
    with pytest.raises(RestError, match="longer than 4 bytes") as raised:
        await read_body(client.receive, {}, 4, 60, charges())
    assert raised.value.headers == {}
    assert not client.messages


@in_loop
async def test_a_body_that_does_not_come_to_its_end_is_refused_after_the_time_for_a_piece():
    client = Client(b"ab", b"cd")
    client.messages.pop()
    with pytest.raises(RestError) as raised:
        await read_body(client.receive, {}, 4, 0.02, charges())
    assert raised.value.status == 408
    await asyncio.sleep(0)  # no cancellation is left


@pytest.mark.parametrize("limit", [4, 2])
@in_loop
async def test_a_client_that_goes_before_the_end_of_its_body_has_disconnected(limit):
    client = Client(b"ab", b"cd", b"ef", goes=True)
    del client.messages[1:3]
    with pytest.raises(ClientDisconnectedError):
        await read_body(client.receive, {}, limit, 60, charges())


@in_loop
async def test_a_client_that_goes_ends_the_wait_for_its_answer():
    with pytest.raises(ClientDisconnectedError):
        async with CancelledOnDisconnect(Client(goes=True).receive):
            await asyncio.Event().wait()
    await asyncio.sleep(0)


@in_loop
async def test_an_error_that_comes_as_the_client_goes_is_raised_and_no_cancellation_is_left():
    waiting = CancelledOnDisconnect(Client().receive)

    async def request():
        async with waiting:
            waiting._interrupt(ClientDisconnectedError())
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await request()
    await asyncio.sleep(0)


@in_loop
async def test_a_block_that_ends_as_the_client_goes_is_interrupted_all_the_same():
    waiting = PieceLimit(60)
    with pytest.raises(ClientDisconnectedError):
        async with waiting:
            waiting._interrupt(ClientDisconnectedError())
    await asyncio.sleep(0)


@in_loop
async def test_a_body_that_comes_too_slowly_is_refused_though_it_never_stalls():
    async def drip():
        waiting = PieceLimit(0.5)
        async with waiting:
            while True:
                await asyncio.sleep(0.01)
                waiting.received(1)

    with pytest.raises(RestError, match="the body came too slowly") as refused:
        await drip()
    assert refused.value.status == 408


@in_loop
async def test_a_body_that_comes_fast_enough_may_take_longer_than_the_limit_of_a_piece():
    waiting = PieceLimit(0.5)
    async with waiting:
        for _ in range(30):
            await asyncio.sleep(0.05)
            waiting.received(4096)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not tell how often a task was cancelled")
@in_loop
async def test_a_task_that_the_server_cancels_as_the_client_goes_is_cancelled():
    waiting = CancelledOnDisconnect(Client().receive)

    async def request():
        async with waiting:
            await asyncio.Event().wait()

    task = asyncio.ensure_future(request())
    await asyncio.sleep(0)
    waiting._interrupt(ClientDisconnectedError())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
