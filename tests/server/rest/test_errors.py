"""Each error of the app, in all ways to run it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import orjson
import pytest
from pydantic import BaseModel, Field, field_validator

from pytriton.decorators import batch
from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor, TimeoutAction
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.rest.ways import SHORT, RunningApp

pytestmark = pytest.mark.either_proxy


@dataclass
class Point:
    x: float
    y: float = 0.0


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def check(cls, number: int) -> int:
        if number % 2:
            raise ValueError("is odd")
        return number


def order(
    item: str,
    count: Annotated[int, Field(ge=1, le=9)] = 1,
    kind: Literal["a", "b"] = "a",
    points: list[Point] | None = None,
) -> str:
    return item * count


def even(value: Even) -> int:
    return value.number


class Evens(BaseModel):
    items: list[Even]


def evens(values: Evens) -> int:
    return len(values.items)


class Ascii(BaseModel):
    number: str

    @field_validator("number")
    @classmethod
    def check(cls, number: str) -> str:
        if not number.isascii():
            raise ValueError("is not ASCII")
        return number


class Asciis(BaseModel):
    items: list[Ascii]


def texts_of(values: Asciis) -> int:
    return len(values.items)


def lines(texts: list[str]) -> int:
    return len(texts)


def refuse_at_length(size: int) -> str:
    raise PyTritonRequestError("\x01é" * size, ErrorCode.INVALID_ARG)


def refuse(code: str) -> str:
    raise PyTritonRequestError("not this one", ErrorCode(code))


SENTENCE = '["x"]: expected a number, got "a"; and 3 more'


def refuse_alike(marked: bool = False) -> str:
    text = f'{SENTENCE} | {{"details":' if marked else SENTENCE
    raise PyTritonRequestError(text, ErrorCode.INVALID_ARG)


def fail() -> str:
    raise RuntimeError("a secret place")


def nested(value: dict[str, Any]) -> int:
    return len(value)


@batch
def double(image: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": image * 2}


@pytest.fixture(scope="module", autouse=True)
def models(app: RunningApp) -> None:
    for function in (order, even, evens, lines, texts_of, refuse, refuse_at_length, refuse_alike, fail, nested):
        app.triton.bind(function)
    tensors = [[Tensor(name=name, shape=(4, 28), dtype=np.int32)] for name in ("image", "y")]
    app.triton.bind("double", double, *tensors)


def problems(error: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(each["path"], each["expected"], each["got"]) for each in error["details"]]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b'{"item": NaN}', b'{"item": "\xff"}', b'{"item": "\\ud800"}', b"[" * 5000, b"[1e999]"],
)
def test_a_body_that_is_no_json_is_refused(app, body):
    status, error = app.refusal("/predict/order", content=body)
    assert (status, error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("body", ["[]", "1", '"text"', "null", "true", "123456789012345678901234567890"])
def test_a_body_that_is_no_object_is_refused(app, body):
    status, error = app.refusal("/predict/order", content=body)
    assert (status, error["details"][0]["path"], error["details"][0]["expected"]) == (422, [], "an object")


def test_all_problems_are_told_at_once_with_their_paths(app):
    fields = {"count": 10, "kind": "c", "points": [{"x": 1}, {"y": "2", "z": 3}], "itm": "a"}
    status, error = app.refusal("/predict/order", fields)
    assert (status, error["code"]) == (422, "INVALID_INPUT")
    assert sorted(each["path"] for each in error["details"] if each["path"][0] != "points") == [
        ["count"], ["item"], ["itm"], ["kind"]
    ]  # fmt: skip
    assert [each["path"] for each in error["details"] if each["path"][0] == "points"] == [
        ["points", 1, "x"], ["points", 1, "y"], ["points", 1, "z"]
    ]  # fmt: skip
    assert (["count"], "an integer of at least 1 and of at most 9", "10") in problems(error)
    assert (["item"], "a string", "nothing") in problems(error)
    assert 'did you mean "item"?' in error["message"]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ([[0] * 28] * 3 + [[0] * 27], (["image", 3], "28 numbers", "27")),
        ([[0] * 28] * 3, (["image"], "4 lists", "3")),
        ([0] * 4, (["image", 0], "a list of numbers", "0")),
        ([[0] * 28] * 3 + [[0] * 27 + [[1]]], (["image", 3, 27], "a number", "a list")),
        ([[0] * 28] * 3 + [[0] * 27 + ["1"]], (["image", 3, 27], "an integer", '"1"')),
        ([[0] * 28] * 3 + [[0] * 27 + [2**31]], (["image", 3, 27], "an integer of INT32", "2147483648")),
        ([[0.5] * 28] * 4, (["image", 0, 0], "an integer", "0.5")),
        ({}, (["image"], "a list of lists", "an object with nothing")),
        ("text", (["image"], "a list of lists", '"text"')),
        (None, (["image"], "a list of lists", "null")),
    ],
)  # fmt: skip
def test_a_wrong_array_names_its_place(app, image, expected):
    status, error = app.refusal("/predict/double", {"image": image})
    assert status == 422
    assert problems(error) == [expected]


def test_a_wrong_instance_fails_the_request_with_its_path(app):
    instances = [{"item": "a"}, {"item": "b"}, {"item": 1, "count": 0}, "none"]
    status, error = app.refusal("/predict/order", {"instances": instances})
    assert status == 422
    assert [each["path"] for each in error["details"]] == [
        ["instances", 2, "item"], ["instances", 2, "count"], ["instances", 3]
    ]  # fmt: skip
    for instances in ([], {}, "a"):
        assert app.refusal("/predict/order", {"instances": instances})[1]["details"][0]["path"] == ["instances"]


def test_what_the_worker_alone_can_see_has_a_path_too(app):
    status, error = app.refusal("/predict/even", {"value": {"number": 3}})
    assert (status, error["details"][0]["path"]) == (422, ["value", "number"])
    assert "is odd" in error["message"]
    status, error = app.refusal("/predict/even", {"instances": [{"value": {"number": 2}}, {"value": {"number": 3}}]})
    assert (status, error["details"][0]["path"]) == (422, ["instances", 1, "value", "number"])


def test_an_unknown_model_is_not_found_and_the_nearest_is_named(app):
    status, error = app.refusal("/predict/oder", {})
    assert (status, error["code"]) == (404, "NOT_FOUND")
    assert "did you mean 'order'?" in error["message"]
    assert "version" in app.refusal("/predict/order/7", {})[1]["message"]
    assert app.refusal("/predict/order/latest", {})[0] == 404
    assert app.refusal("/predict/%2e%2e", {})[0] == 404
    assert app.refusal("/predict/%00%F0%9F%92%A9", {})[0] == 404


def test_an_unknown_route_is_not_found(app):
    assert app.refusal("/predictions", {})[0] == 404
    response = app.get("/other")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused(app, method):
    response = app.request(method, "/predict/order")
    assert (response.status_code, response.json()["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert "POST" in response.headers["allow"]
    assert app.request("POST", "/health/live").status_code == 405


def test_options_and_head_are_answered(app):
    response = app.request("OPTIONS", "/predict/order")
    assert (response.status_code, response.content) == (204, b"")
    assert "POST" in response.headers["allow"]
    assert app.request("HEAD", "/predict/order").status_code == 405
    assert app.request("HEAD", "/health/live").status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_origins_may_not_call(app, site):
    """A browser asks before it sends JSON, but not before it sends text or a form."""
    headers = {"Sec-Fetch-Site": site, "Origin": "https://example.org", "Content-Type": "text/plain"}
    status, error = app.refusal("/predict/order", content='{"item": "x"}', headers=headers)
    assert (status, error["code"]) == (403, "FORBIDDEN")
    assert "https://example.org" in error["message"]
    assert app.predict("order", {"item": "x"}, headers={**headers, "Sec-Fetch-Site": "same-origin"})


def test_a_body_that_is_too_large_is_refused(app):
    status, error = app.refusal("/predict/order", content=b" " * (2**20 + 1))
    assert (status, error["code"]) == (413, "BODY_TOO_LARGE")

    async def pieces():
        for _ in range(2**11):
            yield b" " * 2**10

    try:
        response = app.run(lambda: app.client.post("/predict/order", content=pieces()))
    except Exception as error:  # the connection was closed while the client was still sending
        assert app.way != "in process", error  # noqa: PT017
    else:
        assert response.status_code == 413
    assert app.predict("order", {"item": "a"}) == {"result": "a"}


def test_a_mistake_in_a_large_body_is_told(app):
    """Natively, another thread reads the body, and leaves it to the application."""
    for _ in range(20):
        status, error = app.refusal("/predict/order", {"item": "a" * 300_000, "count": 0})
        assert (status, error["code"]) == (422, "INVALID_INPUT")
    assert app.predict("order", {"item": "a"}) == {"result": "a"}


def test_nesting_is_limited(app):
    def levels(count: int) -> str:
        return '{"value": ' + '{"a":' * count + "1" + "}" * count + "}"

    assert app.post("/predict/nested", content=levels(60)).json() == {"result": 1}
    assert app.refusal("/predict/nested", content=levels(100))[0] == 422
    assert app.refusal("/predict/nested", content=levels(2000))[0] == 400


CODES = {"INVALID_ARG": 400, "NOT_FOUND": 404, "UNAVAILABLE": 503, "UNSUPPORTED": 501, "INTERNAL": 500}


@pytest.mark.parametrize("code", CODES)
def test_the_error_of_a_callable_has_its_status(app, code):
    status, error = app.refusal("/predict/refuse", {"code": code})
    assert (status, error) == (CODES[code], {"code": code, "message": "not this one"})


def test_a_callable_that_raises_is_an_internal_error_without_traceback(app):
    status, error = app.refusal("/predict/fail", {})
    assert (status, error) == (500, {"code": "INTERNAL", "message": "RuntimeError: a secret place"})


Held = tuple[Callable[[], Any], threading.Event, threading.Event]


@contextmanager
def held(app: RunningApp, name: str, policy: QueuePolicy) -> Iterator[Held]:
    """A model that answers one request after the other, once its gate is open: a call, whether it began, the gate."""
    begun, gate = threading.Event(), threading.Event()

    @batch
    def wait(image: np.ndarray) -> dict[str, np.ndarray]:
        begun.set()
        assert gate.wait(DEADLINE_S)
        return {"y": image}

    tensors = [[Tensor(name=each, shape=(1,), dtype=np.int32)] for each in ("image", "y")]
    config = ModelConfig(max_batch_size=1, batcher=DynamicBatcher(default_queue_policy=policy))
    app.triton.bind(name, wait, *tensors, config=config)
    try:
        yield partial(app.post, f"/predict/{name}", {"image": 1}), begun, gate
    finally:
        gate.set()


def test_a_full_queue_is_too_many_requests(app):
    with ThreadPoolExecutor(12) as executor, held(app, "held", QueuePolicy(max_queue_size=1)) as (call, _, gate):
        requests = [executor.submit(call) for _ in range(12)]
        while not any(each.done() for each in requests):
            time.sleep(0.01)
        gate.set()
        responses = [each.result() for each in requests]
    refused = [each for each in responses if each.status_code != 200]
    assert refused
    assert len(refused) < len(responses)
    for each in refused:
        assert (each.status_code, each.json()["error"]["code"]) == (429, "TOO_MANY_REQUESTS")
        assert int(each.headers["retry-after"]) >= 1


def test_a_request_that_waits_too_long_in_the_queue_is_late(app):
    policy = QueuePolicy(TimeoutAction.REJECT, default_timeout_microseconds=50_000)
    with ThreadPoolExecutor(2) as executor, held(app, "queued", policy) as (call, begun, gate):

        def is_late() -> bool:
            """Of one that was sent while another one was answered; on a busy machine it may come after that."""
            begun.clear()
            gate.clear()
            first = executor.submit(call)
            while not begun.wait(0.05):
                if first.done():  # it was late itself
                    assert first.result().status_code == 504
                    first = executor.submit(call)
            second = executor.submit(call)
            time.sleep(0.2)
            gate.set()
            assert first.result().status_code == 200
            response = second.result()
            if response.status_code == 200:
                return False
            assert (response.status_code, response.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
            return True

        wait_for(is_late, "a request that is late")


def test_errors_are_json_whatever_is_accepted(app):
    status, error = app.refusal("/predict/fail", {}, headers={"accept": "text/event-stream"})
    assert (status, json.dumps(error)) == (500, '{"code": "INTERNAL", "message": "RuntimeError: a secret place"}')


MOST_ANSWER_BYTES = 16 * 1024
WRONG = {
    "numbers": 3,
    "texts": "a" * 10_000,
    "names": {"b" * 10_000: 1, "c" * 10_000: 2},
    "nulls": None,
    "lists": [[[[1]]]],
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict/order", lambda value: {"instances": [value] * 2000}),
        ("/v1/models/order:predict", lambda value: {"instances": [value] * 2000}),
        ("/predict/order", lambda value: {"item": "a", "points": [value] * 2000}),
        ("/predict/order", lambda value: {"item": "a", "points": [{"x": [value]}] * 2000}),
        ("/predict/order", lambda value: {f"{index}{'d' * 200}": value for index in range(2000)}),
        ("/predict/evens", lambda value: {"values": {"items": [{"number": [value]}] * 2000}}),
        ("/predict/lines", lambda value: {"texts": [value if not isinstance(value, str) else 3] * 2000}),
    ],
    ids=["instances", "kserve", "records", "members", "names", "models", "texts"],
)
def test_ten_problems_are_told_and_others_are_counted(app, path, body, value):
    if len(content := orjson.dumps(body(value))) > SHORT["max_body_bytes"]:
        content = orjson.dumps(body(WRONG["numbers"]))
    response = app.post(path, content=content)
    error = response.json()["error"]
    assert response.status_code == 422
    assert len(response.content) <= MOST_ANSWER_BYTES
    assert len(error["details"]) + error["more"] in (1000, 2000, 2001)
    assert 1 <= len(error["details"]) <= 10
    assert error["message"].endswith(f"; and {error['more']} more") or len(error["details"]) < 10


def test_what_a_worker_finds_is_counted_too(app):
    for count, told in ((3, 3), (10, 10), (11, 10), (40, 10)):
        status, error = app.refusal("/predict/evens", {"values": {"items": [{"number": 1}] * count}})
        assert status == 422
        assert [each["path"] for each in error["details"]] == [
            ["values", "items", index, "number"] for index in range(told)
        ]
        assert error.get("more", 0) == count - told
        assert error["message"].endswith(f"; and {count - told} more") == (count > told)


def test_a_callables_message_of_any_length_has_a_short_answer(app):
    status, error = app.refusal("/predict/refuse_at_length", {"size": 400})
    assert (status, error["message"]) == (400, "\x01é" * 400)
    response = app.post("/predict/refuse_at_length", {"size": 10_000})
    assert response.status_code == 400
    assert len(response.content) <= MOST_ANSWER_BYTES


def test_no_message_of_a_callable_is_read_as_problems(app):
    status, error = app.refusal("/predict/refuse_alike", {})
    assert (status, error) == (400, {"code": "INVALID_ARG", "message": SENTENCE})
    status, error = app.refusal("/predict/refuse_alike", {"marked": True})
    assert (status, error) == (400, {"code": "INVALID_ARG", "message": SENTENCE})


def test_what_a_worker_finds_is_told_however_long_it_is(app):
    items = [{"number": f"{'é' * 70}"} for _ in range(20)]
    status, error = app.refusal("/predict/texts_of", {"values": {"items": items}})
    assert (status, error["code"]) == (422, "INVALID_INPUT")
    assert [each["path"] for each in error["details"]] == [
        ["values", "items", index, "number"] for index in range(len(error["details"]))
    ]
    assert len(error["details"]) + error["more"] == len(items)


def test_a_name_and_a_value_are_cut(app):
    _, error = app.refusal("/predict/order", {"item": 3, "n" * 5000: 1, "count": "v" * 5000})
    assert problems(error)[0] == (["item"], "a string", "3")
    assert problems(error)[1] == (["count"], "an integer of at least 1 and of at most 9", '"' + "v" * 59 + "...")
    assert problems(error)[2][0] == ["n" * 60 + "..."]
