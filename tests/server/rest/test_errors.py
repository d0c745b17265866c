"""Each error of the front, in all ways to run it."""

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
import pytest
from pydantic import BaseModel, Field, field_validator

from pytriton.decorators import batch
from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor, TimeoutAction
from tests.server.processes import DEADLINE_S
from tests.server.rest.ways import Front

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


def refuse(code: str) -> str:
    raise PyTritonRequestError("not this one", ErrorCode(code))


def fail() -> str:
    raise RuntimeError("a secret place")


def nested(value: dict[str, Any]) -> int:
    return len(value)


@batch
def double(image: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": image * 2}


@pytest.fixture(scope="module", autouse=True)
def models(front: Front) -> None:
    for function in (order, even, refuse, fail, nested):
        front.triton.bind(function)
    tensors = [[Tensor(name=name, shape=(4, 28), dtype=np.int32)] for name in ("image", "y")]
    front.triton.bind("double", double, *tensors)


def problems(error: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(each["path"], each["expected"], each["got"]) for each in error["details"]]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b'{"item": NaN}', b'{"item": "\xff"}', b'{"item": "\\ud800"}', b"[" * 5000, b"[1e999]"],
)
def test_a_body_that_is_no_json_is_refused(front, body):
    status, error = front.refusal("/predict/order", content=body)
    assert (status, error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("body", ["[]", "1", '"text"', "null", "true", "123456789012345678901234567890"])
def test_a_body_that_is_no_object_is_refused(front, body):
    status, error = front.refusal("/predict/order", content=body)
    assert (status, error["details"][0]["path"], error["details"][0]["expected"]) == (422, [], "an object")


def test_all_problems_are_told_at_once_with_their_paths(front):
    fields = {"count": 10, "kind": "c", "points": [{"x": 1}, {"y": "2", "z": 3}], "itm": "a"}
    status, error = front.refusal("/predict/order", fields)
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
        ([[0] * 28] * 3 + [[0] * 27 + ["1"]], (["image"], "an array of INT32 and shape (4, 28)", "a list of 4")),
        ([[0] * 28] * 3 + [[0] * 27 + [2**31]], (["image"], "an array of INT32 and shape (4, 28)", "a list of 4")),
        ([[0.5] * 28] * 4, (["image"], "an array of INT32 and shape (4, 28)", "a list of 4")),
        ({}, (["image"], "a list of lists", "an object with nothing")),
        ("text", (["image"], "a list of lists", '"text"')),
        (None, (["image"], "a list of lists", "null")),
    ],
)  # fmt: skip
def test_a_wrong_array_names_its_place(front, image, expected):
    status, error = front.refusal("/predict/double", {"image": image})
    assert status == 422
    assert problems(error) == [expected]


def test_a_wrong_instance_fails_the_request_with_its_path(front):
    instances = [{"item": "a"}, {"item": "b"}, {"item": 1, "count": 0}, "none"]
    status, error = front.refusal("/predict/order", {"instances": instances})
    assert status == 422
    assert [each["path"] for each in error["details"]] == [
        ["instances", 2, "item"], ["instances", 2, "count"], ["instances", 3]
    ]  # fmt: skip
    for instances in ([], {}, "a"):
        assert front.refusal("/predict/order", {"instances": instances})[1]["details"][0]["path"] == ["instances"]


def test_what_the_worker_alone_can_see_has_a_path_too(front):
    status, error = front.refusal("/predict/even", {"value": {"number": 3}})
    assert (status, error["details"][0]["path"]) == (422, ["value", "number"])
    assert "is odd" in error["message"]
    status, error = front.refusal("/predict/even", {"instances": [{"value": {"number": 2}}, {"value": {"number": 3}}]})
    assert (status, error["details"][0]["path"]) == (422, ["instances", 1, "value", "number"])


def test_an_unknown_model_is_not_found_and_the_nearest_is_named(front):
    status, error = front.refusal("/predict/oder", {})
    assert (status, error["code"]) == (404, "NOT_FOUND")
    assert "did you mean 'order'?" in error["message"]
    assert "version" in front.refusal("/predict/order/7", {})[1]["message"]
    assert front.refusal("/predict/order/latest", {})[0] == 404
    assert front.refusal("/predict/%2e%2e", {})[0] == 404
    assert front.refusal("/predict/%00%F0%9F%92%A9", {})[0] == 404


