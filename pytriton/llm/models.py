"""Functions as chat, completion and embedding models, for ``bind``."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar, get_origin

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import ErrorCode, PyTritonRequestError, PyTritonValidationError
from pytriton.llm.gathering import Pace
from pytriton.llm.kinds import (
    CHAT,
    CHOICE,
    CHUNKS,
    COMPLETION,
    EMBEDDING,
    INPUT,
    KEY,
    REQUEST,
    TOKENS,
    VECTOR,
    Kind,
)
from pytriton.llm.requests import ChatRequest, CompletionRequest, WrongRequestError, read_json, read_request, text_of
from pytriton.llm.templates import renderer
from pytriton.llm.writing import ChatWriter, CompletionWriter, Count, Writer
from pytriton.model_config.model_config import ModelConfig
from pytriton.model_config.tensor import Tensor
from pytriton.signature.derive import Derived
from pytriton.signature.functions import describe
from pytriton.signature.served import OwnForm

__all__ = ["ChatModel", "CompletionModel", "EmbeddingModel"]

R = TypeVar("R", ChatRequest, CompletionRequest)

ASYNC = (AsyncIterator, AsyncIterable, AsyncGenerator)
Arrays = dict[str, NDArray[Any]]
MISUSES = (AttributeError, TypeError)
TEXT_ALONE = "this model takes text, not tokens"


class _Model(OwnForm):
    _kind = ""

    def __init__(self, function: Callable[..., Any], tokenizer: Any, owned_by: str) -> None:
        if not callable(function) or isinstance(function, type):
            raise PyTritonValidationError(f"{type(self).__name__} takes a function, got {function!r:.100}")
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._count = None if tokenizer is None else counter(tokenizer)
        self._owned_by = owned_by

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as a test of it does."""
        return self._function(*args, **kwargs)

    def _derived(self, config: ModelConfig, inputs: list[Tensor], outputs: list[Tensor]) -> Derived:
        kind = Kind(self._kind, self._owned_by, describe(self._function).summary)
        return Derived(inputs, outputs, config, marks={KEY: kind.to_json()})


class _Streamed(_Model, Generic[R]):
    _requests: type[R]

    def derived(self, config: ModelConfig) -> Derived:
        """The model's tensors: see :mod:`pytriton.llm.kinds`."""
        inputs = [
            Tensor(name=REQUEST, shape=(1,), dtype=bytes),
            Tensor(name=CHOICE, shape=(1,), dtype=np.int32, optional=True),
        ]
        outputs = [Tensor(name=CHUNKS, shape=(-1,), dtype=bytes)]
        return self._derived(replace(config, batching=False, decoupled=True), inputs, outputs)

    def served(self) -> Callable[..., Any]:
        """What answers a list of one request."""
        found = describe(self._function)
        hint = found.hints.get("return")
        is_async = found.is_async or (get_origin(hint) or hint) in ASYNC
        return self._async_form() if is_async else self._form()

    def _form(self) -> Callable[..., Any]:
        def answer(requests: list[Mapping[str, Any]]) -> Generator[list[Arrays], None, None]:
            request, writer = self._read(requests[0])
            items: Any = ()
            has_begun = False
            try:
                items = _each(self._function(request))
                for item in items:
                    chunk = writer.write(item)
                    if chunk is not None:
                        has_begun = True
                        yield _response([chunk])
                    if writer.ended:
                        break
            except MISUSES as error:
                if not has_begun:
                    self._check_prompt(request, error)
                raise
            finally:
                if hasattr(items, "close"):
                    items.close()
            yield _response(writer.end())

        return answer

    def _async_form(self) -> Callable[..., Any]:
        pace = Pace()

        async def answer(requests: list[Mapping[str, Any]]) -> AsyncGenerator[list[Arrays], None]:
            request, writer = self._read(requests[0])
            has_begun = False
            try:
                items = self._function(request)
                if inspect.isawaitable(items):
                    items = await items
                if not hasattr(items, "__aiter__"):
                    items = _each_async(_each(items))
                async with aclosing(pace.gathered(_written(items, writer))) as responses:
                    async for chunks in responses:
                        has_begun = True
                        yield _response(chunks)
            except MISUSES as error:
                if not has_begun:
                    self._check_prompt(request, error)
                raise

        return answer

    def _check_prompt(self, request: R, error: Exception) -> None:  # chats have no tokens
        """Raise another error, if the function cannot have used the prompt."""

    def _read(self, inputs: Mapping[str, Any]) -> tuple[R, Writer]:
        request = read_request(self._requests, inputs[REQUEST][0])
        choice = int(inputs[CHOICE][0]) if CHOICE in inputs else 0
        return self._of_choice(request, choice)

    @abstractmethod
    def _of_choice(self, request: R, choice: int) -> tuple[R, Writer]:
        """The request as the function gets it for one of its choices, and what writes the answer."""


