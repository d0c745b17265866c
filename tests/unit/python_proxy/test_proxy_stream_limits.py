"""How far streams run ahead of a server, what memory they hold, and how they end before their time."""

import asyncio
import json
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from pytriton.wire.channel import MAX_AHEAD, MAX_UNRELEASED_BYTES
from pytriton.wire.connect import accept
from pytriton.wire.frames import ERROR, LIMIT, RESPONSE, Frame
from pytriton.wire.tensors import tensor
from pytriton.worker.instance import listening
from tests.server.processes import DEADLINE_S, wait_for
from tests.unit.backend import InferenceRequest
from tests.unit.batches import X, answers, in_thread, of, submit
from tests.unit.generators import Endless, as_async, count_up, count_up_async
from tests.unit.links import CONFIG, Link


@pytest.mark.parametrize("is_async", [False, True])
def test_no_more_batches_are_handed_over_than_may_be_in_flight(serve, is_async):
    running, most = [], []
    release = threading.Event()

    def function(requests):
        running.append(requests)
        most.append(len(running))
        while not release.is_set():
            yield [{"y": X}]
        running.pop()

    link = serve(as_async(function, 0) if is_async else function, batches_in_flight=2)
    requests = []
    server = in_thread(lambda: [requests.extend(submit(link, of(0))) for _ in range(3)])
    wait_for(lambda: len(running) == 2, "two batches to run")
    assert len(requests) == 1, "the server forms no third batch meanwhile"
    release.set()
    server.join(DEADLINE_S)
    for request in requests:
        answers(request)
    assert max(most) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancelled_request_has_its_generator_closed_and_frees_its_place(serve, is_async):
    function = Endless()
    link = serve(as_async(function, 0.001) if is_async else function, batches_in_flight=1)
    first, second = InferenceRequest(of(0)), InferenceRequest(of(0))
    server = in_thread(lambda: [link.model.execute([request]) for request in (first, second)])
    wait_for(lambda: first.sender.sent, "a first response")
    first.sender.cancelled = True
    assert all(response.error is None for response in first.sender.all())
    assert function.closed.wait(DEADLINE_S)
    wait_for(lambda: second.sender.sent, "a response in the place that was freed")
    second.sender.cancelled = True
    server.join(DEADLINE_S)


def test_a_worker_changes_how_many_batches_may_be_in_flight(streaming):
    with closing(listening(str(streaming.path))) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(streaming.connect)
        with closing(accept(listener.accept()[0], DEADLINE_S)[1]) as worker:
            connecting.result()
            requests = []

            def submit_all(count):
                requests.extend(request for _ in range(count) for request in submit(streaming, of(0)))

            for limit in (1, 3, 2):
                worker.send(Frame(LIMIT, limit))
                wait_for(lambda limit=limit: streaming.model._executor._slots._limit == limit, "the limit to arrive")
                server = in_thread(submit_all, limit)
                batches = [worker.receive() for _ in range(limit)]
                assert server.is_alive(), "it waits for a reply before it forms another batch"
                for batch in batches:
                    worker.send(*reply_to(batch, limit))
                server.join(DEADLINE_S)
            assert [answers(request)[0]["y"] for request in requests] == [[[n, n]] for n in (1, 3, 3, 3, 2, 2)]


def test_a_coroutine_is_cancelled_with_its_request(serve):
    cancelled = threading.Event()

    async def function(requests):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    (request,) = submit(serve(function, config=CONFIG), {"x": X})
    request.sender.cancelled = True
    assert cancelled.wait(DEADLINE_S)
    assert [response.error.code for response in request.sender.all()] == ["cancelled"]


def test_a_merged_call_goes_on_for_the_requests_that_were_not_cancelled(serve):
    go_on = threading.Event()

    def function(requests):
        yield [{"y": X}, {"y": X}]
        while not go_on.is_set():
            yield [{"y": X}, {"y": X}]

    left, stays = submit(serve(function), of(0), of(0))
    left.sender.cancelled = True
    left.sender.all()
    before = len(stays.sender.sent)
    wait_for(lambda: len(stays.sender.sent) > before, "the other request to get more responses")
    go_on.set()
    assert all(response.error is None for response in stays.sender.all())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_that_the_server_refuses_to_hear_of_harms_no_other(serve, is_async):
    function = Endless()
    link = serve(as_async(function, 0.001) if is_async else function, batches_in_flight=4)
    refused, other = submit(link, of(0), of(0))
    wait_for(lambda: refused.sender.sent and other.sender.sent, "first responses")
    refused.sender.is_broken = True
    before = len(other.sender.sent)
    wait_for(lambda: len(other.sender.sent) > before + 3, "more responses to the other request")
    other.sender.cancelled = True  # cancellations are still looked for
    assert all(response.error is None for response in other.sender.all())
    assert function.closed.wait(DEADLINE_S)


