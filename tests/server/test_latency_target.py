"""A model with a latency target answers in time or refuses, and a batch costs no more than it may."""

import json
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from urllib.parse import urlsplit

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch, pad_batch
from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import DynamicBatcher, LatencyTarget, Tensor
from tests.server.arrays import filled
from tests.server.processes import wait_for
from tests.server.proxies import native_proxy_only
from tests.server.traffic import Gate

SLOW_S = 0.5
TARGET_MS = 2000  # four slow batches, less a margin
REQUESTS = 10
LEAST_REFUSED = 6  # of them, however long they take to arrive: the answer of the fifth would be late

TOKENS = Tensor(name="tokens", shape=(-1,), dtype=np.int64)


class Slow:
    """Takes its time for the first call, and then waits at a gate."""

    def __init__(self):
        self.gate, self.calls = Gate(), 0

    def __call__(self, requests):
        self.calls += 1
        if self.calls == 1:
            time.sleep(SLOW_S)
        else:
            self.gate.wait()
        return [{"y": request["x"] * 2} for request in requests]


def outcome(call):
    try:
        return float(call()["y"][0, 0])
    except PyTritonClientInferenceServerError as error:
        return str(error)


@native_proxy_only
def test_requests_whose_answers_would_be_late_are_refused_and_all_others_answered(bind, traffic):
    slow = Slow()
    model = bind(slow, max_batch_size=1, batcher=LatencyTarget(TARGET_MS))
    infer = partial(traffic.infer, model)
    assert infer(filled(1))["y"][0, 0] == 2
    with ThreadPoolExecutor(REQUESTS) as pool:
        try:
            answers = [pool.submit(outcome, partial(infer, filled(1)))]
            assert slow.gate.entered.wait(60)
            answers += [pool.submit(outcome, partial(infer, filled(1))) for _ in range(REQUESTS)]
            wait_for(lambda: sum(each.done() for each in answers) >= LEAST_REFUSED, "requests to be refused")
        finally:
            slow.gate.open()
    outcomes = Counter(each.result() for each in answers)
    answered, (refusal, refused) = outcomes.pop(2.0), *outcomes.items()
    assert answered + refused == REQUESTS + 1
    assert refused >= LEAST_REFUSED
    assert f"model '{model}' has too many requests to answer this one within 2000 ms; try again later" in refusal
    metrics = traffic.metrics()
    assert f'pytriton_requests_refused_total{{model="{model}",version="1"}} {refused}' in metrics
    assert f'pytriton_latency_target_seconds{{model="{model}",version="1"}} 2' in metrics
    assert re.search(rf'pytriton_batch_seconds{{model="{model}",rows="1",version="1"}} \d', metrics)


@native_proxy_only
def test_http_clients_are_told_to_try_again(bind, traffic):
    slow = Slow()
    model = bind(slow, max_batch_size=1, batcher=LatencyTarget(TARGET_MS))
    if not traffic.url.startswith("http"):
        pytest.skip("about HTTP")
    body = '{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}'

    def post():
        with closing(HTTPConnection(urlsplit(traffic.url).netloc)) as connection:
            connection.request("POST", f"/v2/models/{model}/infer", body)
            answer = connection.getresponse()
            answer.read()
        return answer.status, answer.headers["Retry-After"]

    assert post() == (200, None)
    with ThreadPoolExecutor(REQUESTS) as pool:
        try:
            answers = [pool.submit(post)]
            assert slow.gate.entered.wait(60)
            answers += [pool.submit(post) for _ in range(REQUESTS)]
            wait_for(lambda: sum(each.done() for each in answers) >= LEAST_REFUSED, "requests to be refused")
        finally:
            slow.gate.open()
    assert {each.result() for each in answers} == {(200, None), (503, "1")}


@native_proxy_only
def test_a_target_that_cannot_be_met_refuses_nothing(bind, traffic):
    calls = []

    @batch
    def slow(x):
        calls.append(len(x))
        time.sleep(0.01)
        return [x * 2]

    model = bind(slow, max_batch_size=4, batcher=LatencyTarget(1))
    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = [pool.submit(traffic.infer, model, filled(number)) for number in range(REQUESTS)]
    assert [answer.result()["y"][0, 0] for answer in answers] == [2.0 * number for number in range(REQUESTS)]
    assert sum(calls) == REQUESTS


@native_proxy_only
@pytest.mark.parametrize("cost", ["tokens", ("tokens", 1)])
def test_requests_of_different_lengths_are_merged_up_to_the_largest_cost(bind, traffic, cost):
    gate, calls = Gate(), []

    def total(requests):
        gate.wait()
        calls.append([request["tokens"].shape for request in requests])
        return [{"y": request["tokens"].sum(axis=1, keepdims=True).astype(np.float32)} for request in requests]

    model = bind(total, [TOKENS], max_batch_size=8, batch_cost=cost, max_batch_cost=100, batcher=DynamicBatcher())
    shapes = [(1, 1), (1, 50), (1, 10), (1, 200), (2, 6), (1, 49), (1, 11)]
    inputs = [np.ones(shape, np.int64) for shape in shapes]
    answers = traffic.merge(model, gate, [partial(traffic.infer, model, each) for each in inputs])
    assert [answer.result()["y"][0, 0] for answer in answers] == [length for _, length in shapes]
    assert sorted(shape for call in calls for shape in call) == sorted(shapes)
    costs = [sum(rows for rows, _ in call) * max(length for _, length in call) for call in calls]
    assert sorted(costs) == [1, 44, 100, 200]  # 200 costs too much, and is alone


