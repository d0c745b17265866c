"""What functions yield, as chunks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

from pytriton.llm import Finish, Token, ToolCall, Usage
from pytriton.llm.writing import ChatWriter, CompletionWriter


def chat(*items: Any, **options: Any) -> list[Any]:
    given = {"stop": None, "logprobs": None, "prompt": lambda: "the prompt", "count": None, **options}
    return written(ChatWriter(**given), items)


def written(writer: Any, items: Any) -> list[Any]:
    chunks = []
    for item in items:
        chunk = writer.write(item)
        chunks += [chunk] if chunk is not None else []
        if writer.ended:
            break
    return [json.loads(chunk) for chunk in [*chunks, *writer.end()]]


def deltas(chunks: list[Any]) -> list[Any]:
    return [chunk["delta"] for chunk in chunks if "delta" in chunk]


@pytest.mark.parametrize("text", ['"\\\n\t\x00', "é日本👩", "\u2028", "</script>"])
def test_text_is_a_delta(text):
    chunks = chat(text)
    assert chunks == [
        {"delta": {"content": text}, "logprobs": None, "finish_reason": None},
        {"delta": {}, "logprobs": None, "finish_reason": "stop"},
    ]


def test_empty_text_is_left_out():
    assert deltas(chat("", b"", "a", Token(""))) == [{"content": "a"}, {}]


def test_calls_of_tools_are_counted_and_get_ids():
    found = deltas(chat(ToolCall("f", {"x": 1}), ToolCall("g"), ToolCall(arguments="{}")))
    calls = [delta["tool_calls"][0] for delta in found[:-1]]
    assert [call["index"] for call in calls] == [0, 1, 1]
    assert [call["function"].get("name") for call in calls] == ["f", "g", None]
    assert calls[0]["function"]["arguments"] == '{"x": 1}'
    assert len({call["id"] for call in calls[:2]}) == 2
    assert "id" not in calls[2]
    with pytest.raises(ValueError, match="needs a name"):
        chat(ToolCall(arguments="{}"))


def test_whole_messages_are_deltas():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "text", "tool_calls": [call, {**call, "id": "b"}]}
    for each in (message, ChatCompletionMessage.model_validate(message)):
        delta, end = deltas(chat(each))
        assert delta["content"] == "text"
        assert [(part["index"], part["id"]) for part in delta["tool_calls"]] == [(0, "a"), (1, "b")]
        assert end == {}
    assert chat(message)[-1]["finish_reason"] == "tool_calls"


def test_the_text_of_a_message_ends_at_a_stop_sequence():
    chunks = chat({"role": "assistant", "content": "one two"}, stop=[" t"])
    assert deltas(chunks) == [{"content": "one"}, {}]


def test_text_that_was_held_back_is_sent_at_the_end():
    assert deltas(chat("one t", stop=["two"])) == [{"content": "one "}, {"content": "t"}, {}]


def test_usage_is_that_of_the_function_or_counted():
    assert chat("a", Usage(3, 4), count=len)[-1] == {
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    }
    assert chat("a b", " c", count=lambda text: len(text.split()))[-1] == {
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    }
    assert "usage" not in chat("a")[-1]


def test_a_reason_ends_the_answer():
    assert chat("a", Finish("length"), "b")[-1]["finish_reason"] == "length"


def test_completions_have_text():
    writer = CompletionWriter(None, 1, lambda: 5, len)
    chunks = written(writer, ["é", Token("b", -1.0, {"b": -1.0, "c": -2.0})])
    assert chunks[0] == {"text": "é", "logprobs": None, "finish_reason": None}
    assert chunks[1]["logprobs"] == {
        "tokens": ["b"],
        "token_logprobs": [-1.0],
        "top_logprobs": [{"b": -1.0}],
        "text_offset": [1],
    }
    assert chunks[-1]["usage"]["prompt_tokens"] == 5
    with pytest.raises(TypeError, match="yields text, Token, Usage or Finish"):
        writer.write(ToolCall("f"))
