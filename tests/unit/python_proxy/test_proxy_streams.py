"""Batches that are answered later, by generators and coroutines, behind a proxy whose ``execute`` returns at once."""

import asyncio
import threading

import pytest

from tests.server.processes import wait_for
from tests.unit.batches import DECOUPLED, X, answers, of, submit
from tests.unit.generators import as_async, count_up, count_up_async, count_up_requests
from tests.unit.links import CONFIG

ALL_KINDS = pytest.mark.parametrize(
    "function",
    [
        count_up,
        count_up_async,
        count_up_requests,
        pytest.param(as_async(count_up_requests), id="count_up_requests_async"),
    ],
)


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
    (request,) = submit(serve(lambda requests: as_async(count_up_requests)(requests)), of(3))
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

    requests = submit(serve(as_async(function) if is_async else function, batches_in_flight=1), of(1), of(13), of(1))
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


def test_a_plain_function_that_uses_asyncio_itself_works(serve):
    def function(requests):
        yield [{"y": asyncio.run(twice(requests[0]["x"]))}]

    async def twice(x):
        await asyncio.sleep(0)
        return x * 2

    (request,) = submit(serve(function), {"x": X})
    assert answers(request) == [{"y": [[2, 4]]}]


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


def test_a_request_of_another_rank_fails_and_those_merged_with_it_are_answered_together(serve):
    calls = []

    def double(requests):
        calls.append(len(requests))
        return [{"y": request["x"] * 2} for request in requests]

    requests = submit(serve(double), {"x": X}, {"x": X[0]}, {"x": X}, {"x": X[0]})
    assert [answers(request) for request in (requests[0], requests[2])] == [[{"y": [[2, 4]]}]] * 2
    for bad in (requests[1], requests[3]):
        assert answers(bad) == ["input 'x' has shape [2], expected 2 axes, the first of them the batch's"]
    assert calls == [2]


def test_a_batch_whose_requests_all_have_another_rank_gives_its_slot_back(serve):
    link = serve(returned, batches_in_flight=1)
    for _ in range(3):
        (bad,) = submit(link, {"x": X[0]})
        assert "expected 2 axes" in answers(bad)[0]
    (good,) = submit(link, {"x": X})
    assert answers(good) == [{"y": [[2, 4]]}]
