"""Chats through the openai package, streamed and not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.server.openai.models import LETTERS
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_a_message_is_answered(client):
    answer = client.chat.completions.create(model="parrot", messages=user("hello big world"))
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "parrot"
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert (choice.message.role, choice.message.content) == ("assistant", "hello big world")
    assert choice.message.tool_calls is None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 3, 6)


def test_a_stream_begins_with_the_role_and_ends_with_the_reason(client):
    events = [*client.chat.completions.create(model="parrot", messages=user("hello big world"), stream=True)]
    assert {event.object for event in events} == {"chat.completion.chunk"}
    assert len({(event.id, event.created) for event in events}) == 1
    assert all(event.usage is None for event in events)
    deltas = [event.choices[0].delta for event in events]
    assert [(each.role, each.content) for each in deltas] == [
        ("assistant", ""),
        (None, "hello"),
        (None, " big"),
        (None, " world"),
        (None, None),
    ]
    assert [event.choices[0].finish_reason for event in events] == [None] * 4 + ["stop"]


def test_a_stream_tells_usage_on_demand_in_an_event_of_its_own(client):
    events = [
        *client.chat.completions.create(
            model="parrot", messages=user("a b"), stream=True, stream_options={"include_usage": True}
        )
    ]
    assert [event.choices for event in events][-1] == []
    assert events[-1].usage.total_tokens == 4
    assert all(event.usage is None for event in events[:-1])


def test_the_wire_form_is_events_and_done(client):
    with client.chat.completions.with_streaming_response.create(
        model="parrot", messages=user("a"), stream=True
    ) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    first = json.loads(lines[0].removeprefix("data: "))
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]


def test_several_answers_are_choices(client):
    answer = client.chat.completions.create(model="awaited", messages=user("a"), n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.message.content for choice in answer.choices] == ["choice 0", "choice 1", "choice 2"]
    assert answer.choices[0].message.model_extra["reasoning_content"] == "because"
    assert answer.usage is None


def test_several_streams_are_interleaved_and_complete(client):
    texts = {0: "", 1: "", 2: ""}
    roles, reasons = [], []
    for event in client.chat.completions.create(model="counting", messages=user("50"), n=3, stream=True):
        (choice,) = event.choices
        texts[choice.index] += choice.delta.content or ""
        roles += [choice.index] if choice.delta.role else []
        reasons += [choice.finish_reason] if choice.finish_reason else []
    assert texts == dict.fromkeys(range(3), "".join(f"{number} " for number in range(50)))
    assert sorted(roles) == [0, 1, 2]
    assert reasons == ["stop"] * 3


def test_the_function_gets_the_request(client):
    given: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                ],
            },
        ],
        "temperature": 0.5,
        "top_p": 0.25,
        "seed": 7,
        "frequency_penalty": -1.0,
        "presence_penalty": 1.5,
        "logit_bias": {"5": 10.0},
        "user": "ada",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "max_completion_tokens": 9,
    }
    answer = client.chat.completions.create(model="told", **given, extra_body={"mirostat": {"tau": 2}})
    found = json.loads(answer.choices[0].message.content)
    assert found.pop("prompt").startswith("<system>Be brief.<user>[{")
    assert found == {"model": "told", "choice": 0, **given, "max_tokens": 9, "mirostat": {"tau": 2}}


def test_the_chat_template_makes_the_prompt(client):
    answer = client.chat.completions.create(model="told", messages=user("hi"), max_tokens=3)
    found = json.loads(answer.choices[0].message.content)
    assert (found["prompt"], found["max_tokens"]) == ("<user>hi<assistant>", 3)


@pytest.mark.parametrize("stop", ["g w", ["xyz", "g w", "orl"], "g"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_a_stop_sequence_that_lies_across_chunks(client, stop, stream):
    assert text_of(client, "parrot", "hello big world", stream, stop=stop) == ("hello bi", "stop")


def test_text_that_only_begins_a_stop_sequence_is_sent(client):
    assert text_of(client, "parrot", "hello big w", True, stop="world") == ("hello big w", "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_characters_that_are_cut_between_chunks_are_whole(client, stream):
    assert text_of(client, "letters", "", stream) == (LETTERS, "stop")


def text_of(client: Any, model: str, message: str, stream: bool, **options: Any) -> tuple[str, str]:
    answer = client.chat.completions.create(model=model, messages=user(message), stream=stream, **options)
    if not stream:
        return answer.choices[0].message.content, answer.choices[0].finish_reason
    choices = [event.choices[0] for event in answer]
    return "".join(each.delta.content or "" for each in choices), choices[-1].finish_reason


def test_log_probabilities_come_on_demand(client):
    answer = client.chat.completions.create(model="tokens", messages=user("a"), logprobs=True, top_logprobs=2)
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Helé", "length")
    assert [each.logprob for each in choice.logprobs.content] == [-0.1, -0.2, -0.3]
    assert [each.bytes for each in choice.logprobs.content] == [[*b"Hel"], [0xC3], [0xA9]]
    assert [(each.token, each.logprob) for each in choice.logprobs.content[0].top_logprobs] == [
        ("Hel", -0.1),
        ("By", -2.5),
    ]
    assert client.chat.completions.create(model="tokens", messages=user("a")).choices[0].logprobs is None


def test_streamed_log_probabilities_are_all_there(client):
    events = client.chat.completions.create(model="tokens", messages=user("a"), logprobs=True, stream=True)
    found = [event.choices[0].logprobs for event in events]
    assert [each.logprob for part in found if part for each in part.content] == [-0.1, -0.2, -0.3]


def test_usage_that_the_function_yields_is_told(client):
    usage = client.chat.completions.create(model="tokens", messages=user("a")).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 3, 10)
    assert usage.prompt_tokens_details.cached_tokens == 2


def test_tools_are_called(client):
    answer = client.chat.completions.create(model="caller", messages=user("?"), tools=[WEATHER])
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    first, second = choice.message.tool_calls
    assert (first.id, first.type, first.function.name) == ("call_1", "function", "weather")
    assert json.loads(first.function.arguments) == {"city": "Ulm"}
    assert json.loads(second.function.arguments) == {"city": "Bonn"}
    assert second.id.startswith("call_")


def test_streamed_calls_of_tools_are_deltas(client):
    with client.chat.completions.stream(model="caller", messages=user("?"), tools=[WEATHER]) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    arguments = [json.loads(call.function.arguments) for call in choice.message.tool_calls]
    assert arguments == [{"city": "Ulm"}, {"city": "Bonn"}]


def test_the_result_of_a_tool_is_answered(client):
    asked = client.chat.completions.create(model="caller", messages=user("?"), tools=[WEATHER]).choices[0].message
    result = {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "sunny"}
    answer = client.chat.completions.create(model="caller", messages=[*user("?"), asked.model_dump(), result])
    assert answer.choices[0].message.content == "It is sunny."


def test_the_async_client_gets_the_same(url):
    async def ask() -> tuple[Any, list[Any]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", timeout=DEADLINE_S) as client:
            whole, stream = await asyncio.gather(
                client.chat.completions.create(model="parrot", messages=user("a b")),
                client.chat.completions.create(model="counting", messages=user("20"), stream=True),
            )
            return whole, [event.choices[0].delta.content or "" async for event in stream]

    whole, pieces = asyncio.run(ask())
    assert whole.choices[0].message.content == "a b"
    assert "".join(pieces) == "".join(f"{number} " for number in range(20))


def test_models_are_listed(client):
    listed = {model.id: model for model in client.models.list()}
    assert {"parrot", "told", "continued", "embed", "vllm", "trtllm"} <= listed.keys()
    assert (listed["told"].object, listed["told"].owned_by) == ("model", "tests")
    assert client.models.retrieve("told") == listed["told"]
    with pytest.raises(openai.NotFoundError, match=r"no model 'tolt'.*'told'"):
        client.models.retrieve("tolt")
