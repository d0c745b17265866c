"""Batches that are answered later: generators and coroutines behind a proxy whose ``execute`` returns at once."""

import asyncio
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.proxy.channel import MAX_AHEAD, MAX_UNRELEASED_BYTES
from tests.server.processes import wait_for
from tests.unit.backend import InferenceRequest
from tests.unit.links import CONFIG, Link, outcomes

X = np.array([[1, 2]], np.float32)
DECOUPLED = replace(CONFIG, decoupled=True)
TIMEOUT_S = 30.0


def of(count, rows=1):
    """An input that asks for so many responses."""
    return {"x": np.full((rows, 2), count, np.float32)}


@pytest.fixture
def serve(proxy_model, tmp_path):
    """``serve(callable, ...)``: a link whose proxy returns at once."""
    links = []

    def serve(function, *, config=DECOUPLED, batches_in_flight=8, **options):
        folder = tmp_path / str(len(links))
        folder.mkdir()
        links.append(Link(proxy_model, folder, batches_in_flight))
        links[-1].serve(function, config, **options)
        return links[-1]

    threads = set(threading.enumerate())
    yield serve
    for link in links:
        link.end()
    wait_for(lambda: set(threading.enumerate()) <= threads, "all threads to end")


def submit(link, *inputs):
    """Have the proxy execute one batch; returns the requests."""
    requests = [InferenceRequest(x) for x in inputs]
    assert link.model.execute(requests) is None
    return requests


def answers(request):
    """All that a request got."""
    return outcomes(request.sender.all())


@batch
def count_up(x):
    for number in range(int(x[0, 0])):
        yield {"y": x * 0 + number}


@batch
async def count_up_async(x):
    for number in range(int(x[0, 0])):
        await asyncio.sleep(0)
        yield {"y": x * 0 + number}


def count_up_requests(requests):
    for number in range(int(requests[0]["x"][0, 0])):
        yield [{"y": request["x"] * 0 + number} for request in requests]


async def count_up_requests_async(requests):
    for responses in count_up_requests(requests):
        yield responses


ALL_KINDS = pytest.mark.parametrize("function", [count_up, count_up_async, count_up_requests, count_up_requests_async])


@ALL_KINDS
@pytest.mark.parametrize("count", [0, 1, 500])
def test_each_value_of_a_generator_is_a_response_and_they_keep_their_order(serve, function, count):
    (request,) = submit(serve(function), of(count))
    assert answers(request) == [{"y": [[number] * 2]} for number in range(count)]


@ALL_KINDS
def test_each_request_of_a_merged_batch_gets_its_rows_of_each_response(serve, function):
    requests = submit(serve(function), of(2), of(2, rows=3))
    assert [answers(request) for request in requests] == [
        [{"y": [[number] * 2] * rows} for number in range(2)] for rows in (1, 3)
    ]


async def returned(requests):
    return [{"y": request["x"] * 2} for request in requests]


@pytest.mark.parametrize("config", [CONFIG, DECOUPLED])
@pytest.mark.parametrize("function", [returned, lambda requests: [{"y": request["x"] * 2} for request in requests]])
def test_a_returned_value_is_the_only_response(serve, function, config):
    (request,) = submit(serve(function, config=config), {"x": X})
    assert answers(request) == [{"y": [[2, 4]]}]


def test_a_function_that_returns_an_async_generator_is_iterated(serve):
    (request,) = submit(serve(lambda requests: count_up_requests_async(requests)), of(3))
    assert len(answers(request)) == 3