class ChatModel(_Streamed[ChatRequest]):
    """A function that answers chats: ``/v1/chat/completions``.

    Args:
        function: Gets a :class:`pytriton.llm.ChatRequest`, and yields text or other
            :mod:`chunks <pytriton.llm.chunks>`, or returns a text or a message. It may be an async generator: then it
            answers up to ``ModelConfig.max_batches_in_flight`` requests at once, on one event loop.
        template: Chat template, as jinja2 text, or a tokenizer of transformers, for ``ChatRequest.prompt``.
        tokenizer: Counts tokens, if the function yields no ``Usage``: a function from a text to tokens or to their
            number, or an object with such a method ``encode``.
        owned_by: Whom the list of models names.

    Raises:
        PyTritonValidationError: The function or the template is wrong.
    """

    _kind = CHAT
    _requests = ChatRequest

    def __init__(
        self, function: Callable[..., Any], *, template: Any = None, tokenizer: Any = None, owned_by: str = "pytriton"
    ) -> None:
        super().__init__(function, tokenizer, owned_by)
        self._template = template
        if template is not None:
            renderer(template)  # raises for a wrong one; compiled templates cannot be sent to worker processes

    def served(self) -> Callable[..., Any]:
        """What answers a list of one request."""
        self._render = None if self._template is None else renderer(self._template)
        return super().served()

    def _of_choice(self, request: ChatRequest, choice: int) -> tuple[ChatRequest, Writer]:
        request.for_choice(choice)
        if self._render is not None:
            messages = [{"content": None, **message} for message in request.messages]
            request.with_prompt(self._render(messages, request.tools))
        logprobs = (request.top_logprobs or 0) if request.logprobs else None

        def prompt() -> str:
            return request.prompt or "\n".join(map(text_of, request.messages))

        return request, ChatWriter(request.stop, logprobs, prompt, self._count)


class CompletionModel(_Streamed[CompletionRequest]):
    """A function that continues texts: ``/v1/completions``.

    Args:
        function: Gets a :class:`pytriton.llm.CompletionRequest` with one prompt, and yields text, ``Token``, ``Usage``
            or ``Finish``, or returns a text. See :class:`ChatModel`.
        tokenizer: See :class:`ChatModel`.
        owned_by: Whom the list of models names.
        takes_tokens: Whether the prompt may be a list of tokens. If not, and the tokenizer has a method ``decode``, the
            function gets the text of the tokens; else such requests are refused. None tries the function: a TypeError
            or AttributeError before its first chunk refuses the request.

    Raises:
        PyTritonValidationError: The function is wrong.
    """

    _kind = COMPLETION
    _requests = CompletionRequest

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        tokenizer: Any = None,
        owned_by: str = "pytriton",
        takes_tokens: bool | None = None,
    ) -> None:
        super().__init__(function, tokenizer, owned_by)
        self._takes_tokens = takes_tokens
        self._decode = getattr(tokenizer, "decode", None)

    def _check_prompt(self, request: CompletionRequest, error: Exception) -> None:
        if self._takes_tokens is None and isinstance(request.prompt, list):
            text = f"{TEXT_ALONE}; its function failed for them: {type(error).__name__}: {error!s:.200}"
            raise PyTritonRequestError(text, ErrorCode.INVALID_ARG) from error

    def _of_choice(self, request: CompletionRequest, choice: int) -> tuple[CompletionRequest, Writer]:
        number, index = divmod(choice, request.n or 1)
        if number >= len(request.prompts):
            raise PyTritonRequestError(f"the request has no choice {choice}", ErrorCode.INVALID_ARG)
        given = request.prompts[number]
        if isinstance(given, list) and self._takes_tokens is False:
            if self._decode is None:
                raise PyTritonRequestError(TEXT_ALONE, ErrorCode.INVALID_ARG)
            given = self._decode(given)
        request.prompt = given
        request.for_choice(index)

        def prompt() -> str | int:
            return given if isinstance(given, str) else len(given)

        return request, CompletionWriter(request.stop, request.logprobs, prompt, self._count)


