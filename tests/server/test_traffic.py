"""Models that pass requests on: splits by weight and key, and shadows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.request import urlopen

import numpy as np
import prometheus_client
import pytest

from pytriton import Shadow, Split
from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.model_config import ModelConfig, SequenceBatcher
from tests.server.handle_models import COLUMNS
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.traffic import Gate
from tests.server.words import one, two

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to callables


@pytest.fixture(scope="module", autouse=True)
def versions(triton):
    def number(count: int) -> str:
        return str(count)

    def counting(count: int) -> Iterator[int]:
        yield from range(count)

    for function in (one, two, number, counting):
        triton.bind(function)


def answers(client: ModelClient, count: int) -> Counter[str]:
    return Counter(client.call("word") for _ in range(count))


def test_splits_and_shadows_are_counted_for_prometheus(triton, url, composed):
    registry = prometheus_client.CollectorRegistry()
    triton.serve_metrics(0, registry=registry)
    split = Split({"one": 1, "two": 0})
    client = composed(split)
    triton.bind("alias", split)  # the same one by another name
    triton.bind("copied", Shadow("one", to="two"))
    try:
        answers(client, 3)
        with ModelClient(url, "alias") as alias:
            answers(alias, 2)
        for model, count in (("composed", 3), ("alias", 2)):
            labels = {"model": model, "target": "one"}
            assert registry.get_sample_value("pytriton_split_requests_total", labels) == count
        with ModelClient(url, "copied") as client:
            answers(client, 1)
        labels = {"model": "copied", "target": "two", "result": "different"}
        name = "pytriton_shadow_requests_total"
        wait_for(lambda: registry.get_sample_value(name, labels) == 1, "the copy to be counted")
    finally:
        triton.unbind("copied")
        triton.unbind("alias")


def test_requests_are_split_by_weights_that_may_change(composed):
    split = Split({"one": 3, "two": 1})
    client = composed(split)
    counts = answers(client, 400)
    assert {*counts} == {"word 1", "word 2"}
    assert 220 < counts["word 1"] < 380  # seven standard deviations around 300
    split.weights = {"one": 0, "two": 1}
    assert {*answers(client, 20)} == {"word 2"}


def test_requests_with_the_same_key_go_to_the_same_model(composed):
    client = composed(Split({"one": 1, "two": 1}, by="user"))
    found = {user: {client.call("a", parameters={"user": user}) for _ in range(5)} for user in range(40)}
    assert all(len(answers) == 1 for answers in found.values())
    assert len({*map(str, found.values())}) == 2


def test_parameters_of_all_types_are_passed_on(triton, composed, url):
    def reading(requests: list[Any]) -> list[Any]:
        seen.extend(dict(request.parameters) for request in requests)
        return [{"y": request["x"]} for request in requests]

    seen: list[dict[str, Any]] = []
    triton.bind("reading", reading, *COLUMNS)
    composed(Split({"reading": 1}))
    given = {"text": "a", "number": 7, "truth": True, "temperature": 0.75}
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]
    body = json.dumps({"inputs": inputs, "parameters": given}).encode()
    for model in ("reading", "composed"):
        with urlopen(f"{url}/v2/models/{model}/infer", body, DEADLINE_S) as response:
            assert response.status == 200
    assert seen == [given, given]


def test_streams_are_split(triton, grpc_url):
    triton.bind("streams", Split({"counting": 1}))
    with DecoupledModelClient(grpc_url, "streams") as client:
        assert [*client.call(3)] == [0, 1, 2]
    triton.unbind("streams")


def test_arrays_and_errors_are_passed_on(triton, composed):
    def failing(requests: list[Any]) -> list[Any]:
        return [ValueError("not that") if request["x"].sum() < 0 else {"y": request["x"] * 2} for request in requests]

    triton.bind("failing", failing, *COLUMNS, config=ModelConfig(max_batch_size=8))
    client = composed(Split({"failing": 1}))
    x = np.ones((8, 3), np.float32)
    np.testing.assert_array_equal(client.infer_batch(x)["y"], 2 * x)
    with pytest.raises(PyTritonClientInferenceServerError, match="not that"):
        client.infer_batch(-x)


def test_requests_are_answered_while_a_shadow_compares(composed):
    gate = Gate()
    shadow = Shadow("one", to="two", compare=lambda one, other: gate.wait() is None)
    client = composed(shadow)
    try:
        assert client.call("a") == "a 1"
        wait_for(gate.entered.is_set, "the first comparison")
        assert client.with_options(inference_timeout_s=10.0).call("b") == "b 1"
        assert not shadow.counts
    finally:
        gate.open()
    wait_for(lambda: shadow.counts["same"] == 2, "the comparisons")


@pytest.mark.parametrize(
    ("compare", "expected"), [(None, "different"), (lambda one, other: one.keys() == other.keys(), "same")]
)
def test_a_shadow_answers_with_its_model_and_compares_copies(composed, compare, expected):
    shadow = Shadow("one", to="two", compare=compare)
    client = composed(shadow)
    assert {*answers(client, 10)} == {"word 1"}
    wait_for(lambda: shadow.counts.total() == 10, "the copies")
    assert shadow.counts[expected] + shadow.counts["dropped"] == 10


def test_equal_answers_are_counted_as_such(composed):
    shadow = Shadow("one", to="one")
    answers(composed(shadow), 3)
    wait_for(lambda: shadow.counts.total() == 3, "the copies")
    assert shadow.counts["different"] == shadow.counts["failed"] == 0


def test_copies_are_made_after_the_answer_and_have_no_deadline(triton, composed):
    deadlines = []

    @batch
    def kept(x: Any) -> dict[str, Any]:
        return {"y": x}

    def copied(requests: list[Any]) -> list[Any]:
        deadlines.extend(request.deadline for request in requests)
        return [{"y": request["x"]} for request in requests]

    for function in (kept, copied):
        triton.bind(function.__name__, function, *COLUMNS, config=ModelConfig(max_batch_size=8))
    shadow = Shadow("kept", to="copied")
    composed(shadow).with_options(server_timeout_s=60.0).infer_batch(np.ones((1, 3), np.float32))
    wait_for(lambda: shadow.counts.total() == 1, "the copy")
    assert (deadlines, shadow.counts["same"]) == ([None], 1)


def test_copies_are_dropped_while_the_other_model_is_slow(triton, composed):
    gate = Gate()

    def slow(word: str) -> str:
        gate.wait()
        return word

    triton.bind(slow)
    shadow = Shadow("one", to="slow")
    client = composed(shadow)
    try:
        answers(client, 40)
        wait_for(lambda: shadow.counts["dropped"] == 40 - 16, "the copies to be dropped")
    finally:
        gate.open()
    wait_for(lambda: shadow.counts.total() == 40, "the other copies")


def test_a_share_of_nothing_copies_nothing(composed):
    shadow = Shadow("one", to="two", share=0)
    answers(composed(shadow), 20)
    assert not shadow.counts


@pytest.mark.parametrize(
    ("router", "match"),
    [
        (partial(Split, {"one": 1, "missing": 1}), "'missing', which is not bound"),
        (partial(Split, {"one": 1, "number": 1}), "differ in tensors"),
        (partial(Shadow, "one", to="counting"), "differ in tensors"),
    ],
)
def test_models_that_cannot_stand_behind_one_name_are_refused(triton, router, match):
    with pytest.raises(PyTritonValidationError, match=match):
        triton.bind("refused", router())


@pytest.mark.parametrize("weights", [{}, {"one": -1}, {"one": "1"}, {"one": float("nan")}, {"one": 0}, {"one": True}])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(PyTritonBadParameterError):
        Split(weights)


@pytest.mark.parametrize("share", [-0.1, 1.1, "1", True])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(PyTritonBadParameterError):
        Shadow("one", to="two", share=share)


def test_a_model_with_sequences_is_refused(triton):
    triton.bind("ordered", lambda requests: requests, *COLUMNS, config=ModelConfig(batcher=SequenceBatcher()))
    try:
        with pytest.raises(PyTritonValidationError, match="has sequences"):
            triton.bind("routed", Split({"ordered": 1}))
    finally:
        triton.unbind("ordered")