def test_an_error_in_mid_stream_comes_after_the_responses_before_it(serve):
    def function(requests):
        yield from count_up_requests(requests)
        raise ValueError("no more")

    link = serve(function)
    requests = submit(link, of(2), of(2))
    for request in requests:
        assert answers(request) == [{"y": [[0, 0]]}, {"y": [[1, 1]]}, "ValueError: no more"]
    assert len(link.workers) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_only_the_request_at_fault_fails_when_a_merged_call_raises_at_once(serve, is_async):
    def function(requests):
        for request in requests:
            if request["x"][0, 0] == 13:
                raise ValueError("unlucky")
        yield from count_up_requests(requests)

    async def async_function(requests):
        for responses in function(requests):
            yield responses

    requests = submit(serve(async_function if is_async else function, batches_in_flight=1), of(1), of(13), of(1))
    assert [answers(request) for request in requests] == [[{"y": [[0, 0]]}], ["ValueError: unlucky"], [{"y": [[0, 0]]}]]


def test_an_exception_value_ends_the_stream_of_its_request_alone(serve):
    def function(requests):
        yield [{"y": X}, {"y": X}]
        yield [{"y": X}, ValueError("no")]
        yield [{"y": X}, {"y": X}]

    requests = submit(serve(function), of(0), of(0))
    assert [len(answers(request)) for request in requests] == [3, 2]
    assert answers(requests[1])[1] == "ValueError: no"


def test_a_coupled_model_that_answers_twice_gets_an_error(serve):
    (request,) = submit(serve(count_up_async, config=CONFIG), of(2))
    assert "more than once" in answers(request)[0]
    assert len(answers(request)) == 1


def test_generators_take_turns_on_one_thread(serve):
    threads, entered = set(), []
    both = threading.Event()

    def function(requests):
        threads.add(threading.current_thread())
        entered.append(requests)
        for _ in range(1_000_000):
            if both.is_set():
                return
            yield [{"y": X}]

    link = serve(function)
    first, second = submit(link, of(0)), submit(link, of(0))
    wait_for(lambda: len(entered) == 2, "the second generator to start while the first one runs")
    both.set()
    answers(first[0]), answers(second[0])
    assert len(threads) == 1


def test_coroutines_overlap_on_one_event_loop(serve):
    loops, barrier = set(), []

    async def function(requests):
        loops.add(asyncio.get_running_loop())
        barrier.append(requests)
        while len(barrier) < 8:
            await asyncio.sleep(0.001)
        return [{"y": request["x"]} for request in requests]

    link = serve(function, config=CONFIG, batches_in_flight=8)
    requests = [submit(link, {"x": X})[0] for _ in range(8)]
    assert [answers(request) for request in requests] == [[{"y": [[1, 2]]}]] * 8
    assert len(loops) == 1


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

    async def async_function(requests):
        for responses in function(requests):
            yield responses
            await asyncio.sleep(0)

    link = serve(async_function if is_async else function, batches_in_flight=2)
    requests = submit(link, of(0)) + submit(link, of(0))
    third = threading.Thread(target=lambda: requests.extend(submit(link, of(0))))
    third.start()
    wait_for(lambda: len(running) == 2, "two batches to run")
    assert len(requests) == 2
    release.set()
    third.join(TIMEOUT_S)
    for request in requests:
        answers(request)
    assert max(most) == 2


def test_a_plain_function_that_uses_asyncio_itself_works(serve):
    def function(requests):
        yield [{"y": asyncio.run(twice(requests[0]["x"]))}]

    async def twice(x):
        await asyncio.sleep(0)
        return x * 2

    (request,) = submit(serve(function), {"x": X})
    assert answers(request) == [{"y": [[2, 4]]}]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancelled_request_has_its_generator_closed_and_frees_its_place(serve, is_async):
    closed = threading.Event()

    def function(requests):
        try:
            while True:
                yield [{"y": X}]
        finally:
            closed.set()

    async def async_function(requests):
        with closing(function(requests)) as responses:
            for response in responses:
                yield response
                await asyncio.sleep(0.001)

    link = serve(async_function if is_async else function, batches_in_flight=1)
    (request,) = submit(link, of(0))
    wait_for(lambda: request.sender.sent, "a first response")
    request.sender.cancelled = True
    assert all(response.error is None for response in request.sender.all())
    assert closed.wait(TIMEOUT_S)
    closed.clear()
    (second,) = submit(link, of(0))
    wait_for(lambda: second.sender.sent, "a response in the place that was freed")


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
    assert cancelled.wait(TIMEOUT_S)
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


