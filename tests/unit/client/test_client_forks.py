"""Clients in forked children: they make connections of their own, and disturb none of their parent's."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading

import numpy as np
import pytest

from pytriton.client import AsyncioModelClient, FuturesModelClient, ModelClient
from pytriton.client.auth import Tls
from pytriton.client.exceptions import PyTritonClientConnectionError
from pytriton.client.http_pool import AsyncioConnection
from tests.server.tls import Certificates
from tests.unit.children import Child, in_child, in_child_of_a_thread
from tests.unit.loopback import KNOWN, X
from tests.unit.loops import PATIENCE_S

CALLS = 40


@pytest.fixture(params=["plain", "TLS"])
def target(request, server, tmp_path):
    """Arguments for a client of a server that remembers the connections that it has accepted."""
    server.connections = []
    accept = server.get_request

    def get_request():
        connection, address = accept()
        server.connections.append(address)
        return connection, address

    server.get_request = get_request
    if request.param == "plain":
        return {"url": server.url}
    certificates = Certificates.in_folder(tmp_path)
    server.socket = certificates.of_server().wrap_socket(server.socket, server_side=True)
    return {"url": server.url, "tls": Tls(root_certificates=certificates.root)}


def call(client, value):
    """Calls with one value; whether each answer had it."""
    rows = np.full((3, 2), value, np.float32)
    return all(np.array_equal(client.infer_batch(rows)["x"], rows) for _ in range(CALLS))


def test_parent_and_child_call_at_once_and_get_their_own_answers(target, server):
    with ModelClient(model_name="m", **target, **KNOWN) as client:
        assert call(client, 1)
        children = [Child(lambda value=value: call(client, value)) for value in (2, 3)]
        assert call(client, 1)
        assert all(child.result() for child in children)
        assert call(client, 1)
    assert len(server.connections) == 3  # the parent's is the first one still


@pytest.mark.parametrize("fork", [in_child, in_child_of_a_thread])
def test_a_child_may_close_its_copy_of_a_client(target, server, fork):
    with ModelClient(model_name="m", **target, **KNOWN) as client:
        assert call(client, 1)
        fork(client.close)
        assert call(client, 1)
    assert len(server.connections) == 1


def test_a_child_that_is_forked_during_a_call_calls_too(server):
    entered, go_on = threading.Event(), threading.Event()
    with ModelClient(server.url, "m", **KNOWN) as client:
        server.hold = lambda: (entered.set(), go_on.wait(PATIENCE_S))
        thread = threading.Thread(target=client.infer_batch, args=(X,))
        thread.start()
        assert entered.wait(PATIENCE_S)
        server.hold = lambda: None
        assert in_child(lambda: call(client, 2))
        go_on.set()
        thread.join()
        assert call(client, 1)


def test_futures_of_the_parent_fail_in_a_child_and_others_work(server):
    entered, go_on, called = threading.Event(), threading.Event(), []
    with FuturesModelClient(server.url, "m", max_workers=1, **KNOWN) as client:
        server.hold = lambda: (entered.set(), go_on.wait(PATIENCE_S))
        futures = [client.infer_batch(X), client.infer_batch(X)]  # one under way, one in the queue
        futures[1].add_done_callback(called.append)
        assert entered.wait(PATIENCE_S)
        server.hold = lambda: None

        def work():
            errors = [future.exception(PATIENCE_S) for future in futures]
            batch = client.infer_batch(X * 2).result(PATIENCE_S)
            client.close()
            return [(type(error), str(error)) for error in errors], batch["x"], len(called)

        errors, answer, callbacks = in_child(work)
        assert [kind for kind, _ in errors] == [PyTritonClientConnectionError] * 2
        assert all("the process from which this one was forked has sent this request" in text for _, text in errors)
        np.testing.assert_array_equal(answer, X * 2)
        assert callbacks == 0
        go_on.set()
        assert all(np.array_equal(future.result(PATIENCE_S)["x"], X) for future in futures)
    assert len(called) == 1


def test_a_child_may_leave_a_futures_client_open(server):
    with FuturesModelClient(server.url, "m", **KNOWN) as client:
        client.infer_batch(X).result(PATIENCE_S)
        assert in_child(lambda: True)
        np.testing.assert_array_equal(client.infer_batch(X).result(PATIENCE_S)["x"], X)


def test_a_client_for_asyncio_serves_a_loop_of_the_child(target, server):
    async def several(client, value):
        rows = np.full((3, 2), value, np.float32)
        answers = await asyncio.gather(*(client.infer_batch(rows) for _ in range(CALLS)))
        return all(np.array_equal(answer["x"], rows) for answer in answers)

    async def all_of(client):
        async with client:
            return await several(client, 2)

    loop = asyncio.new_event_loop()
    try:
        client = AsyncioModelClient(model_name="m", **target, **KNOWN)
        assert loop.run_until_complete(several(client, 1))
        before = len(server.connections)
        child = Child(lambda: asyncio.run(all_of(client)))
        assert loop.run_until_complete(several(client, 1))
        assert child.result()
        assert loop.run_until_complete(several(client, 1))
        assert len(server.connections) <= before + CALLS  # the parent's are the old ones
        loop.run_until_complete(client.close())
    finally:
        loop.close()


def test_a_connection_that_has_ended_and_that_an_error_still_holds_is_left_alone_in_a_child(target, monkeypatch, capfd):
    held = []

    async def call_once():
        async with AsyncioModelClient(model_name="m", **target, **KNOWN) as client:
            await client.infer_batch(X)
            held.extend(each for each in gc.get_objects() if isinstance(each, AsyncioConnection))

    asyncio.run(call_once())
    assert held
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # writes what fails while a process is forked
    in_child(lambda: None)
    assert "Exception ignored" not in capfd.readouterr().err  # gRPC, of other tests, tells that it is busy
