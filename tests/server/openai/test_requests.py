"""Requests that are wrong, too large or fail: OpenAI's errors and statuses, and no 5xx for what a client sends."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.server.openai.conftest import MOST_BYTES
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "a"}]


@pytest.fixture(scope="module")
def http(url):
    with httpx.Client(base_url=url, timeout=DEADLINE_S, trust_env=False) as client:
        yield client


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "poet", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages.0.content"),
        ({"model": 3}, "model"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -0.5}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop": 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{"function": {}}]}, "tools.0.type"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": False, "stream_options": {}}, "stream_options"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [*USER, {"role": "user", "content": None}]}, "messages.1.content"),
        ({"messages": [*USER, {"role": "assistant"}]}, "messages.1.content"),
        ({"messages": [{"role": "system", "content": []}]}, "messages.0.content"),
        ({"messages": [{"role": "tool", "tool_call_id": "1"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "smell", "smell": "a"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages.0.content.0.text"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ],
)
def test_a_wrong_value_is_400_and_names_the_field(http, changes, param):
    response = http.post(CHAT, json={"model": "parrot", "messages": USER, **changes})
    assert response.status_code == 400
    error = error_of(response)
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(param)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"logprobs": 6}, "logprobs"),
        ({"model": "texts", "prompt": [1, 2]}, None),
        ({"model": "texts", "prompt": [[1], [2]], "stream": True}, None),
        ({"model": "awaited-texts", "prompt": [1]}, None),
        ({"model": "texts-alone", "prompt": [1]}, None),
        ({"model": "vllm", "prompt": [1]}, None),
    ],
)
def test_a_wrong_value_of_a_completion_is_400(http, changes, param):
    response = http.post("/v1/completions", json={"model": "continued", "prompt": "a", **changes})
    assert response.status_code == 400
    error = error_of(response)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    if "prompt" in changes:
        assert "takes text, not tokens" in error["message"]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": ""}],
        [*USER, {"role": "assistant", "tool_calls": [{"id": "1"}]}, {"role": "tool", "content": "a"}],
        [*USER, {"role": "assistant", "content": None, "refusal": "no"}],
        [*USER, {"role": "function", "name": "f", "content": None}],
    ],
)
def test_messages_without_content_are_accepted_where_they_need_none(http, messages):
    assert http.post(CHAT, json={"model": "told", "messages": messages}).status_code == 200


def test_options_beside_what_they_need_are_accepted(http):
    options = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 20}
    for each in options, {"top_logprobs": 0}, {"response_format": {"type": "text"}}, {"stream_options": None}:
        assert http.post(CHAT, json={"model": "parrot", "messages": USER, **each}).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b"\xff", b'{"model": "\\ud800"}', b"[" * 100000])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings"])
def test_a_body_that_is_no_request_is_400(http, path, body):
    response = http.post(path, content=body)
    assert response.status_code == 400
    assert error_of(response)["type"] == "invalid_request_error"


def test_a_prompt_that_is_too_large_is_413(http, client):
    message = [{"role": "user", "content": "a" * MOST_BYTES}]
    response = http.post(CHAT, json={"model": "parrot", "messages": message})
    assert response.status_code == 413
    assert "max_body_bytes" in error_of(response)["message"]
    with pytest.raises(openai.APIStatusError, match="max_body_bytes"):
        client.embeddings.create(model="embed", input="a" * MOST_BYTES)


def test_a_long_prompt_is_answered(client):
    text = "€" * (MOST_BYTES // 4)
    answer = client.chat.completions.create(model="parrot", messages=[{"role": "user", "content": text}])
    assert answer.choices[0].message.content == text


def test_an_unknown_model_is_404(http):
    response = http.post(CHAT, json={"model": "parot", "messages": USER})
    assert response.status_code == 404
    error = error_of(response)
    assert (error["code"], error["type"]) == ("model_not_found", "invalid_request_error")
    assert "'parrot'" in error["message"]


@pytest.mark.parametrize("name", ["", "a/b", "../x", "\0", "a" * 5000, "é"])
def test_a_model_of_an_odd_name_is_404(http, name):
    assert http.post(CHAT, json={"model": name, "messages": USER}).status_code == 404


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/images/generations", "/v1/models/a/b", "/v1/assistants"])
def test_a_route_that_is_not_served_is_404_and_told_from_an_unknown_model(http, client, path):
    for response in http.post(path, json={"model": "parrot"}), http.get(path):
        assert response.status_code == 404
        error = error_of(response)
        assert (error["code"], error["type"]) == ("unknown_url", "invalid_request_error")
        assert path in error["message"]
    with pytest.raises(openai.NotFoundError) as refused:
        client.responses.create(model="parrot", input="a")
    assert refused.value.code == "unknown_url"


@pytest.mark.parametrize("given", [[], "", None, 5, ["a", [1]], [""], [[]], [1.5], ["a"] * 3000])
def test_embedding_inputs_of_another_form_are_refused_with_the_forms_that_there_are(http, given):
    response = http.post("/v1/embeddings", json={"model": "embed", "input": given})
    assert response.status_code == 400
    error = error_of(response)
    assert error["param"] == "input"
    assert error["message"].startswith("input: a text, a list of tokens, or a list of either")


def test_another_method_is_405(http):
    response = http.get(CHAT)
    assert (response.status_code, response.headers["allow"]) == (405, "POST, OPTIONS")
    error_of(response)
    assert http.post("/v1/models").status_code == 405
    response = http.head("/v1/models")
    assert (response.status_code, response.content) == (200, b"")
    assert http.options("/v1/models").headers["allow"] == "GET, HEAD, OPTIONS"


def test_a_page_of_another_origin_is_refused(http):
    headers = {"sec-fetch-site": "cross-site", "origin": "https://example.com"}
    response = http.post(CHAT, json={"model": "parrot", "messages": USER}, headers=headers)
    assert response.status_code == 403
    error_of(response)


def test_unknown_fields_and_nulls_are_tolerated(http):
    body = {"model": "parrot", "messages": USER, "store": True, "metadata": {"a": "b"}, "tools": None, "stop": None}
    assert http.post(CHAT, json={**body, "n": None, "stream": None, "temperature": None}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_function_is_a_status(client, stream):
    message = [{"role": "user", "content": "0"}]
    with pytest.raises(openai.InternalServerError, match="no more words") as caught:
        client.chat.completions.create(model="refusing", messages=message, stream=stream)
    assert caught.value.status_code == 503
    assert caught.value.type == "server_error"


def test_an_error_in_mid_stream_is_its_last_event(http, client):
    body = {"model": "refusing", "messages": [{"role": "user", "content": "2"}], "stream": True}
    events = [line.removeprefix("data: ") for line in http.post(CHAT, json=body).text.splitlines() if line]
    assert [json.loads(each)["choices"][0]["delta"]["content"] for each in events[:-1]] == ["", "word ", "word "]
    assert json.loads(events[-1])["error"]["message"] == "no more words"
    with pytest.raises(openai.APIError, match="no more words"):
        for _ in client.chat.completions.create(**body):
            pass


def test_what_a_function_may_not_yield_is_500(client):
    with pytest.raises(openai.InternalServerError, match=r"a chat yields text, .*not 3\.5"):
        client.chat.completions.create(model="broken", messages=USER)


def test_too_many_answers_are_refused(http):
    body = {"model": "continued", "prompt": ["a"] * 100, "n": 2}
    response = http.post("/v1/completions", json=body)
    assert response.status_code == 400
    assert "200 answers" in error_of(response)["message"]


def test_the_routes_of_kserve_are_beside_them(http):
    assert http.post("/v1/models/embed:predict", json={"instances": ['"text"']}).status_code == 200