@native_proxy_only
def test_a_texts_cost_is_its_bytes(bind, traffic):
    gate, calls = Gate(), []

    @batch
    def lengths(text):
        gate.wait()
        calls.append(len(text))
        return [np.array([[len(each)] for each in text[:, 0]], np.float32)]

    inputs = [Tensor(name="text", shape=(1,), dtype=bytes)]
    model = bind(lengths, inputs, max_batch_size=8, batch_cost="text", max_batch_cost=200)
    sizes = [(1,), (100,), (100,), (100,), (1,), (1, 1, 1, 60), (60,)]
    texts = [np.array([[b"a" * size] for size in rows]) for rows in sizes]
    answers = traffic.merge(model, gate, [partial(traffic.infer, model, each) for each in texts])
    assert [answer.result()["y"][:, 0].tolist() for answer in answers] == [[*rows] for rows in sizes]
    assert calls == [1, 2, 2, 4, 1]  # the longest row of a request counts for all of its rows


@native_proxy_only
def test_requests_of_different_lengths_are_padded_for_one_call(bind, traffic):
    gate, shapes = Gate(), []

    @pad_batch
    @batch
    def total(tokens):
        gate.wait()
        shapes.append(tokens.shape)
        return {"y": tokens.sum(axis=1, keepdims=True).astype(np.float32)}

    model = bind(total, [TOKENS], max_batch_size=8, batch_cost="tokens", max_batch_cost=1000)
    inputs = [np.ones((1, length), np.int64) for length in (1, 3, 5, 2)]
    answers = traffic.merge(model, gate, [partial(traffic.infer, model, each) for each in inputs])
    assert [answer.result()["y"][0, 0] for answer in answers] == [1, 3, 5, 2]
    assert shapes == [(1, 1), (3, 5)]


@native_proxy_only
def test_rows_of_texts_that_are_not_there_are_not_counted_one_by_one(bind, traffic):
    text = Tensor(name="text", shape=(-1,), dtype=bytes)
    model = bind(list, [text], max_batch_size=8, batch_cost="text", max_batch_cost=10)
    if not traffic.url.startswith("http"):
        pytest.skip("about HTTP")
    given = {"name": "text", "shape": [2**40, 0], "datatype": "BYTES", "data": []}  # the server counts modulo 2**32
    with closing(HTTPConnection(urlsplit(traffic.url).netloc)) as connection:
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [given]}))
        assert connection.getresponse().status == 400


@native_proxy_only
def test_requests_that_differ_in_more_than_the_last_open_axis_are_not_merged(bind, traffic):
    gate, calls = Gate(), []

    def total(requests):
        gate.wait()
        calls.append([request["x"].shape[1:] for request in requests])
        return [{"y": request["x"].sum(axis=(1, 2))[:, None]} for request in requests]

    image = Tensor(name="x", shape=(-1, -1), dtype=np.float32)
    model = bind(total, [image], max_batch_size=8, batch_cost="x", max_batch_cost=10_000)
    shapes = [(1, 1), (2, 90), (2, 80), (90, 2), (2, 85)]
    images = [np.ones((1, *shape), np.float32) for shape in shapes]
    answers = traffic.merge(model, gate, [partial(traffic.infer, model, each) for each in images])
    assert [answer.result()["y"][0, 0] for answer in answers] == [height * width for height, width in shapes]
    assert sorted(map(sorted, calls)) == [[(1, 1)], [(2, 80), (2, 85), (2, 90)], [(90, 2)]]


WRONG = {
    "[]": "the parameter pytriton_batcher is wrong",
    '{"latencyTargetMicroseconds": 50}': "percentile",
    '{"latencyTargetMicroseconds": -1, "percentile": 0.9}': "latencyTargetMicroseconds is not from 1 to",
    '{"latencyTargetMicroseconds": 50, "percentile": 7}': "percentile is not between 0 and 1",
    '{"batchCostInput": "z", "maxBatchCost": 3}': "the model has no input z",
    '{"batchCostInput": "x", "batchCostAxis": 9, "maxBatchCost": 3}': "batchCostAxis is not from 1 to 1",
    '{"preferredBatchSize": [99]}': "a preferred size is beyond max_batch_size",
}


@native_proxy_only
@pytest.mark.parametrize("options", WRONG)
def test_a_load_with_wrong_options_of_the_batcher_is_refused_with_the_reason(triton, bind, triton_config, options):
    model = bind(list)
    with InferenceServerClient(f"127.0.0.1:{triton_config.http_port}") as client:
        headers = {"triton-access-token": triton.get_access_token()}
        config = client.get_model_config(model, headers=headers)
        config["parameters"]["pytriton_batcher"] = {"string_value": options}
        with pytest.raises(InferenceServerException, match=WRONG[options]):
            client.load_model(model, headers=headers, config=json.dumps(config))
        assert client.is_model_ready(model, headers=headers)


async def coroutine(requests):
    return requests


@pytest.mark.parametrize(
    "options", [{"batcher": LatencyTarget(50)}, {"batch_cost": "x", "max_batch_cost": 10}], ids=["target", "cost"]
)
def test_models_whose_batches_the_server_makes_are_refused_with_what_to_do(bind, options):
    for infer, more in ((coroutine, {}), (list, {"proxy": "python"}), (list, {"response_cache": True})):
        with pytest.raises(PyTritonBadParameterError, match=r"bind a plain function|turn one of them off"):
            bind(infer, **options, **more)
