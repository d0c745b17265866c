import asyncio
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import prometheus_client
import pytest

from pytriton.decorators import batch
from pytriton.decorators.batching import whole_batch_form
from pytriton.wire.frames import REQUEST, Frame, pack, unpack
from pytriton.wire.tensors import tensor
from pytriton.worker.inference import Inference, Options
from pytriton.worker.interfaces import BatchObserver
from pytriton.worker.metrics import MAX_ERROR_CLASSES, CallableMetrics
from pytriton.worker.observation import Observation
from tests.unit.links import CONFIG

DECOUPLED = replace(CONFIG, decoupled=True)
X = np.array([[1, 2], [3, 4]], np.float32)


class Recorder(BatchObserver):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def begin(self, requests):
        self.told.append(f"begin {len(requests)}")

    def resume(self):
        self.told.append("resume")

    def pause(self):
        self.told.append("pause")

    def failed(self, error, request=None, again=False):
        self.told.append(f"failed {type(error).__name__} {request}{' again' * again}")

    def end(self, cancelled=False):
        self.told.append(f"end{' cancelled' * cancelled}")


class Recording(Observation):
    """Has each batch recorded."""

    def __init__(self):
        super().__init__()
        self.recorder = Recorder()

    def is_idle(self):
        return False

    def observers(self, model, version, frame):
        assert (model, version) == ("m", 1)
        return [self.recorder]


def a_batch(rows=(1, 1)):
    frame = Frame(REQUEST, 0, len(rows), list(rows))
    return unpack(memoryview(bytearray(pack(frame, [tensor(0, X[: sum(rows)])]))))


def observed(observation, function, config=CONFIG, **options):
    return Inference(function, config, Options(**options), lambda: None, observation=observation)


@pytest.fixture
def recording():
    return Recording()


def same(requests):
    return [{"y": request["x"]} for request in requests]


def count_to_two(requests):
    yield same(requests)
    yield same(requests)


async def count_to_two_async(requests):
    yield same(requests)
    yield same(requests)


def test_a_call_is_watched_from_its_beginning_to_its_end(recording):
    observed(recording, same).answer(a_batch())
    assert recording.recorder.told == ["resume", "begin 2", "pause", "end"]


def test_a_callable_that_gets_no_requests_is_watched_too(recording):
    function = batch(lambda x: {"y": x})
    form = whole_batch_form(function)
    inference = Inference(function, CONFIG, Options(), lambda: None, form, observation=recording)
    inference.answer(a_batch())
    assert recording.recorder.told == ["resume", "pause", "end"]


@pytest.mark.parametrize(("isolate", "told"), [(True, "failed KeyError None again"), (False, "failed KeyError None")])
def test_a_failed_call_is_told_and_whether_it_is_made_again(recording, isolate, told):
    def failing(requests):
        raise KeyError("k")

    observed(recording, failing, isolate_errors=isolate).answer(a_batch())
    assert recording.recorder.told == ["resume", "begin 2", told, "pause", "end"]


def test_a_failed_request_is_told_by_its_index(recording):
    def failing(requests):
        return [{"y": requests[0]["x"]}, KeyError("k")]

    observed(recording, failing).answer(a_batch())
    assert recording.recorder.told == ["resume", "begin 2", "failed KeyError 1", "pause", "end"]


def test_a_generator_is_watched_while_it_runs(recording):
    replies = observed(recording, count_to_two, DECOUPLED).stream(a_batch())
    assert recording.recorder.told == []
    assert [next(replies)[0].more for _ in range(3)] == [True, True, False]
    replies.close()
    assert recording.recorder.told == ["resume", "begin 2", *["pause", "resume"] * 3, "pause", "end"]


def test_a_generator_that_is_closed_early_was_cancelled(recording):
    replies = observed(recording, count_to_two, DECOUPLED).stream(a_batch())
    next(replies)
    replies.close()
    replies.close()
    assert recording.recorder.told == ["resume", "begin 2", "pause", "resume", "pause", "end cancelled"]


def test_a_generator_that_is_closed_before_its_beginning_was_cancelled(recording):
    observed(recording, count_to_two, DECOUPLED).stream(a_batch()).close()
    assert recording.recorder.told == ["end cancelled"]


def test_an_asynchronous_generator_is_watched_while_it_runs(recording):
    async def main():
        async with aclosing(observed(recording, count_to_two_async, DECOUPLED).stream_async(a_batch())) as replies:
            return [reply.more async for reply, _ in replies]

    assert asyncio.run(main()) == [True, True, False]
    told = recording.recorder.told
    assert (told[:3], told[-2:], told.count("end")) == (["resume", "begin 2", "pause"], ["pause", "end"], 1)


def test_a_task_that_is_cancelled_is_told(recording):
    async def waiting(requests):
        await asyncio.Event().wait()

    async def consume():
        async with aclosing(observed(recording, waiting).stream_async(a_batch())) as replies:
            async for _ in replies:
                pass

    async def main():
        task = asyncio.create_task(consume())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert recording.recorder.told == [
        "resume",
        "begin 2",
        "failed CancelledError None",
        "pause",
        "resume",
        "pause",
        "end",
    ]


def test_without_observers_nothing_is_observed():
    frame = a_batch()
    observed(Observation(), same).answer(frame)
    assert frame.observers == ()


def metric(registry, name, **labels):
    return registry.get_sample_value(f"pytriton_{name}", {"model": "m", "version": "1", **labels})


def measured(registry, function, config=CONFIG, **options):
    observation = Observation()
    observation.metrics = CallableMetrics.of(registry)
    return observed(observation, function, config, **options)


def test_a_batch_waits_until_its_callable_runs(registry):
    replies = measured(registry, count_to_two, DECOUPLED).stream(a_batch())
    assert (metric(registry, "waiting_batches"), metric(registry, "in_flight_batches")) == (1, 1)
    next(replies)
    assert (metric(registry, "waiting_batches"), metric(registry, "in_flight_batches")) == (0, 1)
    replies.close()
    assert (metric(registry, "waiting_batches"), metric(registry, "in_flight_batches")) == (0, 0)
    assert metric(registry, "callable_seconds_count") == 1


def test_a_batch_that_was_cancelled_while_it_waited_does_not_wait_for_ever(registry):
    measured(registry, count_to_two, DECOUPLED).stream(a_batch()).close()
    assert (metric(registry, "waiting_batches"), metric(registry, "in_flight_batches")) == (0, 0)
    assert metric(registry, "callable_seconds_count") == 0


def test_requests_that_come_again_have_not_failed_yet(registry):
    def failing(requests):
        raise KeyError("k")

    inference = measured(registry, failing)
    inference.answer(a_batch())
    assert metric(registry, "failed_requests_total", error="KeyError") is None
    inference.answer(a_batch((1,)))
    assert metric(registry, "failed_requests_total", error="KeyError") == 1


def test_classes_of_errors_without_number_are_counted_together(registry):
    def failing(requests):
        raise type(f"Error{next(numbers)}", (Exception,), {})("e")

    numbers = iter(range(1000))
    inference = measured(registry, failing, isolate_errors=False)
    for _ in range(MAX_ERROR_CLASSES + 3):
        inference.answer(a_batch())
    assert metric(registry, "failed_requests_total", error="Error0") == 2
    assert metric(registry, "failed_requests_total", error="other") == 6


def test_all_servers_of_a_process_share_the_metrics_of_a_registry(registry):
    assert CallableMetrics.of(registry) is CallableMetrics.of(registry)
    assert CallableMetrics.of(prometheus_client.CollectorRegistry()) is not CallableMetrics.of(registry)