def test_an_unknown_route_is_not_found(front):
    assert front.refusal("/predictions", {})[0] == 404
    response = front.get("/other")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused(front, method):
    response = front.request(method, "/predict/order")
    assert (response.status_code, response.json()["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert "POST" in response.headers["allow"]
    assert front.request("POST", "/health/live").status_code == 405


def test_options_and_head_are_answered(front):
    response = front.request("OPTIONS", "/predict/order")
    assert (response.status_code, response.content) == (204, b"")
    assert "POST" in response.headers["allow"]
    assert front.request("HEAD", "/predict/order").status_code == 405
    assert front.request("HEAD", "/health/live").status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_origins_may_not_call(front, site):
    """A browser asks before it sends JSON, but not before it sends text or a form."""
    headers = {"Sec-Fetch-Site": site, "Origin": "https://example.org", "Content-Type": "text/plain"}
    if front.way == "mounted":  # whose application decides
        assert front.post("/predict/order", content='{"item": "x"}', headers=headers).status_code == 200
        return
    status, error = front.refusal("/predict/order", content='{"item": "x"}', headers=headers)
    assert (status, error["code"]) == (403, "FORBIDDEN")
    assert "https://example.org" in error["message"]
    assert front.predict("order", {"item": "x"}, headers={**headers, "Sec-Fetch-Site": "same-origin"})


def test_a_body_that_is_too_large_is_refused(front):
    status, error = front.refusal("/predict/order", content=b" " * (2**20 + 1))
    assert (status, error["code"]) == (413, "BODY_TOO_LARGE")

    async def pieces():
        for _ in range(2**11):
            yield b" " * 2**10

    try:
        response = front.run(lambda: front.client.post("/predict/order", content=pieces()))
    except Exception as error:  # the connection was closed while the client was still sending
        assert front.way != "in process", error  # noqa: PT017
    else:
        assert response.status_code == 413
    assert front.predict("order", {"item": "a"}) == {"result": "a"}


def test_a_mistake_in_a_large_body_is_told(front):
    """Natively, another thread reads the body, and leaves it to the application."""
    for _ in range(20):
        status, error = front.refusal("/predict/order", {"item": "a" * 300_000, "count": 0})
        assert (status, error["code"]) == (422, "INVALID_INPUT")
    assert front.predict("order", {"item": "a"}) == {"result": "a"}


def test_nesting_is_limited(front):
    def levels(count: int) -> str:
        return '{"value": ' + '{"a":' * count + "1" + "}" * count + "}"

    assert front.post("/predict/nested", content=levels(60)).json() == {"result": 1}
    assert front.refusal("/predict/nested", content=levels(100))[0] == 422
    assert front.refusal("/predict/nested", content=levels(2000))[0] == 400


CODES = {"INVALID_ARG": 400, "NOT_FOUND": 404, "UNAVAILABLE": 503, "UNSUPPORTED": 501, "INTERNAL": 500}


@pytest.mark.parametrize("code", CODES)
def test_the_error_of_a_callable_has_its_status(front, code):
    status, error = front.refusal("/predict/refuse", {"code": code})
    assert (status, error) == (CODES[code], {"code": code, "message": "not this one"})


def test_a_callable_that_raises_is_an_internal_error_without_traceback(front):
    status, error = front.refusal("/predict/fail", {})
    assert (status, error) == (500, {"code": "INTERNAL", "message": "RuntimeError: a secret place"})


Held = tuple[Callable[[], Any], threading.Event, threading.Event]


@contextmanager
def held(front: Front, name: str, policy: QueuePolicy) -> Iterator[Held]:
    """A model that answers one request after the other, once its gate is open: a call, whether it began, the gate."""
    begun, gate = threading.Event(), threading.Event()

    @batch
    def wait(image: np.ndarray) -> dict[str, np.ndarray]:
        begun.set()
        assert gate.wait(DEADLINE_S)
        return {"y": image}

    tensors = [[Tensor(name=each, shape=(1,), dtype=np.int32)] for each in ("image", "y")]
    config = ModelConfig(max_batch_size=1, batcher=DynamicBatcher(default_queue_policy=policy))
    front.triton.bind(name, wait, *tensors, config=config)
    try:
        yield partial(front.post, f"/predict/{name}", {"image": 1}), begun, gate
    finally:
        gate.set()


def test_a_full_queue_is_too_many_requests(front):
    with ThreadPoolExecutor(12) as executor, held(front, "held", QueuePolicy(max_queue_size=1)) as (call, _, gate):
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


def test_a_request_that_waits_too_long_in_the_queue_is_late(front):
    policy = QueuePolicy(TimeoutAction.REJECT, default_timeout_microseconds=50_000)
    with ThreadPoolExecutor(2) as executor, held(front, "queued", policy) as (call, begun, gate):
        first = executor.submit(call)
        assert begun.wait(DEADLINE_S)
        second = executor.submit(call)
        time.sleep(0.2)
        gate.set()
        assert first.result().status_code == 200
        response = second.result()
    assert (response.status_code, response.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")


def test_errors_are_json_whatever_is_accepted(front):
    status, error = front.refusal("/predict/fail", {}, headers={"accept": "text/event-stream"})
    assert (status, json.dumps(error)) == (500, '{"code": "INTERNAL", "message": "RuntimeError: a secret place"}')
