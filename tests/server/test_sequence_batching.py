"""The requests of a sequence reach one callable, in order; those of several sequences share its calls."""

import asyncio
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.model_config import DirectStrategy, OldestStrategy, SequenceBatcher, Tensor
from tests.server.arrays import filled
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tritonclients import only

both = pytest.mark.parametrize("api", ["http", "grpc"], indirect=True)
only_grpc = only("grpc")

LONG_US = 3_600_000_000
DIRECT = SequenceBatcher(max_sequence_idle_microseconds=LONG_US)
OLDEST = SequenceBatcher(
    strategy=OldestStrategy(max_candidate_sequences=4, max_queue_delay_microseconds=LONG_US, preferred_batch_size=[3]),
    max_sequence_idle_microseconds=LONG_US,
)


class Log:
    """A callable that keeps the first value of each request, by call."""

    def __init__(self):
        self.calls = []

    def __call__(self, requests):
        self.calls.append([float(request["x"][0, 0]) for request in requests])
        return [{"y": request["x"]} for request in requests]


def send(api, model, sequence, value, start=False, end=False, **options):
    """Start a request of a sequence."""
    flags = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
    return api.submit("infer", model, api.inputs({"x": filled(value)}), **flags, **options)


def run(api, model, sequence, values):
    """All requests of a sequence, each after the answer to the one before."""
    for number, value in enumerate(values):
        answer = send(api, model, sequence, value, number == 0, number == len(values) - 1).result(DEADLINE_S)
        assert answer.as_numpy("y")[0, 0] == value