@pytest.mark.parametrize("function", [count_up, count_up_async])
def test_a_stream_waits_while_the_server_is_slow_to_take_it(serve, function):
    made = []
    wide = np.ones((1, MAX_UNRELEASED_BYTES // 16), np.float32)

    def recorded(requests):
        for number in range(20):
            made.append(number)
            yield [{"y": wide}]

    async def recorded_async(requests):
        for responses in recorded(requests):
            yield responses

    link = serve(recorded if function is count_up else recorded_async)
    request = InferenceRequest({"x": X})
    request.sender.is_open.clear()
    link.model.execute([request])
    wait_for(lambda: len(made) >= 5, "the first responses")
    assert len(made) < 10, "a quarter of what may be unreleased each"
    request.sender.is_open.set()
    assert len(request.sender.all()) == 20


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_of_small_responses_runs_only_so_far_ahead(serve, is_async):
    made = []

    def function(requests):
        for number in range(500):
            made.append(number)
            yield [{"y": X}]

    async def async_function(requests):
        for responses in function(requests):
            yield responses
            await asyncio.sleep(0)

    link = serve(async_function if is_async else function)
    request = InferenceRequest({"x": X})
    request.sender.is_open.clear()
    link.model.execute([request])
    wait_for(lambda: len(made) >= MAX_AHEAD, "the first responses")
    time.sleep(0.1)
    assert len(made) <= MAX_AHEAD + 1
    request.sender.is_open.set()
    assert len(request.sender.all()) == 500


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


@pytest.mark.parametrize("function", [count_up, count_up_async])
def test_a_worker_that_ends_fails_its_batches_and_a_new_one_is_found(serve, function):
    link = serve(function)
    (request,) = submit(link, of(10_000_000))
    wait_for(lambda: request.sender.sent, "a first response")
    link.end_worker()
    assert request.sender.all()[-1].error.code == "unavailable"
    link.work(function, DECOUPLED)
    (after,) = submit(link, of(2))
    assert len(answers(after)) == 2


def test_generators_that_still_run_are_closed_when_the_proxy_goes(serve):
    closed = threading.Event()

    def function(requests):
        try:
            while True:
                yield [{"y": X}]
        finally:
            closed.set()

    link = serve(function)
    (request,) = submit(link, of(0))
    wait_for(lambda: request.sender.sent, "a first response")
    link.model.finalize()
    assert closed.wait(TIMEOUT_S)


def test_an_instance_is_busy_while_a_stream_runs_and_quiet_after(serve):
    release = threading.Event()

    def function(requests):
        while not release.is_set():
            yield [{"y": X}]

    link = serve(function)
    (request,) = submit(link, of(0))
    wait_for(lambda: request.sender.sent, "a first response")
    assert link.workers[0].quiet_s() == 0.0
    release.set()
    request.sender.all()
    wait_for(lambda: link.workers[0].quiet_s() > 0.0, "the instance to be quiet")


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
    closed = threading.Event()

    def function(requests):
        try:
            while True:
                yield [{"y": X}]
        finally:
            closed.set()

    link = serve(function, batches_in_flight=1)
    (request,) = submit(link, of(0))
    (response,) = request.sender.all()
    assert response.error.code == "unavailable"
    assert "memory is short" in response.error.message
    assert closed.wait(TIMEOUT_S)
    monkeypatch.setattr(streams().Memory, "is_short", lambda self: False)
    (after,) = submit(link, of(0))
    wait_for(lambda: after.sender.sent, "a response once there is memory")


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
    return sys.modules["pytriton.proxy.streams"]


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
