"""The tokens that a request uses up of its API key: reserved before the model is called, and settled at the end.

What is reserved is the prompt, and for each answer ``max_tokens``. A request without ``max_tokens`` reserves more as
its answer goes on, and is ended when the key has no more. What counts in the end is what the model tells; if it does
not, or if the answer was cut off, it is the prompt, of which four bytes are taken to be a token, and a token for each
chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from pytriton.client.codec import Arrays
from pytriton.llm.kinds import CHAT, CHUNKS, EMBEDDING, INPUT, REQUEST, TOKENS, Kind
from pytriton.llm.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    WrongRequestError,
    read_request,
    text_of,
)
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.errors import RestError
from pytriton.rest.openai.answers import TEXT_INPUT, TEXT_OUTPUT, kinds_of
from pytriton.rest.openai.wire import usage_of
from pytriton.rest.permits import Permit, permit_of

__all__ = ["Estimate", "Spending", "of_request", "of_rows"]

BYTES_OF_A_TOKEN = 4
STEP = 256  # tokens that an answer of unknown length reserves at a time


class Estimate(NamedTuple):
    """What a request will use.

    Attributes:
        prompt: Tokens of its prompts.
        answers: How many it asks for.
        most: Tokens of each of them; None if the request does not tell.
    """

    prompt: int
    answers: int = 0
    most: int | None = None


def of_request(request: ChatRequest | CompletionRequest | EmbeddingRequest) -> Estimate:
    """The estimate for a request of OpenAI's API."""
    if isinstance(request, EmbeddingRequest):
        return Estimate(sum(map(_tokens, request.inputs)))
    if isinstance(request, ChatRequest):
        return Estimate(sum(_tokens(text_of(each)) for each in request.messages), request.n or 1, request.max_tokens)
    prompts = request.prompts
    return Estimate(sum(map(_tokens, prompts)), (request.n or 1) * len(prompts), request.max_tokens)


def of_rows(config: TritonModelConfig, rows: Sequence[Arrays]) -> Estimate | None:
    """The estimate for a request with the inputs of a model; None if the model is for something else."""
    kind = Kind.of(config)
    if kind is None:
        texts = [row[TEXT_INPUT] for row in rows if TEXT_INPUT in row]
        return Estimate(sum(map(_tokens_of, texts)), len(texts)) if kinds_of(config) else None
    if kind.kind == EMBEDDING:
        return Estimate(sum(_tokens_of(row[INPUT]) for row in rows if INPUT in row))
    form: type[ChatRequest | CompletionRequest] = ChatRequest if kind.kind == CHAT else CompletionRequest
    try:
        requests = [read_request(form, _bytes(row[REQUEST].reshape(-1)[0])) for row in rows if REQUEST in row]
    except WrongRequestError:  # which the model tells
        return Estimate(0)
    found = [of_request(request) for request in requests]
    limits = [each.most for each in found if each.most is not None]
    return Estimate(sum(each.prompt for each in found), len(found), max(limits) if len(limits) == len(found) else None)


def _count_outputs(outputs: Mapping[str, Any]) -> tuple[int, int | None]:
    """How many chunks a response of such a model has, and the number of all tokens, if it tells."""
    if CHUNKS in outputs:
        chunks = outputs[CHUNKS].reshape(-1).tolist()
        usage = usage_of(chunks[-1:])
        return len(chunks), None if usage is None else int(usage["total_tokens"])
    if TEXT_OUTPUT in outputs:
        return outputs[TEXT_OUTPUT].size, None
    return 0, int(np.sum(outputs[TOKENS])) if TOKENS in outputs else None


class Spending:
    """The tokens of one request: ``with Spending.of(scope) as spending: ...``.

    Args:
        permit: Of the request; None counts nothing.
    """

    def __init__(self, permit: Permit | None) -> None:
        self._permit = permit
        self._estimate: Estimate | None = None
        self._reserved = 0
        self._produced = 0
        self._reported: int | None = None

    @classmethod
    def of(cls, scope: Any) -> Spending:
        """That of a request."""
        return cls(permit_of(scope))

    def __bool__(self) -> bool:
        """Whether there is something to count."""
        return self._permit is not None

    def begin(self, estimate: Estimate) -> None:
        """Reserve tokens, in place of those that were reserved before.

        Raises:
            RestError: The key has not so many left.
        """
        if self._permit is None:
            return
        self._permit.settle(self._reserved, 0)
        self._reserved, self._estimate = 0, estimate
        if estimate.most is not None:
            wanted = least = estimate.prompt + estimate.answers * max(1, estimate.most)
        else:
            least = estimate.prompt + estimate.answers
            wanted = estimate.prompt + estimate.answers * STEP
        self._reserved = self._permit.reserve(least, wanted)

    def produced(self, chunks: int) -> None:
        """Count some chunks of an answer.

        Raises:
            RestError: The key has no more tokens for them.
        """
        if self._permit is None or self._estimate is None:
            return
        self._produced += chunks
        lacking = self._estimate.prompt + self._produced - self._reserved
        if lacking > 0:
            self._reserved += self._permit.reserve(lacking, max(lacking, STEP))

    def count_row(self, outputs: Arrays) -> None:
        """Count a response of a model, if it is one of those whose requests :func:`of_rows` estimates.

        Raises:
            RestError: As :meth:`produced`.
        """
        if self._estimate is not None:
            chunks, reported = _count_outputs(outputs)
            self._reported = reported if self._reported is None else self._reported + (reported or 0)
            self.produced(chunks)

    def count_rows(self, rows: Sequence[Arrays]) -> None:
        """Count the whole answer of a model; it was produced, so that no error comes of it."""
        with suppress(RestError):
            for row in rows:
                self.count_row(row)

    def report(self, tokens: int | None) -> None:
        """Take the number of all tokens that the model reports; None if it does not."""
        self._reported = tokens

    def __enter__(self) -> Spending:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._permit is None or self._estimate is None:
            return
        used = self._estimate.prompt + self._produced if self._reported is None else self._reported
        is_refused = isinstance(error, RestError) and not self._produced and self._reported is None
        self._permit.settle(self._reserved, 0 if is_refused else used)


def _tokens(prompt: str | Sequence[int]) -> int:
    """Of a text or of tokens, at least one."""
    if isinstance(prompt, str):
        return max(1, len(prompt.encode("utf-8", "replace")) // BYTES_OF_A_TOKEN)
    return max(1, len(prompt))


def _tokens_of(texts: Any) -> int:
    """Of an array of texts."""
    return sum(max(1, len(each) // BYTES_OF_A_TOKEN) for each in texts.reshape(-1).tolist())


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
