"""The chunks of an answer as OpenAI's API sends them: events of a stream, or one object.

A chunk is JSON, as :mod:`pytriton.llm.writing` makes it. Events of streams are made without reading it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pytriton.rest.bodies import SSE
from pytriton.rest.errors import RestError
from pytriton.rest.openai.errors import openai_error
from pytriton.rest.streams import HEARTBEAT, Framing

__all__ = ["CHAT_FORM", "COMPLETION_FORM", "FRAMING", "Answer", "Events", "Form", "total", "usage_of", "whole"]

USAGE = b'{"usage":'
ADDED = ("content", "refusal", "reasoning_content", "reasoning")  # members whose parts are put together
FRAMING = Framing(
    SSE,
    lambda events: events,
    lambda error: b"data: %b\n\n" % openai_error(error).encoded(),
    b"data: [DONE]\n\n",
    HEARTBEAT,
)


@dataclass(frozen=True)
class Form:
    """What differs between chats and completions.

    Attributes:
        prefix: Of ids.
        chunk_name: Of the object of an event.
        begin: What an answer's first event has; empty for no such event.
        is_chat: Whether answers are messages.
    """

    prefix: str
    name: str
    chunk_name: str
    begin: bytes
    is_chat: bool


CHAT_FORM = Form(
    "chatcmpl-",
    "chat.completion",
    "chat.completion.chunk",
    b'{"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}',
    is_chat=True,
)
COMPLETION_FORM = Form("cmpl-", "text_completion", "text_completion", b"", is_chat=False)


def head(form: Form, name: str, model: str) -> dict[str, Any]:
    """The members that all objects of an answer share."""
    number = f"{form.prefix}{os.urandom(12).hex()}"
    return {"id": number, "object": name, "created": int(time.time()), "model": model, "system_fingerprint": None}


class Events:
    """Makes the events of a stream.

    Args:
        model: As the client called it.
        tells_usage: Whether the last event has the number of tokens.
    """

    def __init__(self, form: Form, model: str, tells_usage: bool) -> None:
        self._form = form
        self._head = b"data: " + orjson.dumps(head(form, form.chunk_name, model))[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if tells_usage else b"]}\n\n"
        self._heads: dict[int, bytes] = {}

    def of(self, choice: int, chunks: Sequence[bytes]) -> bytes:
        """The events of some chunks; an answer's first ones have its beginning before them."""
        start = self._heads.get(choice)
        events = []
        if start is None:
            start = self._heads[choice] = self._head + b'{"index":%d,' % choice
            if self._form.begin:
                events.append(start + self._form.begin[1:] + self._tail)
        for chunk in chunks:
            if not chunk.startswith(USAGE):
                events.append(start + chunk[1:] + self._tail)
        return b"".join(events)

    def usage(self, usage: Any) -> bytes:
        """The event with the number of tokens."""
        return self._head + b'],"usage":' + orjson.dumps(usage) + b"}\n\n"


def usage_of(chunks: Sequence[bytes]) -> dict[str, Any] | None:
    """The number of tokens, if it is among some chunks."""
    for chunk in chunks:
        if chunk.startswith(USAGE):
            usage: dict[str, Any] = parsed(chunk)["usage"]
            return usage
    return None


def total(usages: Sequence[dict[str, Any] | None], n: int) -> dict[str, Any] | None:
    """The number of tokens of all answers, of which ``n`` each have the same prompt; None if one is not known."""
    known = [usage for usage in usages if usage is not None]
    if len(known) < len(usages) or not known:
        return None
    if len(known) == 1:
        return known[0]
    prompt = sum(usage["prompt_tokens"] for usage in known[::n])
    completion = sum(usage["completion_tokens"] for usage in known)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def parsed(chunk: bytes) -> Any:
    """A chunk's value.

    Raises:
        RestError: It is no JSON, because the model is wrong.
    """
    try:
        return orjson.loads(chunk)
    except ValueError as error:
        raise RestError(500, "INTERNAL", f"the model sent a chunk that is no JSON: {error}") from error


class Answer:
    """Puts the chunks of one answer together.

    Args:
        begin: Text before that of the chunks.

    Attributes:
        usage: The number of tokens, if the chunks tell.
        chunks: How many there were.
    """

    def __init__(self, form: Form, index: int, begin: str = "") -> None:
        self.usage: dict[str, Any] | None = None
        self.chunks = 0
        self._form = form
        self._index = index
        self._texts = [begin] if begin else []
        self._message: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._logprobs: dict[str, Any] | None = None
        self._reason: str | None = None

    def add(self, chunks: Sequence[bytes]) -> None:
        """Take some chunks."""
        self.chunks += len(chunks)
        for chunk in map(parsed, chunks):
            if "usage" in chunk:
                self.usage = chunk["usage"]
                continue
            self._reason = chunk.get("finish_reason") or self._reason
            if chunk.get("logprobs"):
                self._logprobs = _extended(self._logprobs or {}, chunk["logprobs"])
            if self._form.is_chat:
                self._add_delta(chunk["delta"])
            else:
                self._texts.append(chunk["text"])

    def _add_delta(self, delta: dict[str, Any]) -> None:
        if len(delta) == 1 and isinstance(delta.get("content"), str):
            self._texts.append(delta["content"])
            return
        for name, value in delta.items():
            if name == "content" and isinstance(value, str):
                self._texts.append(value)
            elif name == "tool_calls":
                for call in value:
                    self._add_call(call)
            elif name in ADDED and isinstance(self._message.get(name), str) and isinstance(value, str):
                self._message[name] += value
            else:
                self._message[name] = value

    def _add_call(self, part: dict[str, Any]) -> None:
        call = self._calls.setdefault(part["index"], {})
        for name, value in part.items():
            if name == "function":
                function = call.setdefault("function", {"name": "", "arguments": ""})
                for member, text in value.items():
                    function[member] = function.get(member, "") + text if member in ("name", "arguments") else text
            elif name != "index":
                call[name] = value

    def choice(self) -> dict[str, Any]:
        """The choice of the whole object."""
        text = "".join(self._texts)
        shared = {"index": self._index, "logprobs": self._logprobs, "finish_reason": self._reason or "stop"}
        if not self._form.is_chat:
            return {**shared, "text": text}
        content = text or (None if self._calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, **self._message}
        if self._calls:
            message["tool_calls"] = [call for _, call in sorted(self._calls.items())]
        return {**shared, "message": message}


def _extended(found: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Log probabilities with those of another chunk after them."""
    for name, value in more.items():
        found[name] = [*found.get(name, ()), *value] if isinstance(value, list) else value
    return found


def whole(form: Form, model: str, answers: Sequence[Answer], n: int) -> dict[str, Any]:
    """The object with all answers."""
    usage = total([answer.usage for answer in answers], n)
    choices = [answer.choice() for answer in answers]
    return {**head(form, form.name, model), "choices": choices, **({"usage": usage} if usage else {})}
