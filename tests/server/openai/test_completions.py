"""Completions of texts, and models with the conventions of other backends."""

from __future__ import annotations

import json

import openai
import pytest

pytestmark = pytest.mark.either_proxy


def test_a_text_is_continued(client):
    answer = client.completions.create(model="continued", prompt="ab", suffix="!")
    assert answer.object == "text_completion"
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason, choice.logprobs) == ("ab12!", "stop", None)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, 1)


def test_a_stream_has_pieces_of_text(client):
    events = [*client.completions.create(model="continued", prompt="ab", stream=True)]
    assert [event.choices[0].text for event in events] == ["ab1", "2", ""]
    assert [event.choices[0].finish_reason for event in events] == [None, None, "stop"]


def test_each_prompt_has_its_choices(client):
    answer = client.completions.create(model="continued", prompt=["a", "b"], n=2, echo=True)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "aa12"),
        (1, "aa12"),
        (2, "bb12"),
        (3, "bb12"),
    ]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 4)


def test_a_stream_of_several_prompts_is_complete(client):
    texts = {0: "", 1: ""}
    for event in client.completions.create(model="continued", prompt=["a", "b"], echo=True, stream=True):
        texts[event.choices[0].index] += event.choices[0].text
    assert texts == {0: "aa12", 1: "bb12"}


def test_tokens_are_passed_on(client):
    assert client.completions.create(model="continued", prompt=[1, 2]).choices[0].text == "tokens [1, 2]"
    answer = client.completions.create(model="continued", prompt=[[1], [2]])
    assert [choice.text for choice in answer.choices] == ["tokens [1]", "tokens [2]"]


def test_log_probabilities_are_of_the_form_of_completions(client):
    found = client.completions.create(model="continued", prompt="a", logprobs=1).choices[0].logprobs
    assert found.tokens == ["a1", "2"]
    assert found.token_logprobs == [-0.5, -0.25]
    assert found.top_logprobs == [{"a1": -0.5}, {}]
    assert found.text_offset == [0, 2]


def test_a_stop_sequence_ends_the_text(client):
    assert client.completions.create(model="continued", prompt="a", stop=["12"]).choices[0].text == "a"


def test_what_cannot_be_done_is_refused(client):
    with pytest.raises(openai.BadRequestError, match="best_of"):
        client.completions.create(model="continued", prompt="a", best_of=3)
    with pytest.raises(openai.BadRequestError, match="echo"):
        client.completions.create(model="continued", prompt=[1], echo=True)
    with pytest.raises(openai.NotFoundError, match="'parrot' does not exist, or is none for completions"):
        client.completions.create(model="parrot", prompt="a")


def test_a_model_of_vllms_convention_continues_texts(client):
    options = {"temperature": 0.5, "max_tokens": 3, "seed": 1}
    answer = client.completions.create(model="vllm", prompt="Say", **options)
    assert answer.choices[0].text == f"Say {json.dumps(options, sort_keys=True)} end"
    pieces = [event.choices[0].text for event in client.completions.create(model="vllm", prompt="Say", stream=True)]
    assert pieces == ["Say", " ", "{}", " end", ""]


def test_stop_sequences_end_answers_of_other_backends(client):
    assert client.completions.create(model="vllm", prompt="Say", stop="y {").choices[0].text == "Sa"


def test_a_model_of_tensorrt_llms_convention_gets_its_inputs(client):
    answer = client.completions.create(model="trtllm", prompt="Say", max_tokens=5, temperature=0.5)
    assert answer.choices[0].text == "Say 5 0.5"
    pieces = client.completions.create(model="trtllm", prompt="Say", max_tokens=5, temperature=0.5, stream=True)
    assert [event.choices[0].text for event in pieces] == ["Say 5 0.5", ""]


def test_a_model_of_another_backend_without_template_answers_no_chats(client):
    with pytest.raises(openai.NotFoundError, match="none for chats"):
        client.chat.completions.create(model="vllm", messages=[{"role": "user", "content": "a"}])
