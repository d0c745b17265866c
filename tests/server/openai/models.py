"""Callables of the tests of OpenAI's routes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np

from pytriton.base import TritonBase
from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.llm import (
    ChatModel,
    ChatRequest,
    CompletionModel,
    CompletionRequest,
    EmbeddingModel,
    Finish,
    Token,
    ToolCall,
    Usage,
)
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor

TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<assistant>"
LETTERS = "naïve 日本語 👩‍👩‍👧 🇩🇪 end"


def parrot(request: ChatRequest) -> Iterator[str]:
    """Repeats the last message, word by word."""
    for index, word in enumerate(request.messages[-1]["content"].split(" ")):
        yield word if not index else f" {word}"


def told(request: ChatRequest) -> str:
    """Says what it got, as JSON."""
    return json.dumps({"prompt": request.prompt, "choice": request.choice, **request.model_dump(exclude_unset=True)})


async def awaited(request: ChatRequest) -> dict[str, Any]:
    """Returns a whole message."""
    await asyncio.sleep(0)
    return {"role": "assistant", "content": f"choice {request.choice}", "reasoning_content": "because"}


async def counting(request: ChatRequest) -> AsyncIterator[str]:
    """Yields the numbers below the one that the message has."""
    for number in range(int(request.messages[-1]["content"])):
        yield f"{number} "
        await asyncio.sleep(0)


async def letters(request: ChatRequest) -> AsyncIterator[bytes]:
    """Yields the bytes of a text one by one."""
    for byte in LETTERS.encode():
        yield bytes([byte])


def tokens(request: ChatRequest) -> Iterator[Any]:
    """Yields tokens with log probabilities, and usage."""
    yield Token("Hel", -0.1, {"Hel": -0.1, "By": -2.5, "Yo": -3.0})
    yield Token(b"\xc3", -0.2)
    yield Token(b"\xa9", -0.3)
    yield Usage(7, 3, prompt_tokens_details={"cached_tokens": 2})
    yield Finish("length")
    raise AssertionError("nothing is asked for after the end")


def caller(request: ChatRequest) -> Iterator[Any]:
    """Calls two tools in parts, or tells the result of a call."""
    if request.messages[-1]["role"] == "tool":
        yield f"It is {request.messages[-1]['content']}."
        return
    assert request.tools is not None
    name = request.tools[0]["function"]["name"]
    yield ToolCall(name, id="call_1")
    yield ToolCall(arguments='{"city": ')
    yield ToolCall(arguments='"Ulm"}')
    yield ToolCall(name, {"city": "Bonn"})


def refusing(request: ChatRequest) -> Iterator[str]:
    """Fails, at once or after some words."""
    for _ in range(int(request.messages[-1]["content"])):
        yield "word "
    raise PyTritonRequestError("no more words", ErrorCode.UNAVAILABLE)


def broken(request: ChatRequest) -> Iterator[Any]:
    yield 3.5


class Endless:
    """Yields until it is closed; counts the streams that run."""

    def __init__(self) -> None:
        self.running = 0
        self.changed = threading.Condition()

    def _add(self, count: int) -> None:
        with self.changed:
            self.running += count
            self.changed.notify_all()

    def __call__(self, request: ChatRequest) -> Iterator[str]:
        self._add(1)
        try:
            while True:
                yield "word "
                time.sleep(0.001)
        finally:
            self._add(-1)


class EndlessAsync(Endless):
    async def __call__(self, request: ChatRequest) -> AsyncIterator[str]:
        self._add(1)
        try:
            while True:
                yield "word "
                await asyncio.sleep(0.001)
        finally:
            self._add(-1)


def continued(request: CompletionRequest) -> Iterator[Any]:
    """Continues a text, or tells its tokens."""
    if isinstance(request.prompt, list):
        yield f"tokens {request.prompt}"
        return
    yield Token(f"{request.prompt}1", -0.5, {f"{request.prompt}1": -0.5, "?": -4.0})
    yield Token("2", -0.25)
    yield request.suffix or ""


def texts(request: CompletionRequest) -> Iterator[str]:
    """Takes text alone."""
    yield request.prompt.upper()  # type: ignore[union-attr]


async def awaited_texts(request: CompletionRequest) -> AsyncIterator[str]:
    yield request.prompt + "!"  # type: ignore[operator]


def embed(texts: list[str]) -> np.ndarray:
    """Length of the text, and how many texts came together."""
    return np.array([[len(text), len(texts), 2.0, 3.0] for text in texts], np.float32)


def embed_tokens(texts: list[Any]) -> np.ndarray:
    return np.array([[sum(text) if isinstance(text, list) else -1.0] for text in texts])


def generate(requests: list[Any]) -> Iterator[list[dict[str, Any]]]:
    """A model with the convention of vLLM's backend."""
    (request,) = requests
    text = request["text_input"][0].decode()
    sampling = json.loads(request["sampling_parameters"][0]) if "sampling_parameters" in request else {}
    assert request["stream"][0]
    for word in [text, " ", json.dumps(sampling, sort_keys=True), " end"]:
        yield [{"text_output": np.array([word.encode()])}]


def answer_once(requests: list[Any]) -> list[dict[str, Any]]:
    """A model with the convention of TensorRT-LLM's backend, without streams."""
    found = []
    for request in requests:
        limits = {name: request[name][:, 0] for name in ("max_tokens", "temperature") if name in request}
        text = b"%b %d %.1f" % (request["text_input"][0, 0], limits["max_tokens"][0], limits["temperature"][0])
        found.append({"text_output": np.array([[text]])})
    return found


def bind_models(triton: TritonBase) -> None:
    """Bind them all; ``Endless`` are the tests' own."""
    for function in (parrot, awaited, counting, letters, tokens, caller, refusing, broken):
        triton.bind(ChatModel(function, tokenizer=str.split if function is parrot else None))
    triton.bind("told", ChatModel(told, template=TEMPLATE, owned_by="tests"))
    triton.bind("continued", CompletionModel(continued, tokenizer=str.split))
    triton.bind("texts", CompletionModel(texts))
    triton.bind("awaited-texts", CompletionModel(awaited_texts))
    triton.bind("texts-alone", CompletionModel(lambda request: f"{request.prompt}", takes_tokens=False))
    batcher = ModelConfig(max_batch_size=8, batcher=DynamicBatcher(max_queue_delay_microseconds=2000))
    triton.bind("embed", EmbeddingModel(embed, tokenizer=str.split), config=batcher)
    triton.bind("embed-tokens", EmbeddingModel(embed_tokens, takes_tokens=True))
    inputs = [
        Tensor(name="text_input", dtype=bytes, shape=(1,)),
        Tensor(name="stream", dtype=np.bool_, shape=(1,), optional=True),
        Tensor(name="sampling_parameters", dtype=bytes, shape=(1,), optional=True),
    ]
    output = [Tensor(name="text_output", dtype=bytes, shape=(1,))]
    triton.bind("vllm", generate, inputs, output, config=ModelConfig(batching=False, decoupled=True))
    limits = [
        Tensor(name="max_tokens", dtype=np.int32, shape=(1,)),
        Tensor(name="temperature", dtype=np.float32, shape=(1,), optional=True),
    ]
    triton.bind("trtllm", answer_once, [inputs[0], *limits], output, config=ModelConfig(max_batch_size=4))
