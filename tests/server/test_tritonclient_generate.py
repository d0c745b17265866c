"""HTTP's generate endpoints, which tritonclient reaches with its raw calls."""

import json

import numpy as np
import pytest

from pytriton.model_config import Tensor
from tests.server.proxies import HAS_EDGE, MALFORMED
from tests.server.tritonclients import only_http

pytestmark = [pytest.mark.either_proxy, only_http]

INPUTS = [Tensor((1,), bytes, "text"), Tensor((1,), np.int32, "count")]
OUTPUTS = [Tensor((1,), bytes, "word"), Tensor((1,), np.int32, "index")]
EXACTLY_ONE = "generate expects model to produce exactly 1 response"


class Log(list):
    """What callables saw of their requests."""

    def see(self, requests):
        self.extend(({name: array.tolist() for name, array in r.items()}, r.parameters) for r in requests)


@pytest.fixture(scope="module")
def log():
    return Log()


@pytest.fixture(scope="module")
def coupled(bind, log):
    def words(requests):
        log.see(requests)
        return [{"word": request["text"], "index": request["count"]} for request in requests]

    return bind(words, INPUTS, OUTPUTS)


@pytest.fixture(scope="module")
def decoupled(bind):
    """As many words as asked for; a negative count fails after as many."""

    def words(requests):
        (request,) = requests
        count = int(request["count"][0, 0])
        for index in range(abs(count)):
            yield [{"word": request["text"] + str(index).encode(), "index": np.full((1, 1), index, np.int32)}]
        if count < 0:
            raise ValueError("below zero")

    return bind(words, INPUTS, OUTPUTS, decoupled=True, batcher=None)


def post(api, path, body):
    """Status, type and text of a raw call's answer."""

    async def posted():
        answer = await api.client._post(f"v2/models/{path}", json.dumps(body), {"Accept-Encoding": "identity"}, None)
        return answer.status, answer.headers["content-type"], (await answer.read()).decode()

    if api.is_aio:
        return api.loop.run(posted())
    answer = api.client._post(f"v2/models/{path}", json.dumps(body), {}, None)
    return answer.status_code, answer.get("content-type"), answer.read().decode()


def generate(api, model, body):
    status, kind, text = post(api, f"{model}/generate", body)
    assert kind == "application/json"
    return status, json.loads(text)


def events(api, model, body):
    """The events of generate_stream."""
    status, kind, text = post(api, f"{model}/generate_stream", body)
    assert (status, kind.split(";")[0]) == (200, "text/event-stream")
    assert text.endswith("\n\n") or not text
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-1]]


def word(model, text, index):
    return {"model_name": model, "model_version": "1", "word": text, "index": index}


def test_plain_json_becomes_inputs_and_outputs(api, coupled):
    body = {"text": "zażółć", "count": 7}
    assert generate(api, coupled, body) == (200, word(coupled, "zażółć", 7))
    assert generate(api, f"{coupled}/versions/1", body) == (200, word(coupled, "zażółć", 7))
    assert events(api, coupled, body) == [word(coupled, "zażółć", 7)]


def test_what_is_no_input_is_a_parameter(api, coupled, log):
    log.clear()
    generate(api, coupled, {"text": "a", "count": 1, "temperature": 0.5, "flag": True, "id": "7"})
    assert log == [({"text": [[b"a"]], "count": [[1]]}, {"temperature": 0.5, "flag": True, "id": "7"})]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_every_response_is_an_event(api, decoupled, count):
    expected = [word(decoupled, f"a{index}", index) for index in range(count)]
    assert events(api, decoupled, {"text": "a", "count": count}) == expected


def test_an_error_is_the_last_event(api, decoupled):
    *words, error = events(api, decoupled, {"text": "a", "count": -2})
    assert words == [word(decoupled, "a0", 0), word(decoupled, "a1", 1)]
    assert "below zero" in error["error"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_generate_alone_takes_one_response(api, decoupled, count):
    status, reply = generate(api, decoupled, {"text": "a", "count": count})
    if count == 1:
        assert (status, reply) == (200, word(decoupled, "a0", 0))
    else:
        assert (status, EXACTLY_ONE in reply["error"]) == (400 if HAS_EDGE else 200, True)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        pytest.param({"text": "a"}, 400, "expected 2 inputs but got 1", id="missing input"),
        pytest.param({"text": "a", "count": "many"}, MALFORMED, "Unable to parse", id="wrong type"),
    ],
)
def test_requests_that_do_not_fit_the_model_are_refused(api, coupled, body, status, text):
    found, reply = generate(api, coupled, body)
    assert found == status
    assert text in reply["error"]


def test_an_unknown_model_is_not_found(api):
    status, reply = generate(api, "unknown", {"text": "a"})
    assert (status, "unknown model" in reply["error"]) == (404, True)


@pytest.mark.parametrize(
    ("path", "status"), [("v2/health/live", 200), ("v2/no/such/address", 404), ("v2/models/unknown/infer", 405)]
)
def test_raw_calls_get_the_status_of_every_address(api, path, status):
    async def got():
        async with await api.client._get(path, None, {"a": ["b", "c"]}) as answer:
            return answer.status

    found = api.loop.run(got()) if api.is_aio else api.client._get(path, None, {"a": ["b", "c"]}).status_code
    assert found == status
