"""What functions yield, as the chunks of a model's responses.

A chunk is JSON: what a choice of OpenAI's API has beside its ``index``, or ``{"usage": {...}}``. So the app need not
read the chunks of a stream, and puts them into its events as they are.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytriton.llm.chunks import Finish, Token, ToolCall, Usage
from pytriton.llm.stops import StopSequences, TextDecoder

__all__ = ["ChatWriter", "CompletionWriter", "Count", "Writer"]

Count = Callable[[str], int]
"""The number of tokens of a text."""

_text = json.encoder.encode_basestring  # JSON of a text, in characters of Unicode


class Writer(ABC):
    """Writes one answer.

    Args:
        logprobs: How many of the most likely tokens the client wants; None for no log probabilities.
        prompt: What the request asks, for ``count``.
        count: Counts tokens; None leaves them out, if the function does not tell them.

    Attributes:
        ended: Whether the answer has ended, so that nothing else need be yielded.
    """

    def __init__(
        self, stop: Sequence[str] | None, logprobs: int | None, prompt: Callable[[], str | int], count: Count | None
    ) -> None:
        self.ended = False
        self._stops = StopSequences(stop) if stop else None
        self._logprobs = logprobs
        self._decoder = TextDecoder()
        self._prompt = prompt
        self._count = count
        self._written: list[str] = []
        self._usage: Usage | None = None
        self._reason = "stop"

    def write(self, item: Any) -> bytes | None:
        """The chunk for what the function yielded; None if there is nothing to send yet.

        Raises:
            TypeError: It is none of what functions may yield.
        """
        if type(item) is str or type(item) is bytes:
            text = self._cut(item)
            return self._text_chunk(text) if text else None
        if isinstance(item, Token):
            text = self._cut(item.text)
            probabilities = None if self._logprobs is None else self._probabilities(item, text)
            return self._text_chunk(text, probabilities) if text or probabilities else None
        if isinstance(item, Usage):
            self._usage = item
            return None
        if isinstance(item, Finish):
            self._reason = item.reason
            self.ended = True
            return None
        if isinstance(item, (str, bytes)):
            return self.write(str(item) if isinstance(item, str) else bytes(item))
        return self._other(item)

    def end(self) -> list[bytes]:
        """The last chunks."""
        chunks = []
        if self._stops is None or not self._stops.found:
            rest = self._cut(self._decoder.end().encode()) + (self._stops.end() if self._stops else "")
            if rest:
                chunks.append(self._text_chunk(rest))
        chunks.append(self._last(self._reason))
        usage = self._counted()
        if usage is not None:
            chunks.append(json.dumps({"usage": usage}).encode())
        return chunks

    def _cut(self, piece: str | bytes) -> str:
        text = self._decoder.decode(piece)
        if self._stops is not None:
            text = self._stops.cut(text)
            if self._stops.found:
                self._reason, self.ended = "stop", True
        if self._count is not None and text:
            self._written.append(text)
        return text

    def _counted(self) -> dict[str, Any] | None:
        usage = self._usage
        if usage is None:
            if self._count is None:
                return None
            prompt = self._prompt()
            tokens = prompt if isinstance(prompt, int) else self._count(prompt)
            usage = Usage(tokens, self._count("".join(self._written)))
        given = {name: value for name, value in asdict(usage).items() if value is not None}
        return {**given, "total_tokens": usage.prompt_tokens + usage.completion_tokens}

    @abstractmethod
    def _text_chunk(self, text: str, probabilities: Any = None) -> bytes:
        """A piece of text, with the log probabilities of its token."""

    @abstractmethod
    def _probabilities(self, token: Token, text: str) -> Any:
        """The log probabilities of a token, as the API has them."""

    @abstractmethod
    def _last(self, reason: str) -> bytes:
        """The chunk that ends an answer."""

    def _other(self, item: Any) -> bytes | None:
        raise TypeError(f"a model of this kind yields text, Token, Usage or Finish, not {item!r:.100}")


class ChatWriter(Writer):
    """Writes deltas of a message."""

    _tools = -1

    def _text_chunk(self, text: str, probabilities: Any = None) -> bytes:
        logprobs = "null" if probabilities is None else json.dumps(probabilities, ensure_ascii=False)
        return f'{{"delta":{{"content":{_text(text)}}},"logprobs":{logprobs},"finish_reason":null}}'.encode()

    def _probabilities(self, token: Token, text: str) -> Any:
        top = sorted(token.top.items(), key=lambda each: -each[1])[: self._logprobs]
        likely = [_logprob(each, value) for each, value in top]
        return {"content": [{**_logprob(token.text, token.logprob), "top_logprobs": likely}], "refusal": None}

    def _last(self, reason: str) -> bytes:
        if reason == "stop" and self._tools >= 0:
            reason = "tool_calls"
        return json.dumps({"delta": {}, "logprobs": None, "finish_reason": reason}).encode()

    def _other(self, item: Any) -> bytes | None:
        if isinstance(item, ToolCall):
            return self._delta({"tool_calls": [self._call(item)]})
        if hasattr(item, "model_dump"):  # a message of the openai package
            item = item.model_dump(exclude_none=True)
        if not isinstance(item, Mapping):
            raise TypeError(f"a chat yields text, Token, ToolCall, Usage, Finish or a dict, not {item!r:.100}")
        members = {name: value for name, value in item.items() if name != "role" and value is not None}
        if isinstance(members.get("content"), (str, bytes)):
            members["content"] = self._cut(members["content"])
            if not members["content"]:
                del members["content"]
        if members.get("tool_calls"):
            members["tool_calls"] = [self._numbered(number, call) for number, call in enumerate(members["tool_calls"])]
        return self._delta(members) if members else None

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return json.dumps({"delta": delta, "logprobs": None, "finish_reason": None}, ensure_ascii=False).encode()

    def _call(self, call: ToolCall) -> dict[str, Any]:
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        if not call.name:
            if self._tools < 0:
                raise ValueError("the first ToolCall of an answer needs a name")
            return {"index": self._tools, "function": {"arguments": arguments}}
        self._tools += 1
        function = {"name": call.name, "arguments": arguments}
        return {"index": self._tools, "id": call.id or _call_id(), "type": "function", "function": function}

    def _numbered(self, number: int, call: Mapping[str, Any]) -> dict[str, Any]:
        """A call of OpenAI's form with its index, which whole messages lack."""
        index = call.get("index", self._tools + 1 if "id" in call or number else max(self._tools, 0))
        self._tools = max(self._tools, index)
        return {"index": index, **call}


class CompletionWriter(Writer):
    """Writes pieces of a text."""

    _offset = 0

    def _text_chunk(self, text: str, probabilities: Any = None) -> bytes:
        logprobs = "null" if probabilities is None else json.dumps(probabilities, ensure_ascii=False)
        self._offset += len(text)
        return f'{{"text":{_text(text)},"logprobs":{logprobs},"finish_reason":null}}'.encode()

    def _probabilities(self, token: Token, text: str) -> Any:
        name = _name(token.text)
        top = sorted(token.top.items(), key=lambda each: -each[1])[: self._logprobs]
        return {
            "tokens": [name],
            "token_logprobs": [token.logprob],
            "top_logprobs": [dict(top)],
            "text_offset": [self._offset],
        }

    def _last(self, reason: str) -> bytes:
        return json.dumps({"text": "", "logprobs": None, "finish_reason": reason}).encode()


def _logprob(text: str | bytes, value: float) -> dict[str, Any]:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    return {"token": _name(text), "logprob": value, "bytes": list(data)}


def _name(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")


def _call_id() -> str:
    return f"call_{os.urandom(12).hex()}"
