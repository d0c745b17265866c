"""States that callables keep for sequences of requests."""

import asyncio
import json

import numpy as np
import pytest

from pytriton.decorators import PerSequence, batch, group_by_keys, sequence_states, with_requests
from pytriton.decorators.sequences import GRACE_S, SequenceStates
from pytriton.exceptions import (
    ErrorCode,
    PyTritonBadParameterError,
    PyTritonRequestError,
    PyTritonUnrecoverableError,
    PyTritonValidationError,
)
from pytriton.model_config import SequenceBatcher
from pytriton.proxy.types import Request
from tests.unit.totals import Total


@sequence_states(Total)
@batch
def totals(x, states):
    return {"y": np.concatenate([state(row[None])["y"] for state, row in zip(states, x, strict=True)])}


@sequence_states(Total)
@batch
async def totals_async(x, states):
    await asyncio.sleep(0)
    return totals.__wrapped__.__wrapped__(x, states)


def of(sequence, value, flags=""):
    """A request with one row; flags ``s`` and ``e`` are start and end."""
    return Request(
        {"x": np.array([[value]], np.float32)},
        correlation_id=sequence,
        sequence_start="s" in flags,
        sequence_end="e" in flags,
    )


def values(responses):
    return [
        response.code if isinstance(response, PyTritonRequestError) else response["y"][0, 0].item()
        for response in responses
    ]


@pytest.fixture(params=["PerSequence", "sequence_states", "async"])
def infer(request, bind):
    """Totals of a list of requests."""
    function = {"PerSequence": PerSequence(Total), "sequence_states": totals, "async": totals_async}[request.param]
    bind(function)
    if request.param == "async":
        return lambda requests: values(asyncio.run(awaited(function(requests))))
    return lambda requests: values(function(requests))


async def awaited(returned):
    return await returned if asyncio.iscoroutine(returned) else returned


def test_each_sequence_has_a_state_of_its_own(infer):
    assert infer([of(1, 10, "s"), of("1", 20, "s")]) == [10, 20]
    assert infer([of("1", 1), of(1, 2)]) == [21, 12]


def test_a_start_begins_anew(infer):
    infer([of(3, 10, "s")])
    assert infer([of(3, 1, "s")]) == [1]
    assert infer([of(3, 1)]) == [2]


def test_the_state_is_gone_after_the_end(infer):
    infer([of(4, 10, "s")])
    assert infer([of(4, 1, "e")]) == [11]
    assert infer([of(4, 1)]) == [ErrorCode.INVALID_ARG]


def test_a_sequence_of_one_request_starts_and_ends_at_once(infer):
    assert infer([of(5, 1, "se")]) == [1]
    assert infer([of(5, 1)]) == [ErrorCode.INVALID_ARG]


def test_a_sequence_without_a_start_fails_alone(infer):
    assert infer([of(6, 10, "s"), of(7, 20), of(8, 30, "s")]) == [10, ErrorCode.INVALID_ARG, 30]
    assert infer([of(6, 1), of(8, 1)]) == [11, 31]


def test_a_request_of_no_sequence_fails_alone(infer):
    assert infer([of(None, 1), of(9, 2, "s")]) == [ErrorCode.INVALID_ARG, 2]
    assert infer([Request({"x": np.ones((1, 1), np.float32)})]) == [ErrorCode.INVALID_ARG]


def test_several_requests_of_a_sequence_in_one_call_are_taken_in_their_order(infer):
    assert infer([of(1, 1, "s"), of(1, 2), of(1, 3, "e"), of(1, 4)]) == [1, 3, 6, ErrorCode.INVALID_ARG]


def test_the_error_says_what_to_do():
    (error,) = PerSequence(Total)([of("mine", 1)])
    assert "'mine'" in str(error)
    assert "sequence_start" in str(error)
    (error,) = PerSequence(Total)([{"x": np.ones((1, 1), np.float32)}])
    assert "sequence id" in str(error)


def test_a_state_that_cannot_be_made_fails_its_request_alone():
    made = iter([Total(), ValueError("no room"), Total()])

    def make():
        state = next(made)
        if isinstance(state, ValueError):
            raise state
        return state

    first, second, third = PerSequence(make)([of(number, number, "s") for number in range(3)])
    assert values([first, third]) == [0, 2]
    assert str(second) == "no room"


def test_what_an_object_raises_fails_its_request_alone_and_the_sequence_goes_on():
    class Picky(Total):
        def __call__(self, x):
            if x[0, 0] < 0:
                raise ValueError("negative")
            return super().__call__(x)

    infer = PerSequence(Picky)
    infer([of(1, 1, "s"), of(2, 2, "s")])
    failed, answered = infer([of(1, -1), of(2, 2)])
    assert str(failed) == "negative"
    assert values([answered]) == [4]
    assert values(infer([of(1, 1)])) == [2]


