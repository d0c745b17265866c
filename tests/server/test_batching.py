"""Requests that wait are merged into one call, and each client gets its own rows back."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pytriton.decorators import batch, group_by_values
from pytriton.model_config import DynamicBatcher, Tensor
from tests.server.arrays import filled, strings
from tests.server.proxies import native_proxy_only
from tests.server.traffic import Gate, batches_of

pytestmark = pytest.mark.parametrize("batcher", ["the proxy's", "the server's"], indirect=True)

A, B = (Tensor(name=name, shape=(-1,), dtype=np.float32) for name in "ab")


@pytest.fixture
def batcher(request):
    """Who makes the batches: of responses that keep their order, the server does."""
    return request.param


@pytest.fixture
def bind(bind, batcher):
    def bind_with(infer, *tensors, **options):
        given = options.get("batcher", DynamicBatcher())
        if given is not None:
            options["batcher"] = replace(given, preserve_ordering=batcher == "the server's")
        return bind(infer, *tensors, **options)

    return bind_with


def calls_of(traffic, model, inputs):
    return [partial(traffic.infer, model, x) for x in inputs]


def rows_of(requests):
    return [len(request["x"]) for request in requests]


def memory_of(array):
    """The object at the end of a chain of views."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def test_waiting_requests_are_merged_up_to_the_largest_batch(bind, traffic):
    gate, calls = Gate(), []

    def double(requests):
        gate.wait()
        calls.append(rows_of(requests))
        return [{"y": request["x"] * 2} for request in requests]

    model = bind(double, max_batch_size=8, batcher=batches_of(8))
    inputs = [filled(number, rows) for number, rows in enumerate([8, 3, 1, 4, 2, 1, 5])]
    answers = traffic.merge(model, gate, calls_of(traffic, model, inputs))
    for x, answer in zip(inputs, answers, strict=True):
        assert np.array_equal(answer.result()["y"], x * 2)
    assert calls == [[8], [3, 1, 4], [2, 1, 5]]


@pytest.mark.parametrize("columns", [4, 20_000], ids=["small", "large"])
def test_batch_gets_merged_inputs_as_views_of_one_block_without_a_copy(bind, traffic, columns):
    gate, calls, blocks = Gate(), [], []

    @batch
    def difference(a, b):
        gate.wait()
        calls.append((a.shape, b.shape, a.flags.c_contiguous, b.flags.c_contiguous, a.flags.owndata, b.flags.owndata))
        blocks.append(memory_of(a) is memory_of(b))
        return [a - b]

    model = bind(difference, [A, B], max_batch_size=8, batcher=batches_of(5))
    inputs = [(filled(10 * number, rows, columns), filled(1, rows, columns)) for number, rows in enumerate([5, 2, 3])]
    answers = traffic.merge(model, gate, [partial(traffic.infer, model, a, b) for a, b in inputs])
    for (a, b), answer in zip(inputs, answers, strict=True):
        assert np.array_equal(answer.result()["y"], a - b)
    assert calls == [((5, columns), (5, columns), True, True, False, False) for _ in range(2)]
    assert blocks == [True, True]


def test_an_undecorated_callable_gets_merged_requests_as_neighbouring_rows(bind, traffic):
    gate, gaps = Gate(), []

    def echo(requests):
        gate.wait()
        first = [request["x"].__array_interface__["data"][0] for request in requests]
        ends = [begin + request["x"].nbytes for begin, request in zip(first, requests, strict=True)]
        gaps.append([begin - end for begin, end in zip(first[1:], ends, strict=False)])
        return [{"y": request["x"]} for request in requests]

    model = bind(echo, max_batch_size=8, batcher=batches_of(6))
    inputs = [filled(number, rows) for number, rows in enumerate([6, 2, 3, 1])]
    answers = traffic.merge(model, gate, calls_of(traffic, model, inputs))
    assert [answer.result()["y"].tolist() for answer in answers] == [x.tolist() for x in inputs]
    assert gaps == [[], [0, 0]]


def test_merged_strings_reach_batch_as_one_array(bind, traffic):
    gate, seen = Gate(), []

    @batch
    def echo(x):
        gate.wait()
        seen.append((x.dtype, x.shape))
        return [x]

    tensor = partial(Tensor, shape=(-1,), dtype=bytes)
    model = bind(echo, [tensor(name="x")], [tensor(name="y")], max_batch_size=16, batcher=batches_of(5))
    inputs = [strings((rows, 8)) for rows in (5, 2, 3)]
    answers = traffic.merge(model, gate, calls_of(traffic, model, inputs))
    assert [answer.result()["y"].tolist() for answer in answers] == [x.tolist() for x in inputs]
    assert seen == [(object, (5, 8))] * 2


