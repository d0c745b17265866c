"""The routes of OpenAI's API as ASGI applications."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel
from starlette.routing import Route

from pytriton.llm.kinds import CHAT, COMPLETION
from pytriton.llm.requests import (
    MOST_CHOICES,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    WrongRequestError,
    read_request,
)
from pytriton.rest.bodies import read_body
from pytriton.rest.config import RestConfig
from pytriton.rest.costs import SMALL_BYTES, Charges, charges_of
from pytriton.rest.errors import RestError, send_error
from pytriton.rest.inference import CallDetails, Inference
from pytriton.rest.middleware import request_id, trace_headers
from pytriton.rest.models import Model
from pytriton.rest.openai.answers import Call, answer, kinds_of, owner_of
from pytriton.rest.openai.embeddings import embedded, read_inputs
from pytriton.rest.openai.errors import no_model, of_wrong, openai_error
from pytriton.rest.openai.wire import CHAT_FORM, COMPLETION_FORM, FRAMING, Answer, Events, total, usage_of, whole
from pytriton.rest.permits import as_key_may_see, check_model, may_call
from pytriton.rest.streams import send_stream
from pytriton.rest.tokens import Spending, of_request
from pytriton.rest.waits import CancelledOnDisconnect, ClientDisconnectedError
from pytriton.signature.json_texts import size_of

__all__ = ["routes"]

COPIES = 2  # of a request's objects: as they are parsed, and as they are checked
JSON_HEADER = (b"content-type", b"application/json")

R = TypeVar("R", bound=BaseModel)


def routes(inference: Inference, config: RestConfig) -> list[Route]:
    """The routes."""
    return [
        Route("/v1/chat/completions", ChatCompletions(inference, config)),
        Route("/v1/completions", Completions(inference, config)),
        Route("/v1/embeddings", Embeddings(inference, config)),
        Route("/v1/models", Models(inference, config)),
        Route("/v1/models/{model}", Models(inference, config)),
    ]


class _Endpoint(ABC):
    """A route whose errors are of OpenAI's form."""

    methods: tuple[str, ...] = ("POST",)

    def __init__(self, inference: Inference, config: RestConfig) -> None:
        self._inference = inference
        self._config = config

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        try:
            allowed = ", ".join((*self.methods, "OPTIONS"))
            if scope["method"] == "OPTIONS":
                await _send(send, 204, b"", [(b"allow", allowed.encode())])
            elif scope["method"] not in self.methods:
                text = f"{scope['method']} is not allowed here; use {self.methods[0]}"
                raise RestError(405, "METHOD_NOT_ALLOWED", text, headers={"Allow": allowed})
            else:
                await self._answer(scope, receive, send)
        except ClientDisconnectedError:
            return
        except RestError as error:
            await send_error(send, openai_error(as_key_may_see(scope, error)))

    @abstractmethod
    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request whose method is right."""

    async def _read(self, kind: type[R], scope: Any, receive: Any) -> tuple[R, bytes]:
        headers = dict(scope["headers"])
        charges = charges_of(scope)
        body = await read_body(receive, headers, self._config.max_body_bytes, self._config.timeout_s, charges)
        try:
            request = await charges.run(len(body), partial(self._parsed, kind, body, charges))
        except WrongRequestError as error:
            raise of_wrong(error) from error
        model: str = request.model  # type: ignore[attr-defined]
        check_model(scope, model)
        scope["state"]["model"] = model
        return request, body

    def _parsed(self, kind: type[R], body: bytes, charges: Charges) -> R:
        if len(body) >= SMALL_BYTES:
            charges.charge(COPIES * size_of(body).tree_bytes)
        return read_request(kind, body)


class ChatCompletions(_Endpoint):
    """``/v1/chat/completions``."""

    _kind: str = CHAT
    _form = CHAT_FORM
    _requests: type[Any] = ChatRequest

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        request, body = await self._read(self._requests, scope, receive)
        begins = self._begins(request)
        if len(begins) > MOST_CHOICES:
            raise RestError(400, "INVALID_VALUE", f"the request asks for {len(begins)} answers; {MOST_CHOICES} at most")
        bodies = self._bodies(request, body)
        if len(body) >= SMALL_BYTES:
            charges_of(scope).charge((request.n or 1) * sum(map(len, bodies)))
        details = CallDetails(request_id(scope), trace_headers(dict(scope["headers"])), charges_of(scope))
        call = Call(request, bodies, self._kind, details)
        with Spending.of(scope) as spending:
            if spending:
                spending.begin(of_request(request))
            answers = [answer(self._inference, call, index) for index in range(len(begins))]
            if request.stream:
                events = self._events(call, answers, begins, spending)
                return await send_stream(events, FRAMING, receive, send, self._config.heartbeat_s)
            collected = [Answer(self._form, index, begin) for index, begin in enumerate(begins)]
            async with CancelledOnDisconnect(receive), aclosing(merged(answers)) as pieces:
                async for index, chunks in pieces:
                    collected[index].add(chunks)
                    spending.produced(len(chunks))
            found = whole(self._form, request.model, collected, request.n or 1)
            spending.report(_total_tokens(found.get("usage")))
        await _send(send, 200, orjson.dumps(found), [JSON_HEADER])

    def _begins(self, request: Any) -> list[str]:
        """The text before each answer."""
        return [""] * (request.n or 1)

    def _bodies(self, request: Any, body: bytes) -> list[bytes]:
        """What the model gets for each prompt, as often as the request wants answers to it.

        Raises:
            RestError: All calls together would send more than the largest body.
        """
        most, bodies, size = self._config.max_body_bytes, [], 0
        for each in self._bodies_of_prompts(request, body):
            bodies.append(each)
            size += len(each) * (request.n or 1)
            if size > most:
                text = f"the model gets the request once for each answer; together that is more than {most} bytes"
                raise RestError(413, "BODY_TOO_LARGE", f"{text}, the app's max_body_bytes: send a smaller n")
        return bodies

    def _bodies_of_prompts(self, request: Any, body: bytes) -> Iterator[bytes]:
        yield body

    async def _events(
        self, call: Call, answers: list[AsyncGenerator[list[bytes], None]], begins: list[str], spending: Spending
    ) -> AsyncGenerator[bytes, None]:
        """The events of a stream, some at a time."""
        request = call.request
        events = Events(self._form, request.model, request.stream_usage)
        usages: list[Any] = [None] * len(answers)
        async with aclosing(merged(answers)) as pieces:
            async for index, chunks in pieces:
                usages[index] = usage_of(chunks[-1:]) or usages[index]
                spending.produced(len(chunks))
                if begins[index]:
                    begin = {"text": begins[index], "logprobs": None, "finish_reason": None}
                    chunks = [orjson.dumps(begin), *chunks]
                    begins[index] = ""
                yield events.of(index, chunks)
        usage = total(usages, request.n or 1)
        spending.report(_total_tokens(usage))
        if request.stream_usage and usage is not None:
            yield events.usage(usage)


class Completions(ChatCompletions):
    """``/v1/completions``."""

    _kind = COMPLETION
    _form = COMPLETION_FORM
    _requests = CompletionRequest

    def _begins(self, request: CompletionRequest) -> list[str]:
        prompts = request.prompts
        if request.echo and not all(isinstance(prompt, str) for prompt in prompts):
            raise RestError(400, "INVALID_VALUE", "echo needs a prompt of text, not of tokens")
        return [str(prompt) if request.echo else "" for prompt in prompts for _ in range(request.n or 1)]

    def _bodies_of_prompts(self, request: CompletionRequest, body: bytes) -> Iterator[bytes]:
        prompts = request.prompts
        if len(prompts) == 1:
            yield body
            return
        for prompt in prompts:
            yield request.model_copy(update={"prompt": prompt}).model_dump_json(exclude_unset=True).encode()


class Embeddings(_Endpoint):
    """``/v1/embeddings``."""

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        request, _ = await self._read(EmbeddingRequest, scope, receive)
        details = CallDetails(request_id(scope), trace_headers(dict(scope["headers"])), charges_of(scope))
        with Spending.of(scope) as spending:
            if spending:
                spending.begin(of_request(request))
            async with CancelledOnDisconnect(receive):
                _, _, rows = await self._inference.answer(
                    request.model, "", lambda served: read_inputs(served, request), details
                )
            found = embedded(request, rows)
            spending.report(_total_tokens(found.get("usage")))
        await _send(send, 200, orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY), [JSON_HEADER])


class Models(_Endpoint):
    """``/v1/models`` and ``/v1/models/{model}``: the models that the other routes serve."""

    methods = ("GET", "HEAD")

    def __init__(self, inference: Inference, config: RestConfig) -> None:
        super().__init__(inference, config)
        self._created = int(time.time())  # the server does not tell when it loaded a model

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        name = scope["path_params"].get("model")
        if name is None:
            ready = await self._inference.models.ready()
            found = [
                self._described(each) for each in ready if _serves(each) and may_call(scope, each.config.model_name)
            ]
            return await _send(send, 200, orjson.dumps({"object": "list", "data": found}), [JSON_HEADER])
        check_model(scope, name)
        served = await self._inference.models.find(name)
        if not _serves(served.model):
            raise no_model(name, "OpenAI's API")
        await _send(send, 200, orjson.dumps(self._described(served.model)), [JSON_HEADER])

    def _described(self, model: Model) -> dict[str, Any]:
        name, owner = model.config.model_name, owner_of(model.config)
        return {"id": name, "object": "model", "created": self._created, "owned_by": owner}


def _total_tokens(usage: dict[str, Any] | None) -> int | None:
    return None if usage is None else int(usage["total_tokens"])


def _serves(model: Model) -> bool:
    return bool(kinds_of(model.config))


async def _send(send: Any, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    length = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})


async def merged(
    streams: Sequence[AsyncGenerator[list[bytes], None]],
) -> AsyncGenerator[tuple[int, list[bytes]], None]:
    """The pieces of all streams, as they come, each with the number of its stream. All are closed in any case."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as stream:
            async for piece in stream:
                yield 0, piece
        return
    pieces: asyncio.Queue[Any] = asyncio.Queue(2 * len(streams))

    async def pump(index: int, stream: AsyncGenerator[list[bytes], None]) -> None:
        try:
            async with aclosing(stream):
                async for piece in stream:
                    await pieces.put((index, piece))
        except Exception as error:
            await pieces.put(error)
        else:
            await pieces.put(None)

    tasks = [asyncio.ensure_future(pump(index, stream)) for index, stream in enumerate(streams)]
    try:
        running = len(tasks)
        while running:
            found = await pieces.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                running -= 1
            else:
                yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