def test_an_unrecoverable_error_is_not_of_one_request():
    class Broken(Total):
        def __call__(self, x):
            raise PyTritonUnrecoverableError("the device is lost")

    with pytest.raises(PyTritonUnrecoverableError):
        PerSequence(Broken)([of(1, 1, "s")])


def test_an_object_may_return_a_list(bind):
    class Listing(Total):
        def __call__(self, x):
            return [super().__call__(x)["y"]]

    function = PerSequence(Listing)
    bind(function)
    assert values(function([of(1, 3, "s")])) == [3]


@pytest.mark.parametrize("kind", ["coroutine", "generator", "async generator"])
def test_objects_that_do_not_answer_at_once_are_refused_and_the_decorator_named(kind):
    class Coroutine:
        async def __call__(self, x):
            return {"y": x}

    class Generator:
        def __call__(self, x):
            yield {"y": x}

    class AsyncGenerator:
        async def __call__(self, x):
            yield {"y": x}

    made = {"coroutine": Coroutine, "generator": Generator, "async generator": AsyncGenerator}[kind]
    with pytest.raises(PyTritonBadParameterError, match="@sequence_states"):
        PerSequence(made)


@pytest.mark.parametrize("make", [None, 3, "Total"])
@pytest.mark.parametrize("keep", [PerSequence, sequence_states])
def test_what_cannot_make_states_is_refused(keep, make):
    with pytest.raises(PyTritonBadParameterError, match="called"):
        keep(make)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_must_be_positive(seconds):
    with pytest.raises(PyTritonBadParameterError, match="idle_timeout_s"):
        PerSequence(Total, idle_timeout_s=seconds)


def test_a_result_that_is_no_list_of_all_requests_is_refused():
    function = sequence_states(Total)(lambda requests, states: [{"y": requests[0]["x"]}])
    with pytest.raises(PyTritonValidationError, match="got 2 requests"):
        function([of(1, 1, "s"), of(2, 2, "s")])


def test_generators_keep_the_state_of_their_sequence():
    @sequence_states(Total)
    def count(requests, states):
        for _ in range(3):
            yield [state(request["x"]) for request, state in zip(requests, states, strict=True)]

    assert [values(responses) for responses in count([of(1, 2, "se"), of(2, 1)])] == [
        [2 * n, ErrorCode.INVALID_ARG] for n in (1, 2, 3)
    ]


def test_it_works_below_decorators_that_pass_requests_on():
    function = group_by_keys(totals)
    assert values(function([of(1, 1, "s"), of(2, 2, "s")])) == [1, 2]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_an_idle_sequence_is_dropped_and_an_older_busy_one_is_kept():
    clock = Clock()
    states = SequenceStates(Total, 10.0, clock)
    states.of([of("busy", 0, "s"), of("idle", 0, "s")])
    for _ in range(3):
        clock.now += 6
        (kept,) = states.of([of("busy", 0)])
        assert isinstance(kept, Total)
    assert len(states) == 1
    (error,) = states.of([of("idle", 0)])
    assert "10 s" in str(error)


def test_a_sequence_is_idle_from_the_end_of_its_call():
    clock = Clock()
    states = SequenceStates(Total, 10.0, clock)
    states.of([of(1, 0, "s")])
    clock.now += 8
    states.used([of(1, 0)])
    clock.now += 8
    states.of([of(2, 0, "s")])
    assert len(states) == 2


def test_the_models_timeout_counts_where_none_is_given_and_some_seconds_more(bind):
    clock = Clock()
    states = SequenceStates(Total, clock=clock)
    bind(lambda: None, batcher=SequenceBatcher(max_sequence_idle_microseconds=2_000_000))
    states.of([of(1, 0, "s")])
    clock.now = 2 + GRACE_S
    assert isinstance(states.of([of(1, 0)])[0], Total)
    clock.now += 2 + GRACE_S + 0.1
    assert isinstance(states.of([of(1, 0)])[0], PyTritonRequestError)


def test_models_that_share_a_callable_have_states_of_their_own(bind):
    function = PerSequence(Total)
    bind(function, model_name="one")
    function([of(1, 10, "s")])
    bind(function, model_name="two")
    assert values(function([of(1, 1)])) == [ErrorCode.INVALID_ARG]
    bind(function, model_name="one")
    assert values(function([of(1, 1)])) == [11]


def test_requests_reach_a_function_below_batch():
    @with_requests
    @batch
    def function(x, requests):
        return {"y": x * 0 + len(requests), "ids": np.array([[json.dumps(r.correlation_id)] for r in requests])}

    first, second = function([of(1, 1), of("b", 2)])
    assert first["y"][0, 0] == 2
    assert [first["ids"][0, 0], second["ids"][0, 0]] == ["1", '"b"']
