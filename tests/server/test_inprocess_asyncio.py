"""Requests of coroutines to models of a server within this process."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pytriton.inprocess import AsyncResponseIterator, InternalError, InvalidArgumentError, Model, Server, TritonError
from tests.server.inprocess_repository import HEAD, write_echo, write_model
from tests.server.processes import DEADLINE_S
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]
STREAM = f"""{HEAD}
        for request in requests:
            sender, x = request.get_response_sender(), get(request, "x").as_numpy()
            for number in range(x[0]):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x * 0 + number)]))
            if x[0] < 0:
                sender.send(pb_utils.InferenceResponse([], pb_utils.TritonError("negative on purpose")))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
WAITER = f"""{HEAD}
        while not all(request.is_cancelled() for request in requests):
            time.sleep(0.002)
        return [pb_utils.InferenceResponse([], pb_utils.TritonError("noticed")) for _ in requests]
"""
ONE = 'input { name: "x" data_type: TYPE_INT32 dims: [1] }\noutput { name: "y" data_type: TYPE_INT32 dims: [1] }\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("repository")
    write_echo(repository)
    write_model(repository, "stream", STREAM, f"{ONE}model_transaction_policy {{ decoupled: true }}")
    write_model(repository, "waiter", WAITER, ONE)
    with Server(model_repository=str(repository)) as server:
        yield server


@pytest.fixture
def stream(server: Server) -> Model:
    return server.model("stream")


def number(value: int) -> dict[str, Any]:
    return {"x": np.array([value], np.int32)}


def test_responses_are_those_of_async_for(stream: Model):
    async def call() -> list[int]:
        responses = [each async for each in stream.async_infer(inputs=number(4))]
        assert [each.final for each in responses] == [False] * 4 + [True]
        return [int(np.from_dlpack(each.outputs["y"])[0]) for each in responses[:-1]]

    assert asyncio.run(call()) == [0, 1, 2, 3]


def test_many_coroutines_get_their_own_responses(server: Server):
    async def call(value: int) -> bool:
        array = np.full((1, 2), value, np.int64)
        async for response in server.model("echo").async_infer(inputs={"in_INT64": array}):
            return bool((np.from_dlpack(response.outputs["out_INT64"]) == value).all())
        return False

    async def call_all() -> bool:
        return all(await asyncio.gather(*map(call, range(500))))

    assert asyncio.run(call_all())


def test_the_loop_goes_on_while_a_request_waits_and_is_cancelled(server: Server):
    async def call() -> None:
        responses = server.model("waiter").async_infer(inputs=number(1), raise_on_error=False)
        waiting = asyncio.ensure_future(responses.__anext__())
        await asyncio.sleep(0)
        assert not waiting.done()
        responses.cancel()
        assert isinstance((await waiting).error, TritonError)
        responses.cancel()
        assert [each async for each in responses] == []

    asyncio.run(call())


def test_an_error_within_a_stream_is_raised_and_iteration_goes_on(stream: Model):
    async def call() -> None:
        responses = stream.async_infer(inputs=number(-1))
        with pytest.raises(InternalError, match="negative on purpose") as caught:
            await responses.__anext__()
        assert not caught.value.args[-1].final
        assert [each.final async for each in responses] == [True]

    asyncio.run(call())


def test_each_response_goes_to_the_callers_queue_too(stream: Model):
    async def call() -> None:
        copies: asyncio.Queue[Any] = asyncio.Queue()
        responses = [each async for each in stream.async_infer(inputs=number(2), response_queue=copies)]
        assert [copies.get_nowait() for _ in range(3)] == responses

    asyncio.run(call())


def test_tasks_share_the_responses_to_a_request(stream: Model):
    async def call() -> None:
        shared = stream.async_infer(inputs=number(5))

        async def take() -> list[Any]:
            return [each async for each in shared]

        got = await asyncio.wait_for(asyncio.gather(*(take() for _ in range(4))), DEADLINE_S)
        assert sorted(each.final for taken in got for each in taken) == [False] * 5 + [True]

    asyncio.run(call())


def test_a_queue_of_the_other_kind_is_refused(stream: Model):
    async def call() -> None:
        with pytest.raises(InvalidArgumentError, match=r"asyncio\.Queue"):
            stream.async_infer(inputs=number(1), response_queue=queue.SimpleQueue())
        with pytest.raises(InvalidArgumentError, match="SimpleQueue"):
            stream.infer(inputs=number(1), response_queue=asyncio.Queue())

    asyncio.run(call())


def test_without_a_loop_there_are_no_responses_for_coroutines(stream: Model):
    with pytest.raises(RuntimeError, match="no running event loop"):
        stream.async_infer(inputs=number(1))


def test_responses_may_go_to_another_loop(stream: Model):
    loop = asyncio.new_event_loop()
    try:
        responses = AsyncResponseIterator(stream.create_request(inputs=number(1)), loop=loop)
        first = loop.run_until_complete(responses.__anext__())
        assert np.from_dlpack(first.outputs["y"]).tolist() == [0]
    finally:
        loop.close()


def test_a_loop_that_ends_early_leaves_the_server_in_order(server: Server):
    async def send() -> Any:
        return server.model("waiter").async_infer(inputs=number(1))

    asyncio.run(send()).cancel()
    (response,) = server.model("echo").infer(inputs={"in_INT64": np.ones((1, 1), np.int64)})
    assert response.error is None
