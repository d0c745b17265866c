"""What requests are charged, and how those that take long take turns."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import threading
import zlib

import pytest

from pytriton.rest import RestConfig
from pytriton.rest.bodies import read_body
from pytriton.rest.costs import (
    MOST_UNREAD_BYTES,
    PIECE_BYTES,
    SMALL_BYTES,
    Account,
    Charges,
    Costs,
    Turns,
    Unread,
    client_of,
    default_limit_bytes,
)
from pytriton.rest.errors import RestError
from pytriton.rest.waits import ClientDisconnectedError
from tests.unit.loops import in_loop

MIB = 2**20


def refusal(charges: Charges, size: int) -> RestError:
    with pytest.raises(RestError) as caught:
        charges.charge(size)
    return caught.value


def test_a_client_may_take_three_quarters_and_others_find_the_rest():
    account = Account(1000)
    first, second, other = (Charges(account, Turns(), client) for client in ("a", "a", "b"))
    first.charge(700)
    error = refusal(second, 100)
    assert (error.status, error.headers["Retry-After"]) == (429, "1")
    other.charge(300)
    assert refusal(other, 1).status == 503
    first.close()
    second.charge(100)
    assert account.used_bytes == 400
    second.close()
    other.close()
    assert account.used_bytes == 0
    other.close()
    assert account.used_bytes == 0


def test_what_is_not_read_of_a_stream_is_charged_until_it_is_read_and_has_a_bound():
    account = Account(2**40)
    unread = Unread(Charges(account, Turns(), "a"))
    assert unread.grow(SMALL_BYTES)
    assert account.used_bytes == 0
    assert unread.grow(SMALL_BYTES)
    assert account.used_bytes >= 2 * SMALL_BYTES
    unread.shrink(2 * SMALL_BYTES)
    assert account.used_bytes == 0
    assert unread.grow(MOST_UNREAD_BYTES + 1)
    assert not unread.grow(1)
    unread.shrink(MOST_UNREAD_BYTES + 2)
    assert account.used_bytes == 0


def test_a_stream_that_is_not_read_ends_when_its_client_has_taken_its_share():
    account = Account(100 * SMALL_BYTES)
    unread, count = Unread(Charges(account, Turns(), "a")), 0
    while unread.grow(SMALL_BYTES):
        count += 1
    assert 30 < count < 75
    unread.shrink((count + 1) * SMALL_BYTES)
    assert account.used_bytes == 0


def test_a_request_that_takes_too_much_alone_is_too_large():
    account = Account(1000)
    charges = Charges(account, Turns(), "a")
    charges.charge(700)
    error = refusal(charges, 100)
    assert (error.status, error.code) == (413, "BODY_TOO_LARGE")
    assert "max_memory_bytes" in error.message


def test_memory_of_a_block_is_given_back_also_after_the_request():
    account = Account(1000)
    charges = Charges(account, Turns(), "a")
    with charges.charged(100):
        assert account.used_bytes == 100
        charges.close()
        assert account.used_bytes == 0
    assert account.used_bytes == 0
    assert refusal(charges, 1).status == 503


def test_an_error_that_nobody_waits_for_any_more_is_not_logged():
    told = []

    def fail():
        started.set()
        go_on.wait()
        raise ValueError("the body is no JSON")

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        waiting = asyncio.create_task(Turns().run("a", fail))
        await asyncio.to_thread(started.wait)
        waiting.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.get_running_loop().shutdown_default_executor()

    started, go_on = threading.Event(), threading.Event()
    asyncio.run(run())
    gc.collect()
    assert not told


def test_python_objects_are_charged_once_and_only_for_large_texts():
    account = Account(2**40)
    charges = Charges(account, Turns(), "a")
    with charges.reading(b"[" * (SMALL_BYTES - 1)) as objects:
        objects()
        assert account.used_bytes == 0
    with charges.reading(b"[" * SMALL_BYTES) as objects:
        parsing = account.used_bytes
        objects()
        both = account.used_bytes
        assert SMALL_BYTES * 64 < parsing < both
        objects()
        assert account.used_bytes == both
    assert account.used_bytes == 0


@pytest.mark.parametrize("item", [b"[", b"[[1],", b"{}", b'{"a":', b"1,", b'"a",'])
def test_a_text_that_is_counted_is_charged_no_more_than_one_that_is_not(item):
    text, taken = item * SMALL_BYTES, []
    for limit in (2**40, 2**28):
        account = Account(limit)
        with Charges(account, Turns(), "a").reading(text) as objects:
            objects()
            taken.append(account.used_bytes)
    assert taken[1] <= taken[0]


@pytest.mark.parametrize(
    ("scope", "client"),
    [
        ({"client": ("10.0.0.1", 5), "headers": [(b"x-forwarded-for", b"1.2.3.4")]}, "10.0.0.1"),
        ({"client": None, "headers": [(b"x-forwarded-for", b"1.2.3.4, 5.6.7.8")]}, "5.6.7.8"),
        ({"client": None, "headers": []}, ""),
    ],
)
def test_behind_the_native_edge_the_client_is_the_one_that_it_tells(scope, client):
    assert client_of(scope) == client


def test_the_default_is_a_quarter_of_what_is_available():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 64 * MIB <= default_limit_bytes(1) <= total / 4
    assert default_limit_bytes(1000) == 64 * MIB
    assert RestConfig.from_env({"PYTRITON_REST_MAX_MEMORY_BYTES": "5"}).max_memory_bytes == 5


@in_loop
async def test_clients_take_turns_and_small_work_does_not_wait():
    turns, started, go = Turns(), threading.Event(), threading.Event()
    order = []

    def hold():
        started.set()
        assert go.wait(60)

    account = Account(MIB)
    charges = {client: Charges(account, turns, client) for client in "ab"}
    tasks = [asyncio.ensure_future(charges["a"].run(SMALL_BYTES, hold))]
    await asyncio.to_thread(started.wait)
    for name in ("a1", "a2", "a3", "b1", "b2"):
        tasks.append(asyncio.ensure_future(charges[name[0]].run(SMALL_BYTES, lambda name=name: order.append(name))))
    await asyncio.sleep(0)
    assert await charges["a"].run(SMALL_BYTES - 1, lambda: "at once") == "at once"
    assert order == []
    go.set()
    await asyncio.gather(*tasks)
    assert order == ["a1", "b1", "a2", "b2", "a3"]


@in_loop
async def test_work_whose_client_has_gone_is_not_begun_and_the_next_has_its_turn():
    turns, started, go = Turns(), threading.Event(), threading.Event()
    order = []

    def hold():
        started.set()
        assert go.wait(60)
        order.append("held")

    first = asyncio.ensure_future(turns.run("a", hold))
    await asyncio.to_thread(started.wait)
    waiting = [asyncio.ensure_future(turns.run("a", lambda index=index: order.append(index))) for index in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    waiting[0].cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*waiting[1:])
    assert order == ["held", 1, 2]
    assert [each.cancelled() for each in (first, *waiting)] == [True, True, False, False]


def received(*pieces: bytes):
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = False

    async def receive():
        return messages.pop(0)

    return receive


CONTENTS = [b"", b"a", b"ab" * SMALL_BYTES, bytes(5 * MIB), os.urandom(3 * MIB), os.urandom(SMALL_BYTES) * 40]


@pytest.mark.parametrize("content", CONTENTS, ids=len)
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@in_loop
async def test_a_compressed_body_is_inflated_and_charged(content, compress):
    account = Account(100 * MIB)
    charges = Charges(account, Turns(), "a")
    sent = compress(content)
    headers = {b"content-encoding": b"gzip"}
    assert await read_body(received(sent), headers, max(len(content), len(sent)), 60, charges) == content
    assert account.used_bytes == len(content)
    for wrong in (sent[:-1], sent + b"a", sent[: len(sent) // 2]):
        with pytest.raises(RestError) as caught:
            await read_body(received(wrong), headers, 100 * MIB, 60, charges)
        assert caught.value.status == 400
    if content:
        with pytest.raises(RestError) as caught:
            await read_body(received(sent), headers, len(content) - 1, 60, charges)
        assert caught.value.status == 413


@in_loop
async def test_a_bomb_is_refused_before_its_memory_is_taken():
    account = Account(4 * MIB)
    bomb = zlib.compress(bytes(100 * MIB))
    with pytest.raises(RestError, match="max_memory_bytes"):
        await read_body(received(bomb), {b"content-encoding": b"deflate"}, 2**40, 60, Charges(account, Turns(), "a"))
    assert account.used_bytes <= 4 * MIB


@in_loop
async def test_a_body_without_memory_for_it_is_refused_as_it_comes():
    account = Account(1000)
    other = Charges(account, Turns(), "b")
    other.charge(600)
    charges = Charges(account, Turns(), "a")
    receive = received(b"a" * 300, b"a" * 300, b"a" * 300)
    with pytest.raises(RestError) as caught:
        await read_body(receive, {}, 10_000, 60, charges)
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})


def answering(body: bytes):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return app


SCOPE = {"type": "http", "client": ("a", 1), "headers": []}


@pytest.mark.parametrize("size", [0, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES])
@in_loop
async def test_an_answer_is_charged_until_it_is_read(size):
    account, body = Account(MIB), os.urandom(size)
    sent, charged = [], []

    async def send(message):
        sent.append(message)
        charged.append(account.used_bytes)

    await Costs(answering(body), account, 60)({**SCOPE}, None, send)
    assert b"".join(message.get("body", b"") for message in sent) == body
    assert [message["more_body"] for message in sent[1:-1]] == [True] * (len(sent) - 2)
    assert not sent[-1].get("more_body")
    assert {*charged[1:]} == {size if size > PIECE_BYTES else 0}
    assert account.used_bytes == 0


@in_loop
async def test_an_answer_ends_if_its_client_does_not_read():
    account = Account(MIB)
    sent = []

    async def send(message):
        sent.append(message)
        if len(sent) == 3:
            await asyncio.Event().wait()

    with pytest.raises(ClientDisconnectedError):
        await Costs(answering(bytes(5 * PIECE_BYTES)), account, 0.02)({**SCOPE}, None, send)
    assert len(sent) == 3
    assert account.used_bytes == 0
