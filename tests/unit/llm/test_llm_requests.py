"""What a body of OpenAI's API may hold, and what its errors tell."""

from __future__ import annotations

import json

import pytest

from pytriton.exceptions import ErrorCode
from pytriton.llm.requests import (
    MOST_BIASES,
    MOST_CONTAINERS,
    MOST_PROBLEMS,
    MOST_VALUES,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RequestTooLargeError,
    WrongRequestError,
    read_request,
)

USER = [{"role": "user", "content": "a"}]
CHAT = {"model": "m", "messages": USER}


def wrong(kind, body) -> WrongRequestError:
    with pytest.raises(WrongRequestError) as caught:
        read_request(kind, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert caught.value.code == ErrorCode.INVALID_ARG
    return caught.value


@pytest.mark.parametrize("wrong_items", [[{}], [1, "a"], [None], ["a", 1], [[1], ["a"]]])
@pytest.mark.parametrize(("kind", "field"), [(CompletionRequest, "prompt"), (EmbeddingRequest, "input")])
def test_texts_or_tokens_have_one_error_however_many_are_wrong(kind, field, wrong_items):
    error = wrong(kind, {"model": "m", field: wrong_items * 1000})
    assert [path for path, _ in error.problems] == [(field,)]
    assert len(str(error)) < 200


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"messages": [{}] * 9000}, ("messages", 0, "role")),
        ({"messages": USER + [3] * 9000}, ("messages", 1)),
        ({"messages": [{"role": "user", "content": [{}] * 9000}]}, ("messages", 0, "content", 0, "type")),
        ({"messages": [{**USER[0], "tool_calls": [1] * 9000}]}, ("messages", 0, "tool_calls", 0)),
        ({"tools": [{}] * 9000}, ("tools", 0, "type")),
        ({"stop": [1] * 9000}, ("stop", 0)),
        ({"stop": ["a"] * 9000}, ("stop",)),
        ({"logit_bias": {str(index): 0 for index in range(MOST_BIASES + 1)}}, ("logit_bias",)),
    ],
)
def test_a_list_has_the_error_of_its_first_wrong_element(changes, path):
    assert [each for each, _ in wrong(ChatRequest, {**CHAT, **changes}).problems] == [path]


def test_each_field_has_one_error_and_a_body_at_most_ten():
    names = ("temperature", "top_p", "max_tokens", "seed", "n", "stop", "stream", "user", "tools", "logprobs", "model")
    error = wrong(ChatRequest, {"messages": USER, **{name: {} for name in names}})
    assert len(error.problems) == len({path[0] for path, _ in error.problems}) == MOST_PROBLEMS
    biases = wrong(ChatRequest, {**CHAT, "logit_bias": {"a" * 1000: 200}})
    assert len(str(biases)) < 200


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "\\ud800"}', b"\xff", b"[" * 100_000, b'{"a":' * 10_000])
def test_a_body_that_is_no_json_has_no_problems_of_fields(body):
    error = wrong(ChatRequest, body)
    assert error.problems == []
    assert len(str(error)) < 300


@pytest.mark.parametrize("body", [b"[1]", b"null", b"3", b'"text"'])
def test_a_body_that_is_no_object_says_so(body):
    assert str(wrong(ChatRequest, body)) == "the body: Input should be an object"


@pytest.mark.parametrize("field", ["prompt", "messages", "other"])
@pytest.mark.parametrize("item", [b"{}", b"[]", b'{"":0}'])
def test_more_lists_and_objects_than_allowed_are_refused_before_they_are_made(field, item):
    body = b'{"model":"m","%b":[%b]}' % (field.encode(), b",".join([item] * MOST_CONTAINERS))
    with pytest.raises(RequestTooLargeError, match="lists and objects"):
        read_request(CompletionRequest, body)


def test_more_values_than_allowed_are_refused():
    with pytest.raises(RequestTooLargeError, match="values"):
        read_request(EmbeddingRequest, b'{"model":"m","input":[%b1]}' % (b"1," * MOST_VALUES))


def test_brackets_and_commas_in_texts_are_not_counted():
    text = '{}[],"\\' * MOST_CONTAINERS
    request = read_request(ChatRequest, json.dumps({"model": "m", "messages": [{**USER[0], "content": text}]}).encode())
    assert request.messages[0]["content"] == text


def test_as_many_tokens_as_allowed_are_read():
    tokens = [*range(1000)] * 500
    body = json.dumps({"model": "m", "prompt": tokens}).encode()
    assert read_request(CompletionRequest, body).prompts == [tokens]
