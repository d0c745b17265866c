"""Many requests of one tritonclient in flight, their results, and their cancellation."""

import asyncio
import socket
import threading
from functools import partial
from queue import SimpleQueue

import gevent
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from pytriton.decorators import batch
from tests.server.arrays import filled
from tests.server.gated import Gated
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tritonclients import only, only_aio

TOGETHER = 2
PATIENCE_S = 1.0  # of a client: long enough for its request to have reached the model


@batch
def double(x):
    if np.any(x < 0):
        raise ValueError("below zero")
    return [x * 2]


class Meeting:
    """Callables that return once all of them have been called, so only while as many requests are in flight."""

    def __init__(self):
        self.barrier = threading.Barrier(TOGETHER)

    def __call__(self, requests):
        self.barrier.wait(DEADLINE_S)
        return [{"y": request["x"] * 2} for request in requests]


@pytest.fixture(scope="module")
def doubling(bind):
    return bind(double, max_batch_size=16)


@pytest.fixture(scope="module")
def meeting(bind):
    return bind([Meeting()] * TOGETHER, batcher=None)


@pytest.fixture(scope="module")
def gated_model(bind):
    gated = Gated()
    gated.model = bind(gated, batcher=None)
    return gated


@pytest.fixture
def gated(gated_model):
    gated_model.reset()
    yield gated_model
    gated_model.gate.open()


def value(result):
    return result.as_numpy("y")[0, 0]


class Replies(SimpleQueue):
    """A callback that keeps what it is called with."""

    def __call__(self, *given, result, error):
        self.put((given, result, error))

    def next(self):
        return self.get(timeout=DEADLINE_S)


def test_64_requests_at_once_get_their_own_answers(api, doubling):
    futures = [api.submit("infer", doubling, api.inputs({"x": filled(n)})) for n in range(64)]
    assert [value(future.result(DEADLINE_S)) for future in futures] == [2 * n for n in range(64)]


@only_aio
def test_gathered_requests_are_in_flight_together(api, meeting):
    async def gather():
        calls = (api.client.infer(meeting, api.inputs({"x": filled(n)})) for n in range(TOGETHER))
        return await asyncio.gather(*calls)

    assert [value(result) for result in api.loop.run(gather())] == [0, 2]


@only("http")
def test_http_has_as_many_requests_in_flight_as_its_concurrency(api, meeting):
    with api.other(concurrency=TOGETHER) as client:
        inputs = [client.inputs({"x": filled(n)}) for n in range(TOGETHER)]
        calls = [client.client.async_infer(meeting, given, request_id=str(n)) for n, given in enumerate(inputs)]
        results = [call.get_result(timeout=DEADLINE_S) for call in calls]
    assert [value(result) for result in results] == [0, 2]
    assert [result.get_response()["id"] for result in results] == ["0", "1"]


@only("http")
def test_http_results_can_be_waited_for_a_while_or_not_at_all(api, gated):
    with api.other(concurrency=2) as client:
        late = client.client.async_infer(gated.model, client.inputs({"x": filled(1)}))
        wait_for(lambda: gevent.sleep(0) or gated.seen, "the request, which is sent while gevent runs")
        for options in ({"block": False}, {"timeout": 0.01}):
            with pytest.raises(InferenceServerException, match="failed to obtain inference response"):
                late.get_result(**options)
        gated.gate.open()
        assert value(late.get_result()) == 2


@only("http")
def test_http_requests_finish_in_any_order(api, gated, doubling):
    with api.other(concurrency=2) as client:
        late = client.client.async_infer(gated.model, client.inputs({"x": filled(1)}))
        early = client.client.async_infer(doubling, client.inputs({"x": filled(2)}))
        assert value(early.get_result(timeout=DEADLINE_S)) == 4
        assert not late._greenlet.ready()
        gated.gate.open()
        assert value(late.get_result(timeout=DEADLINE_S)) == 2


@only("http")
def test_http_errors_come_with_the_result(api, doubling):
    with api.other(concurrency=2) as client:
        bad, good = (client.client.async_infer(doubling, client.inputs({"x": filled(n)})) for n in (-1, 1))
        with client.refuses("INTERNAL", "below zero"):
            bad.get_result()
        assert value(good.get_result()) == 2


@only("grpc")
def test_grpc_callbacks_get_their_results(api, doubling):
    replies = Replies()
    for n in range(8):
        api.client.async_infer(doubling, api.inputs({"x": filled(n)}), partial(replies, n), request_id=str(n))
    for (n,), result, error in (replies.next() for _ in range(8)):
        assert error is None
        assert (value(result), result.get_response().id) == (2 * n, str(n))


@only("grpc")
def test_grpc_callbacks_get_errors(api, doubling):
    replies = Replies()
    api.client.async_infer(doubling, api.inputs({"x": filled(-1)}), replies)
    _, result, error = replies.next()
    assert result is None
    assert error.status() == "StatusCode.INTERNAL"
    assert "below zero" in error.message()


@only("grpc")
def test_grpc_callbacks_are_told_of_a_timeout(api, gated):
    replies = Replies()
    api.client.async_infer(gated.model, api.inputs({"x": filled(1)}), replies, client_timeout=0.05)
    _, result, error = replies.next()
    assert (result, error.status()) == (None, "StatusCode.DEADLINE_EXCEEDED")


@only("grpc")
def test_a_cancelled_grpc_call_tells_its_callback(api, gated, doubling):
    replies = Replies()
    call = api.client.async_infer(gated.model, api.inputs({"x": filled(1)}), replies)
    gated.wait_called()
    call.cancel()
    _, result, error = replies.next()
    assert (result, error.status()) == (None, "StatusCode.CANCELLED")
    assert value(api.client.infer(doubling, api.inputs({"x": filled(1)}))) == 2


@only_aio
def test_a_cancelled_task_leaves_a_usable_client(api, gated, doubling):
    call = api.submit("infer", gated.model, api.inputs({"x": filled(1)}))
    gated.wait_called()
    assert call.cancel()
    assert api.infer(doubling, {"x": filled(1)})["y"][0, 0] == 2


def test_a_call_that_the_client_gave_up_runs_to_its_end(api, gated):
    name = {"http": "network_timeout", "http.aio": "conn_timeout"}.get(api.kind)
    options = {} if name else {"client_timeout": PATIENCE_S}
    errors = (socket.timeout, asyncio.TimeoutError, InferenceServerException)
    with api.other(**({name: PATIENCE_S} if name else {})) as client, pytest.raises(errors) as raised:
        client.infer(gated.model, {"x": filled(1)}, **options)
    if not api.is_http:
        assert raised.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    gated.wait_called()
    gated.gate.open()
    assert api.infer(gated.model, {"x": filled(2)})["y"][0, 0] == 4
    assert gated.seen == [1, 2]