@both
@pytest.mark.parametrize("batcher", [DIRECT, SequenceBatcher(strategy=OldestStrategy(max_candidate_sequences=8))])
def test_a_sequence_stays_with_its_callable_and_in_order(api, bind, batcher):
    logs = [Log(), Log()]
    model = bind(logs, batcher=batcher, max_batch_size=4)
    sequences = {number: [number * 100 + step for step in range(5)] for number in range(1, 9)}
    with ThreadPoolExecutor(len(sequences)) as pool:
        list(pool.map(lambda number: run(api, model, number, sequences[number]), sequences))
    places = defaultdict(set)
    steps = defaultdict(list)
    for place, log in enumerate(logs):
        for call in log.calls:
            for value in call:
                places[value // 100].add(place)
                steps[value // 100].append(value)
    assert dict(steps) == sequences
    assert [len(found) for found in places.values()] == [1] * 8
    assert all(log.calls for log in logs)


@both
def test_texts_are_ids_of_sequences_too(api, bind):
    log = Log()
    model = bind(log, batcher=DIRECT)
    run(api, model, "a-text", [1, 2, 3])
    assert log.calls == [[1], [2], [3]]


@both
def test_requests_that_the_server_puts_into_idle_slots_reach_no_callable(api, bind):
    log = Log()
    model = bind(log, batcher=DIRECT, max_batch_size=4)
    for number in (1, 2, 3):
        send(api, model, number, number, start=True).result(DEADLINE_S)
    send(api, model, 3, 33).result(DEADLINE_S)
    assert log.calls == [[1], [2], [3], [33]]


@both
def test_idle_slots_are_left_out_of_merged_arrays_too(api, bind):
    seen = []

    @batch
    def double(x):
        seen.append(x[:, 0].tolist())
        return [x * 2]

    model = bind(double, batcher=DIRECT, max_batch_size=4)
    for number in (1, 2):
        answer = send(api, model, number, number, start=True).result(DEADLINE_S)
        assert answer.as_numpy("y")[0, 0] == 2 * number
    assert seen == [[1], [2]]


@only_grpc
def test_models_with_several_inputs_and_texts_leave_idle_slots_out(api, bind):
    seen = []

    def echo(requests):
        seen.append([(request["a"].tolist(), request["b"].tolist(), [*request]) for request in requests])
        return [{"y": request["a"]} for request in requests]

    inputs = [Tensor(name="a", shape=(1,), dtype=np.float32), Tensor(name="b", shape=(1,), dtype=bytes)]
    model = bind(echo, inputs, batcher=DIRECT)
    for number in (1, 2):
        arrays = {"a": filled(number, 1, 1), "b": np.array([[b"text"]], object)}
        api.infer(model, arrays, sequence_id=number, sequence_start=True)
    assert seen == [[([[number]], [[b"text"]], ["a", "b"])] for number in (1, 2)]


@only_grpc
def test_sequences_share_a_call_when_enough_slots_have_a_request(api, bind):
    log = Log()
    strategy = DirectStrategy(max_queue_delay_microseconds=LONG_US, minimum_slot_utilization=1.0)
    model = bind(log, batcher=SequenceBatcher(strategy=strategy), max_batch_size=2)
    answers = [send(api, model, number, number, start=True) for number in (1, 2)]
    for answer in answers:
        answer.result(DEADLINE_S)
    assert [sorted(call) for call in log.calls] == [[1, 2]]


@only_grpc
def test_the_oldest_requests_of_several_sequences_share_a_call(api, bind):
    log = Log()
    model = bind(log, batcher=OLDEST, max_batch_size=4)
    answers = [send(api, model, number, number, start=True) for number in (1, 2, 3)]
    for answer in answers:
        answer.result(DEADLINE_S)
    assert [sorted(call) for call in log.calls] == [[1, 2, 3]]


@only_grpc
@pytest.mark.parametrize("batcher", [DIRECT, SequenceBatcher(strategy=OldestStrategy(max_candidate_sequences=1))])
def test_a_sequence_waits_until_another_one_has_ended(api, bind, pending, batcher):
    log = Log()
    model = bind(log, batcher=batcher, max_batch_size=1)
    send(api, model, 1, 1, start=True).result(DEADLINE_S)
    waiting = send(api, model, 2, 2, start=True)
    wait_for(lambda: pending(model) == 1, "the second sequence to wait")
    send(api, model, 1, 11, end=True).result(DEADLINE_S)
    waiting.result(DEADLINE_S)
    assert log.calls == [[1], [11], [2]]


@only_grpc
def test_an_idle_sequence_ends(api, bind):
    batcher = SequenceBatcher(max_sequence_idle_microseconds=1000)
    model = bind(Log(), batcher=batcher)
    send(api, model, 1, 1, start=True).result(DEADLINE_S)

    def has_ended():
        try:
            send(api, model, 2, 2, start=True, end=True).result(DEADLINE_S)  # the server looks when a request comes
            send(api, model, 1, 1).result(DEADLINE_S)
        except Exception as error:
            return "must specify the START flag" in str(error)
        return False

    wait_for(has_ended, "the idle sequence to end")


@both
def test_a_request_without_a_sequence_or_a_start_is_refused(api, bind):
    model = bind(Log(), batcher=DIRECT)
    with api.refuses("INVALID_ARGUMENT", "must specify a non-zero or non-empty correlation ID"):
        api.infer(model, {"x": filled(1)})
    with api.refuses("INVALID_ARGUMENT", "must specify the START flag"):
        api.infer(model, {"x": filled(1)}, sequence_id=5)


@only_grpc
@pytest.mark.parametrize("batcher", [DIRECT, SequenceBatcher(strategy=OldestStrategy(max_candidate_sequences=4))])
def test_an_async_callable_never_works_on_two_requests_of_a_sequence_at_once(api, bind, batcher):
    working, most = [], []

    async def slow(requests):
        working.append(requests)
        most.append(len(working))
        await asyncio.sleep(0.02)
        working.remove(requests)
        return [{"y": request["x"]} for request in requests]

    model = bind(slow, batcher=batcher, max_batch_size=4)
    send(api, model, 1, 0, start=True).result(DEADLINE_S)
    for answer in [send(api, model, 1, number) for number in range(1, 9)]:
        answer.result(DEADLINE_S)
    assert most == [1] * 9


@only_grpc
def test_without_batching_sequences_are_kept_together_too(api, bind):
    seen = []

    def echo(requests):
        seen.append([request["x"].tolist() for request in requests])
        return [{"y": request["x"]} for request in requests]

    model = bind(echo, batcher=DIRECT, batching=False)
    for value in (1.0, 2.0):
        flags = {"sequence_start": value == 1, "sequence_end": value == 2}
        api.infer(model, {"x": np.array([value], np.float32)}, sequence_id=1, **flags)
    assert seen == [[[1.0]], [[2.0]]]
