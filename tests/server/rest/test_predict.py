"""``/predict`` with JSON: objects and batches, in all ways to run the app."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from tests.server.rest.kinds import Order, Sentiment, Tone, bind_doubled, same
from tests.server.rest.ways import RunningApp

pytestmark = pytest.mark.either_proxy

LARGE = 2**63 - 1
SPECIAL = [math.nan, math.inf, -math.inf]
TEXTS = ["", "ä€😀", 'quote " backslash \\ slash /', "line\nend\ttab\0null", "\u2028", "x" * 10_000]


def sentiment(
    text: str, threshold: Annotated[float, Field(ge=0, le=1)] = 0.5, tone: Tone = Tone.GOOD, note: str | None = None
) -> Sentiment:
    """How a text sounds."""
    return Sentiment(tone, threshold, text.split() + ([note] if note else []))


def scalars(i: int, f: float, b: bool, s: str, d: bytes) -> dict[str, Any]:
    return {"i": i, "f": f, "b": b, "s": s, "d": d.hex()}


def lists(i: list[int], f: list[float], s: list[str]) -> dict[str, Any]:
    return {"i": i, "f": [repr(each) for each in f], "s": s}


@dataclass
class Plain:
    i: int
    f: float
    b: bool
    s: str
    d: bytes
    many: list[float]


class Lap(BaseModel):
    runner: str
    took: timedelta  # which only pydantic knows


def lap(runner: str, seconds: int) -> Lap:
    return Lap(runner=runner, took=timedelta(seconds=seconds))


def echo(i: int, f: float, b: bool, s: str, d: bytes, many: list[float]) -> Plain:
    return Plain(i, f, b, s, d, many)


def total(orders: list[Order], factor: int = 1) -> int:
    return factor * sum(order.count for order in orders)


def count() -> int:
    return 7


def later(day: date, days: int, price: Decimal = Decimal("0.5")) -> dict[str, date | Decimal]:
    return {"day": day + timedelta(days), "price": price}


def ship(order: Order) -> dict[Tone, float]:
    return {Tone.GOOD: 1 / order.count, Tone.BAD: 1 - 1 / order.count}


def weighed(weights: dict[Tone, float]) -> float:
    return weights[Tone.GOOD]


DTYPES = [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64]
DTYPES += [np.float16, np.float32, np.float64]


@pytest.fixture(scope="module", autouse=True)
def models(app: RunningApp) -> None:
    for function in (sentiment, scalars, lists, echo, total, count, later, lap, ship, weighed):
        app.triton.bind(function)
    bind_doubled(app.triton)
    for dtype in DTYPES:
        tensors = [Tensor(name="a", shape=(2, -1), dtype=dtype)]
        app.triton.bind(f"same_{np.dtype(dtype).name}", same, tensors, tensors)
    pair = [Tensor(name="t", shape=(-1,), dtype=bytes), Tensor(name="n", shape=(1,), dtype=np.int32)]
    app.triton.bind("declared", same, pair, pair)


def test_a_member_that_only_pydantic_knows_is_its_json(app):
    assert app.predict("lap", {"runner": "a", "seconds": 61}) == {"runner": "a", "took": "PT1M1S"}
    assert app.predict("lap", {"instances": [{"runner": "a", "seconds": 1}]}) == {
        "predictions": [{"runner": "a", "took": "PT1S"}]
    }


def test_an_object_is_answered_with_an_object(app):
    assert app.predict("sentiment", {"text": "what a day"}) == {
        "label": "good", "score": 0.5, "words": ["what", "a", "day"]
    }  # fmt: skip


def test_a_version_can_be_named(app):
    assert app.predict("sentiment/1", {"text": "a"})["words"] == ["a"]


def test_a_result_that_is_no_record_is_called_result(app):
    assert app.predict("total", {"orders": [{"item": "a", "count": 2}, {"item": "b"}]}) == {"result": 3}


def test_optional_inputs_may_be_absent_or_null(app):
    fields = {"text": "a", "threshold": 0.25, "tone": "bad", "note": None}
    assert app.predict("sentiment", fields) == {"label": "bad", "score": 0.25, "words": ["a"]}


def test_the_members_of_a_record_that_is_the_only_input_may_be_the_body(app):
    expected = {"result": {"good": 0.25, "bad": 0.75}}
    assert app.predict("ship", {"order": {"item": "tea", "count": 4}}) == expected
    assert app.predict("ship", {"item": "tea", "count": 4}) == expected
    answer = app.predict("ship", {"instances": [{"item": "tea", "count": 4}, {"order": {"item": "tea"}}]})
    assert answer == {"predictions": [expected, {"result": {"good": 1.0, "bad": 0.0}}]}
    status, error = app.refusal("/predict/ship", {"count": 0})
    assert status == 422
    assert sorted(each["path"] for each in error["details"]) == [["count"], ["item"]]
    status, error = app.refusal("/predict/ship", {"ordr": {"item": "tea"}})
    assert 'did you mean "order"?' in error["message"]


def test_keys_of_an_object_may_be_those_of_an_enumeration(app):
    assert app.predict("weighed", {"weights": {"good": 0.5}}) == {"result": 0.5}
    status, error = app.refusal("/predict/weighed", {"weights": {"god": 0.5}})
    assert (status, error["details"][0]["path"]) == (422, ["weights", "god"])
    assert error["details"][0]["expected"] == 'one of "good", "bad"'


def test_dates_and_decimal_numbers_are_texts(app):
    for price in "1.50", 1.5:
        found = app.predict("later", {"day": "2026-02-28", "days": 1, "price": price})
        assert found == {"result": {"day": "2026-03-01", "price": str(price)}}
    status, error = app.refusal("/predict/later", {"day": "2026-02-30", "days": 1})
    assert status == 422
    assert error["details"][0]["path"] == ["day"]


def test_a_function_without_parameters_takes_an_empty_object(app):
    assert app.predict("count", {}) == {"result": 7}
    for headers in {}, {"content-type": "application/json"}:
        response = app.post("/predict/count", headers=headers)
        assert (response.status_code, response.json()) == (200, {"result": 7})
    status, error = app.refusal("/predict/total", headers={"content-type": "application/json"})
    assert (status, error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("number", [0, -1, LARGE, -LARGE - 1, 2**53 + 1])
def test_integers_of_64_bits_are_exact(app, number):
    fields = {"i": number, "f": 0, "b": True, "s": "", "d": "", "many": []}
    response = app.post("/predict/echo", content=json.dumps(fields))
    assert f'"i":{number},' in response.text


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_exact(app, text):
    fields = {"i": 1, "f": 1.5, "b": False, "s": text, "d": "AP8=", "many": [1]}
    assert app.predict("echo", fields) == {**fields, "many": [1.0]}
    assert app.predict("lists", {"i": [], "f": [], "s": [text]})["result"]["s"] == [text]


def test_numbers_that_json_lacks_are_strings_both_ways(app):
    fields = {"i": 1, "f": "-Infinity", "b": False, "s": "NaN", "d": "", "many": ["NaN", 1.0, "Infinity"]}
    assert app.predict("echo", fields) == fields
    assert app.predict("doubled", {"x": ["NaN", 1, "-Infinity"]}) == {"y": ["NaN", 2.0, "-Infinity"]}


def test_numbers_that_json_lacks_are_strings_within_records_too(app):
    assert app.predict("scalars", {"i": 1, "f": "NaN", "b": True, "s": "", "d": ""})["result"]["f"] == "NaN"


def test_long_lists_of_numbers_are_exact(app):
    numbers = [LARGE - each for each in range(1000)]
    assert app.predict("lists", {"i": numbers, "f": [0.1, 1e300, -0.0], "s": []})["result"] == {
        "i": numbers, "f": ["0.1", "1e+300", "-0.0"], "s": []
    }  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_arrays_of_each_dtype_are_nested_lists(app, dtype):
    if dtype is np.bool_:
        values = [[True, False, True], [False, False, True]]
    elif np.dtype(dtype).kind == "f":
        values = [[0.5, -1.0, 2.25], [0.0, 100.0, -0.125]]
    else:
        values = [[np.iinfo(dtype).min, 0, 1], [2, 3, np.iinfo(dtype).max]]
        values = [[int(each) for each in row] for row in values]
    assert app.predict(f"same_{np.dtype(dtype).name}", {"a": values}) == {"a": values}


def test_arrays_may_be_empty(app):
    assert app.predict("same_float32", {"a": [[], []]}) == {"a": [[], []]}


def test_bytes_of_declared_tensors_are_text_or_an_object_with_base64(app):
    answer = app.predict("declared", {"t": ["ä", {"b64": "/wA="}, {"b64": "YQ=="}], "n": 3})
    assert answer == {"t": ["ä", {"b64": "/wA="}, "a"], "n": [3]}


@pytest.mark.parametrize("value", ["a", {"b64": "YQ=="}])
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_text_is_no_array_of_texts(app, value, is_batch):
    fields = {"t": value, "n": [3]}
    status, error = app.refusal("/predict/declared", {"instances": [fields]} if is_batch else fields)
    assert status == 422
    assert [each["path"] for each in error["details"]] == [["instances", 0, "t"] if is_batch else ["t"]]


@pytest.mark.parametrize("length", [1, 3, 5000])
def test_instances_are_answered_with_predictions(app, length):
    instances = [{"x": [index, index + 0.5]} for index in range(length)]
    answer = app.predict("doubled", {"instances": instances})
    assert answer == {"predictions": [{"y": [2.0 * index, 2.0 * index + 1]} for index in range(length)]}


def test_instances_may_differ_in_shape_and_in_optional_inputs(app):
    answer = app.predict("doubled", {"instances": [{"x": [1, 2]}, {"x": [3]}, {"x": [4, 5]}]})
    assert answer == {"predictions": [{"y": [2.0, 4.0]}, {"y": [6.0]}, {"y": [8.0, 10.0]}]}
    answer = app.predict("sentiment", {"instances": [{"text": "a"}, {"text": "b", "tone": "bad"}, {"text": "c"}]})
    assert [each["label"] for each in answer["predictions"]] == ["good", "bad", "good"]


def test_instances_work_without_batch_axis(app):
    assert app.predict("count", {"instances": [{}, {}]}) == {"predictions": [{"result": 7}] * 2}


def test_concurrent_requests_are_merged_into_batches(app):
    sizes = []

    @batch
    def measured(x: NDArray[np.float32]) -> dict[str, np.ndarray]:
        sizes.append(len(x))
        return {"y": x}

    config = ModelConfig(max_batch_size=16, batcher=DynamicBatcher(max_queue_delay_microseconds=50_000))
    app.triton.bind("measured", measured, example={"x": np.ones((1, 1), np.float32)}, config=config)
    sizes.clear()
    with ThreadPoolExecutor(16) as executor:
        answers = [*executor.map(lambda number: app.predict("measured", {"x": [number]}), range(64))]
    assert answers == [{"y": [float(number)]} for number in range(64)]
    assert max(sizes) > 1
    assert sum(sizes) == 64


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/vnd.api+json",
    ],
)
def test_json_needs_no_content_type(app, kind):
    headers = {} if kind is None else {"content-type": kind}
    response = app.post("/predict/total", content=b'{"orders": []}', headers=headers)
    assert response.json() == {"result": 0}
    assert response.headers["content-type"] == "application/json"


def test_kserve_v1_answers_objects_with_objects_and_bare_values_with_bare_values(app):
    response = app.post("/v1/models/total:predict", {"instances": [{"orders": [{"item": "a"}], "factor": 3}]})
    assert response.json() == {"predictions": [{"result": 3}]}
    response = app.post("/v1/models/doubled:predict", {"instances": [[1, 2], [3, 4]]})
    assert response.json() == {"predictions": [[2.0, 4.0], [6.0, 8.0]]}
    response = app.post("/v1/models/doubled/versions/1:predict", {"instances": [[1]]})
    assert response.json() == {"predictions": [[2.0]]}
    status, error = app.refusal("/v1/models/doubled:predict", {"x": [1]})
    assert (status, error["details"][0]["path"]) == (422, ["instances"])


def test_a_model_that_is_replaced_is_seen_at_once(app):
    def changing(a: int) -> int:
        return a

    app.triton.bind(changing)
    assert app.predict("changing", {"a": 3}) == {"result": 3}

    def other(b: str) -> str:
        return b

    app.triton.bind("changing", other, replace=True)
    assert app.predict("changing", {"b": "x"}) == {"result": "x"}
    assert app.refusal("/predict/changing", {"a": 3})[0] == 422
    app.triton.unbind("changing")
    assert app.refusal("/predict/changing", {"b": "x"})[0] == 404


def test_more_instances_than_allowed_are_refused(app):
    assert len(app.predict("count", {"instances": [{}] * 10_000})["predictions"]) == 10_000
    status, error = app.refusal("/predict/count", {"instances": [{}] * 10_001})
    assert (status, error["code"]) == (413, "BODY_TOO_LARGE")
    assert "send several requests" in error["message"]