class EmbeddingModel(_Model):
    """A function that embeds texts: ``/v1/embeddings``. The server merges the texts of requests into one call.

    Args:
        function: Gets a list of texts, up to ``ModelConfig.max_batch_size``, and returns an array of shape
            ``(texts, dimensions)``.
        takes_tokens: Whether an item of the list may also be a list of tokens. If not, and the tokenizer has a method
            ``decode``, the function gets the text of the tokens; else such requests are refused.
        tokenizer: Counts tokens; see :class:`ChatModel`.
        owned_by: Whom the list of models names.

    Raises:
        PyTritonValidationError: The function is wrong.
    """

    _kind = EMBEDDING

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        takes_tokens: bool = False,
        tokenizer: Any = None,
        owned_by: str = "pytriton",
    ) -> None:
        super().__init__(function, tokenizer, owned_by)
        self._takes_tokens = takes_tokens
        self._decode = getattr(tokenizer, "decode", None)

    def derived(self, config: ModelConfig) -> Derived:
        """The model's tensors: see :mod:`pytriton.llm.kinds`."""
        outputs = [Tensor(name=VECTOR, shape=(-1,), dtype=np.float32)]
        if self._count is not None:
            outputs.append(Tensor(name=TOKENS, shape=(1,), dtype=np.int32))
        if not config.batching:
            raise PyTritonValidationError("an EmbeddingModel needs ModelConfig(batching=True)")
        return self._derived(config, [Tensor(name=INPUT, shape=(1,), dtype=bytes)], outputs)

    def served(self) -> Callable[..., Any]:
        """What answers a list of requests."""
        if not describe(self._function).is_async:

            def answer(requests: list[Mapping[str, Any]]) -> list[Any]:
                texts, rows = self._texts(requests)
                return self._responses(texts, rows, self._function(texts))

            return answer

        async def answer_async(requests: list[Mapping[str, Any]]) -> list[Any]:
            texts, rows = self._texts(requests)
            return self._responses(texts, rows, await self._function(texts))

        return answer_async

    def _texts(self, requests: list[Mapping[str, Any]]) -> tuple[list[Any], list[int]]:
        rows = [len(request[INPUT]) for request in requests]
        return [self._text(data) for request in requests for data in request[INPUT][:, 0]], rows

    def _text(self, data: bytes) -> Any:
        try:
            given = read_json(data)
        except WrongRequestError as error:
            raise PyTritonRequestError(f"{INPUT}: {error}", ErrorCode.INVALID_ARG) from error
        if isinstance(given, str) or self._takes_tokens:
            return given
        if self._decode is None:
            raise PyTritonRequestError(TEXT_ALONE, ErrorCode.INVALID_ARG)
        return self._decode(given)

    def _responses(self, texts: list[Any], rows: list[int], result: Any) -> list[Arrays]:
        vectors = np.ascontiguousarray(result, np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(
                f"{self.__name__} returned an array of shape {vectors.shape} for {len(texts)} texts; return one row "
                "for each"
            )
        outputs: Arrays = {VECTOR: vectors}
        if self._count is not None:
            counts = [self._count(text) if isinstance(text, str) else len(text) for text in texts]
            outputs[TOKENS] = np.array(counts, np.int32)[:, np.newaxis]
        responses = []
        begin = 0
        for count in rows:
            responses.append({name: array[begin : begin + count] for name, array in outputs.items()})
            begin += count
        return responses


def counter(tokenizer: Any) -> Count:
    """What counts the tokens of a text.

    Raises:
        PyTritonValidationError: It is neither a function nor an object with a method ``encode``.
    """
    encode = getattr(tokenizer, "encode", tokenizer)
    if not callable(encode):
        raise PyTritonValidationError(f"tokenizer is a function or has a method encode(), got {tokenizer!r:.100}")

    def count(text: str) -> int:
        found = encode(text)
        return found if isinstance(found, int) else len(found)

    return count


def _response(chunks: list[bytes]) -> list[Arrays]:
    return [{CHUNKS: np.array(chunks, object)}]


def _each(result: Any) -> Any:
    """What a function yielded, or the one value that it returned."""
    if isinstance(result, AsyncIterator):
        with suppress(RuntimeError):
            result.aclose().close()  # type: ignore[attr-defined]
        raise TypeError("the function returned an async generator; write async def, or annotate -> AsyncIterator[...]")
    if isinstance(result, (Iterator, list, tuple)):
        return result
    return iter([result])


async def _written(items: Any, writer: Writer) -> AsyncGenerator[list[bytes], None]:
    try:
        async for item in items:
            chunk = writer.write(item)
            if chunk is not None:
                yield [chunk]
            if writer.ended:
                break
    finally:
        if hasattr(items, "aclose"):
            await items.aclose()
    yield writer.end()


async def _each_async(items: Iterable[Any]) -> AsyncGenerator[Any, None]:
    for item in items:
        yield item
