"""How calls of AsyncioModelClient end before their time: closing, cancelling, failing, and loops that end."""

import asyncio
import gc
import sys
import threading

import numpy as np
import pytest

from pytriton.client import AsyncioModelClient
from pytriton.client.aio import drive_async
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
)
from pytriton.client.http_pool import AsyncioConnection
from pytriton.exceptions import PyTritonModelConfigError
from tests.unit.loopback import CONFIG, CONFIGURED, INFERRED, KNOWN, READY, X, listening, paths
from tests.unit.loops import PATIENCE_S, in_loop, until
from tests.unit.scripted import config, echo, infer, session


class Script:
    """A transport that answers by method; answers may be errors or coroutine functions of the call."""

    def __init__(self, **by_method):
        self.by_method, self.methods, self.naps = by_method, [], []

    async def call(self, call):
        self.methods.append(call.method)
        await asyncio.sleep(0)
        answer = self.by_method[call.method]
        if isinstance(answer, BaseException):
            raise answer
        return await answer(call) if callable(answer) else answer

    async def sleep(self, seconds):
        self.naps.append(seconds)
        await asyncio.sleep(0)

    async def close(self):
        pass


async def echoes(call):
    return echo(call)


@in_loop
async def test_closed_client_refuses_everything_and_closes_again(server):
    client = AsyncioModelClient(server.url, "m")
    await client.infer_sample(X[0])
    await client.close()
    await client.close()
    for use in (
        client.infer_sample(X[0]),
        client.infer_batch(X),
        client.wait_for_model(1),
        client.wait_for_server(1),
        client.model_config,
        client.is_batching_supported,
        client.load_model(),
        client.unload_model(),
    ):
        with pytest.raises(PyTritonClientClosedError):
            await use


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@pytest.mark.parametrize("known", [True, False])
@in_loop
async def test_closing_ends_calls_under_way(scheme, known):
    asked = threading.Event()
    with listening(lambda connection, stopped: asked.set()) as address:
        client = AsyncioModelClient(f"{scheme}://{address}", "m", **(KNOWN if known else {}))
        calls = [asyncio.create_task(client.infer_sample(X[0])) for _ in range(3)]
        await until(asked.is_set)
        await client.close()
        for call in calls:
            with pytest.raises(PyTritonClientClosedError, match="closed before"):
                await call


@in_loop
async def test_closing_ends_a_wait_for_a_server_that_is_not_there(closed_port):
    client = AsyncioModelClient(closed_port, "m")
    call = asyncio.create_task(client.infer_sample(X[0]))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(PyTritonClientClosedError):
        await call


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not tell how often a task was cancelled")
@in_loop
async def test_task_that_is_cancelled_while_the_client_closes_is_cancelled():
    asked = threading.Event()
    with listening(lambda connection, stopped: asked.set()) as address:
        client = AsyncioModelClient(address, "m")
        call = asyncio.create_task(client.infer_sample(X[0]))
        await until(asked.is_set)
        call.cancel()
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await call


@in_loop
async def test_nobody_complains_of_a_lost_connection_whose_caller_has_gone():
    open_ones = set()
    with listening() as address:
        host, port = address.split(":")
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: AsyncioConnection(open_ones), host, int(port))
        connection.send([b"GET / HTTP/1.1\r\n\r\n"])
        connection.abort()
        await until(lambda: not open_ones)


@in_loop
async def test_cancelled_call_leaves_the_client_usable(server):
    answer = threading.Event()
    server.hold = lambda: answer.wait(PATIENCE_S)
    async with AsyncioModelClient(server.url, "m") as client:
        call = asyncio.create_task(client.infer_sample(X[0]))
        await until(lambda: INFERRED in paths(server))
        call.cancel()
        answer.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        np.testing.assert_array_equal((await client.infer_sample(X[0]))["x"], X[0])


@in_loop
async def test_cancelling_one_waiter_does_not_fail_the_others():
    ready = asyncio.Event()

    async def becomes_ready(call):
        await ready.wait()
        return True

    transport = Script(is_model_ready=becomes_ready, get_model_config=CONFIG, infer=echoes)
    model = session()
    calls = [asyncio.create_task(drive_async(infer(model, X[i]), transport)) for i in range(3)]
    await until(lambda: transport.methods)
    calls[0].cancel()
    ready.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    np.testing.assert_array_equal([answer["x"] for answer in answers[1:]], X[1:])
    assert transport.methods == ["is_model_ready", "get_model_config", "infer", "infer"]


@in_loop
async def test_preparation_that_nobody_waits_for_any_more_is_cancelled_and_done_anew_later():
    given_up = []

    async def never(call):
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append(call)

    transport = Script(is_model_ready=never, get_model_config=CONFIG, infer=echoes)
    model = session()
    calls = [asyncio.create_task(drive_async(infer(model, X[0]), transport)) for _ in range(2)]
    await until(lambda: transport.methods)
    calls[0].cancel()
    await asyncio.wait(calls[:1])
    assert given_up == []
    calls[1].cancel()
    transport.by_method["is_model_ready"] = True
    await asyncio.create_task(drive_async(infer(model, X[0]), transport))  # comes before the end of the other one
    assert len(given_up) == 1


@in_loop
async def test_failed_preparation_fails_all_who_wait_and_is_tried_again_by_the_next_call():
    refused = PyTritonClientInferenceServerError("refused")
    transport = Script(is_model_ready=True, get_model_config=refused, infer=echoes)
    model = session()
    errors = await asyncio.gather(
        *(drive_async(infer(model, X[0]), transport) for _ in range(3)), return_exceptions=True
    )
    assert errors == [refused] * 3
    assert transport.methods == ["is_model_ready", "get_model_config"]
    transport.by_method["get_model_config"] = CONFIG
    await drive_async(infer(model, X[0]), transport)
    assert transport.methods[2:] == ["get_model_config", "infer"]


@in_loop
async def test_configuration_that_cannot_be_understood_reaches_all_who_wait():
    transport = Script(is_model_ready=True, get_model_config={"name": "m", "parameters": 1})
    model = session()
    errors = await asyncio.gather(
        *(drive_async(model.model_config(), transport) for _ in range(3)), return_exceptions=True
    )
    assert {type(error) for error in errors} == {PyTritonModelConfigError}


@in_loop
async def test_conversation_that_is_given_up_is_closed():
    ended = []

    def conversation():
        try:
            yield from infer(session(config(), True), X[0])
        finally:
            ended.append(True)

    async def never(call):
        await asyncio.Event().wait()

    running = asyncio.create_task(drive_async(conversation(), Script(infer=never)))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert ended == [True]


def test_client_may_be_made_in_a_thread_and_used_in_several_loops(server):
    made = []
    thread = threading.Thread(target=lambda: made.append(AsyncioModelClient(server.url, "m")))
    thread.start()
    thread.join()
    (client,) = made
    for _ in range(3):
        in_loop(lambda: client.infer_sample(X[0]))()
    in_loop(client.close)()
    assert paths(server) == [READY, CONFIGURED] + [INFERRED] * 3


def test_loop_that_ends_with_calls_under_way_ends_them():
    asked = threading.Event()

    async def leave(client):
        call = asyncio.create_task(client.infer_sample(X[0]))
        await until(asked.is_set)
        return call

    with listening(lambda connection, stopped: asked.set()) as address:
        client = AsyncioModelClient(address, "m")
        call = asyncio.run(leave(client))
        assert call.cancelled()
        in_loop(client.close)()


@in_loop
async def test_clients_that_are_not_closed_leave_no_complaint(server):
    await AsyncioModelClient(server.url, "m").infer_sample(X[0])
    gc.collect()