def test_waiting_requests_of_different_shapes_are_all_answered(bind, traffic):
    """The server merges equal shapes alone, which is why ``@batch`` can join whatever it gets."""
    gate, calls = Gate(), []

    @batch
    def double(x):
        gate.wait()
        calls.append(x.shape)
        return [x * 2]

    model = bind(double, max_batch_size=8)
    inputs = [filled(number, 1, columns) for number, columns in enumerate([3, 3, 3, 5, 5, 3])]
    answers = traffic.merge(model, gate, calls_of(traffic, model, inputs))
    for x, answer in zip(inputs, answers, strict=True):
        assert np.array_equal(answer.result()["y"], x * 2)
    rows = Counter()
    for count, columns in calls:
        rows[columns] += count
    assert rows == {3: 4, 5: 2}
    assert 1 < len(calls) < len(inputs)  # one request may overtake another on its way into the queue


@pytest.mark.parametrize(("batching", "rows"), [(True, 2), (False, None)], ids=["no batcher", "no batching"])
def test_without_a_batcher_each_call_gets_one_request(bind, traffic, batching, rows):
    gate, calls = Gate(), []

    def double(requests):
        gate.wait()
        calls.append([request["x"].shape for request in requests])
        return [{"y": request["x"] * 2} for request in requests]

    model = bind(double, batcher=None if batching else DynamicBatcher(), batching=batching, max_batch_size=8)
    inputs = [filled(n, rows) if batching else filled(n)[0] for n in range(4)]
    answers = traffic.merge(model, gate, [partial(traffic.infer, model, x, sample=not batching) for x in inputs])
    for x, answer in zip(inputs, answers, strict=True):
        assert np.array_equal(answer.result()["y"], x * 2)
    assert calls == [[inputs[0].shape]] * 4


def test_a_request_may_fill_the_largest_batch_alone(bind, traffic):
    model = bind(lambda requests: [{"y": request["x"] * 2} for request in requests], max_batch_size=3)
    assert np.array_equal(traffic.infer(model, filled(4, 3))["y"], filled(8, 3))


def test_the_batcher_waits_for_a_preferred_size(bind, traffic):
    gate, calls = Gate(), []

    def echo(requests):
        gate.wait()
        calls.append(rows_of(requests))
        return [{"y": request["x"]} for request in requests]

    hour_us = 3_600_000_000
    batcher = DynamicBatcher(max_queue_delay_microseconds=hour_us, preferred_batch_size=[3])
    model = bind(echo, max_batch_size=8, batcher=batcher)
    answers = traffic.merge(model, gate, calls_of(traffic, model, [filled(0, 3), filled(1), filled(2), filled(3)]))
    assert [answer.result()["y"][0, 0] for answer in answers] == [0, 1, 2, 3]
    assert calls == [[3], [1, 1, 1]]


def test_rows_of_merged_requests_are_grouped_by_value_and_sorted_back(bind, traffic):
    gate, calls = Gate(), []

    @batch
    @group_by_values("a")
    def scale(a, b):
        gate.wait()
        calls.append((float(a[0, 0]), b[:, 0].tolist()))
        return [a * b]

    model = bind(scale, [A, B], max_batch_size=8, batcher=batches_of(3))
    pairs = [(2, 1), (3, 5), (2, 6), (3, 7)]
    rows = [3, 1, 1, 1]
    inputs = [(filled(a, count), filled(b, count)) for (a, b), count in zip(pairs, rows, strict=True)]
    answers = traffic.merge(model, gate, [partial(traffic.infer, model, *each) for each in inputs])
    assert [answer.result()["y"][0, 0] for answer in answers] == [a * b for a, b in pairs]
    assert calls == [(2.0, [1.0] * 3), (2.0, [6.0]), (3.0, [5.0, 7.0])]


@native_proxy_only
def test_metrics_say_why_the_proxys_batches_left_the_queue(bind, batcher, traffic):
    gate = Gate()

    def echo(requests):
        gate.wait()
        return [{"y": request["x"]} for request in requests]

    model = bind(echo, max_batch_size=8, batcher=batches_of(3))
    traffic.merge(model, gate, calls_of(traffic, model, [filled(0, rows) for rows in (3, 6, 4, 4, 3)]))
    label = rf'pytriton_batch_reason_total{{model="{model}",reason="(\w+)",version="1"}} (\d+)'
    counts = {reason: int(count) for reason, count in re.findall(label, traffic.metrics()) if int(count)}
    assert counts == ({"preferred_size": 2, "full": 2} if batcher == "the proxy's" else {})