@pytest.mark.parametrize("function", [count_up, count_up_async])
def test_a_stream_waits_while_the_server_is_slow_to_take_it(serve, function):
    made = []
    wide = np.ones((1, MAX_UNRELEASED_BYTES // 16), np.float32)

    def recorded(requests):
        for number in range(20):
            made.append(number)
            yield [{"y": wide}]

    link = serve(recorded if function is count_up else as_async(recorded))
    request = InferenceRequest({"x": X})
    request.sender.is_open.clear()
    link.model.execute([request])
    wait_for(lambda: len(made) >= 5, "the first responses")
    assert len(made) < 10, "a quarter of what may be unreleased each"
    request.sender.is_open.set()
    assert len(request.sender.all()) == 20


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_of_small_responses_runs_only_so_far_ahead(serve, is_async):
    made, ahead = [], []

    def function(requests):
        for number in range(500):
            made.append(number)
            ahead.append(len(made) - len(request.sender.sent))
            yield [{"y": X}]

    link = serve(as_async(function, 0) if is_async else function)
    request = InferenceRequest({"x": X})
    request.sender.is_open.clear()
    link.model.execute([request])
    wait_for(lambda: len(made) >= MAX_AHEAD, "the first responses")
    request.sender.is_open.set()
    assert len(request.sender.all()) == 500
    assert max(ahead) <= MAX_AHEAD + 1


def test_memory_of_a_stream_is_released_while_it_runs(serve):
    wide = np.ones((1, 100_000), np.float32)

    def function(requests):
        for _ in range(300):
            yield [{"y": wide}]

    link = serve(function)
    (request,) = submit(link, of(0))
    assert len(request.sender.all()) == 300
    (second,) = submit(link, of(0))
    assert len(second.sender.all()) == 300


def test_generators_that_still_run_are_closed_when_the_proxy_goes(serve):
    function = Endless()
    link = serve(function)
    (request,) = submit(link, of(0))
    wait_for(lambda: request.sender.sent, "a first response")
    link.model.finalize()
    assert function.closed.wait(DEADLINE_S)


def test_a_stream_pauses_while_memory_is_short(serve, monkeypatch):
    short = threading.Event()
    short.set()
    monkeypatch.setattr(streams(), "CHECK_BYTES", 1)
    monkeypatch.setattr(streams().Memory, "is_short", lambda self: short.is_set())
    made = []

    def function(requests):
        for number in range(10_000):
            made.append(number)
            yield [{"y": X}]

    (request,) = submit(serve(function), of(0))
    wait_for(lambda: made, "the first response")
    assert request.sender.sent == []
    short.clear()
    assert len(request.sender.all()) == 10_000


def test_a_stream_fails_and_is_closed_when_memory_stays_short(serve, monkeypatch):
    monkeypatch.setattr(streams(), "CHECK_BYTES", 1)
    monkeypatch.setattr(streams(), "PATIENCE_S", 0.05)
    monkeypatch.setattr(streams().Memory, "is_short", lambda self: True)
    function = Endless()
    link = serve(function, batches_in_flight=1)
    (request,) = submit(link, of(0))
    (response,) = request.sender.all()
    assert response.error.code == "unavailable"
    assert "memory is short" in response.error.message
    assert function.closed.wait(DEADLINE_S)
    monkeypatch.setattr(streams().Memory, "is_short", lambda self: False)
    after = InferenceRequest(of(0))
    server = in_thread(link.model.execute, [after])
    wait_for(lambda: after.sender.sent, "a response once there is memory")
    after.sender.cancelled = True
    server.join(DEADLINE_S)


def test_releases_never_wait_for_a_worker_that_waits_to_be_read(serve):
    """Both sides send large frames at once, more of them than the socket holds."""
    wide = np.ones((1, 8_000), np.float32)  # inline, but only a few fit in the socket's buffer
    wider = np.ones((1, 20_000), np.float32)  # in the arena

    def function(requests):
        for number in range(50):
            yield [{"y": wider if number % 2 else wide}]

    link = serve(function, batches_in_flight=64)
    requests = [submit(link, {"x": wide})[0] for _ in range(64)]
    assert [len(request.sender.all()) for request in requests] == [50] * 64


def streams():
    return sys.modules["pytriton.python_proxy.concurrent"]


def test_memory_is_looked_at_after_so_many_bytes_of_responses(serve, monkeypatch):
    looks = []
    monkeypatch.setattr(streams().Memory, "is_short", lambda self: looks.append(1))
    wide = np.ones((1, streams().CHECK_BYTES // 16), np.float32)

    def function(requests):
        for _ in range(20):
            yield [{"y": wide}]

    (request,) = submit(serve(function), of(0))
    assert len(request.sender.all()) == 20
    assert len(looks) == 5


@pytest.fixture
def streaming(proxy_model, tmp_path):
    """A link whose proxy returns at once, and which no worker serves."""
    link = Link(proxy_model, tmp_path, batches_in_flight=8)
    yield link
    link.end()


def reply_to(request, value):
    return Frame(RESPONSE, request.number, 1, [1]), [tensor(0, np.full((1, 2), value, np.float32))]


def test_a_worker_answers_no_batch_that_another_connection_has(streaming):
    with closing(listening(str(streaming.path))) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(streaming.connect)
        connection, _ = listener.accept()
        dying = accept(connection, DEADLINE_S)[1]
        connecting.result()
        (first,) = submit(streaming, {"x": X})
        dying.receive()
        connection.shutdown(socket.SHUT_RD)  # it takes no batch any more
        submitting = pool.submit(submit, streaming, {"x": X})
        with closing(dying), closing(accept(listener.accept()[0], DEADLINE_S)[1]) as successor:
            (second,) = submitting.result()
            batch = successor.receive()
            dying.send(*reply_to(batch, 666))
            assert "belongs to no batch" in answers(first)[0]
            successor.send(*reply_to(batch, 2))
            assert answers(second) == [{"y": [[2, 2]]}]


def test_a_request_may_be_cancelled_while_it_waits_for_a_slot_to_be_repeated(streaming):
    """All slots are those of batches that the worker does not answer."""
    together = json.dumps({"message": "no", "code": "INTERNAL", "isolate": True}).encode()
    with closing(listening(str(streaming.path))) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(streaming.connect)
        with closing(accept(listener.accept()[0], DEADLINE_S)[1]) as worker:
            connecting.result()
            worker.send(Frame(LIMIT, 2))
            wait_for(lambda: streaming.model._executor._slots._limit == 2, "the limit to arrive")
            first, second = submit(streaming, {"x": X}, {"x": X})
            submitting = pool.submit(submit, streaming, {"x": X})
            batch, other = worker.receive(), worker.receive()
            worker.send(Frame(ERROR, batch.number, 2, metadata=together))
            alone = worker.receive()
            second.sender.cancelled = True
            assert [response.error.code for response in second.sender.all()] == ["cancelled"]
            worker.send(*reply_to(alone, 1))
            worker.send(*reply_to(other, 3))
            (third,) = submitting.result()
            assert [answers(request) for request in (first, third)] == [[{"y": [[1, 1]]}], [{"y": [[3, 3]]}]]
            (last,) = submit(streaming, {"x": X})
            worker.send(*reply_to(worker.receive(), 4))
            assert answers(last) == [{"y": [[4, 4]]}], "the cancelled request was not sent again"


def test_a_batch_gets_no_number_that_another_one_has(streaming):
    with closing(listening(str(streaming.path))) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(streaming.connect)
        with closing(accept(listener.accept()[0], DEADLINE_S)[1]) as worker:
            connecting.result()
            (long,) = submit(streaming, {"x": X})
            streaming.model._executor._worker._number = 0  # as after 2**32 batches
            (other,) = submit(streaming, {"x": X})
            batches = [worker.receive(), worker.receive()]
            for value, batch in enumerate(batches):
                worker.send(*reply_to(batch, value))
            assert [answers(request) for request in (long, other)] == [[{"y": [[0, 0]]}], [{"y": [[1, 1]]}]]
