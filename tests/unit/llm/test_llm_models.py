"""Functions as models: what they may be, and the requests that they get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pytriton.exceptions import PyTritonRequestError, PyTritonValidationError
from pytriton.llm import ChatModel, ChatRequest, CompletionModel, CompletionRequest, EmbeddingModel
from pytriton.llm.kinds import CHAT, KEY, Kind
from pytriton.llm.requests import EmbeddingRequest
from pytriton.model_config import ModelConfig
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.errors import RestError
from pytriton.rest.inference import CallDetails
from pytriton.rest.openai.answers import Call, answer
from pytriton.worker.results import is_async

USER: Any = [{"role": "user", "content": "a"}]


def parrot(request: ChatRequest) -> Iterator[str]:
    yield request.messages[-1]["content"]


def answers(model: Any, request: dict[str, Any]) -> list[Any]:
    responses = model.served()([{"request": np.array([json.dumps(request).encode()], object)}])
    return [json.loads(chunk) for (response,) in responses for chunk in response["chunks"]]


def test_a_model_tells_its_kind_in_its_configuration():
    derived = ChatModel(parrot, owned_by="me").derived(ModelConfig())
    assert derived.config.decoupled
    assert not derived.config.batching
    config = TritonModelConfig("a", backend_parameters={**derived.parameters})
    assert Kind.of(config) == Kind(CHAT, "me")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2, "kind": "chat"}', '{"version": 1, "kind": "poem"}'])
def test_other_models_have_no_kind(text):
    assert Kind.of(TritonModelConfig("a", backend_parameters={KEY: text})) is None
    assert Kind.of(TritonModelConfig("a")) is None


def test_functions_that_return_async_iterators_are_async():
    async def stream() -> AsyncIterator[str]:
        yield "a"

    def annotated(request: ChatRequest) -> AsyncIterator[str]:
        return stream()

    def plain(request):
        return stream()

    assert is_async(ChatModel(annotated).served())
    assert not is_async(ChatModel(plain).served())
    with pytest.raises(TypeError, match="write async def"):
        answers(ChatModel(plain), {"model": "m", "messages": USER})


@pytest.mark.parametrize("result", ["text", ["te", "xt"], iter(["te", "xt"]), {"content": "text"}, b"text"])
def test_a_function_may_return_its_answer(result):
    chunks = answers(ChatModel(lambda request: result), {"model": "m", "messages": USER})
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == "text"


def test_a_model_can_be_called_as_its_function():
    assert [*ChatModel(parrot)(ChatRequest(model="m", messages=USER))] == ["a"]


@pytest.mark.parametrize("model", [ChatModel, CompletionModel, EmbeddingModel])
def test_what_is_no_function_is_refused(model):
    for wrong in (3, dict):
        with pytest.raises(PyTritonValidationError, match=f"{model.__name__} takes a function"):
            model(wrong)
    with pytest.raises(PyTritonValidationError, match="tokenizer"):
        model(parrot, tokenizer=3)


def test_a_wrong_template_is_refused():
    with pytest.raises(PyTritonValidationError, match="the chat template is wrong"):
        ChatModel(parrot, template="{% if %}")
    with pytest.raises(PyTritonValidationError, match="apply_chat_template"):
        ChatModel(parrot, template=3)


def test_a_template_may_refuse_messages():
    model = ChatModel(parrot, template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(PyTritonRequestError, match="roles must alternate"):
        answers(model, {"model": "m", "messages": USER})


def test_a_template_cannot_reach_the_program():
    model = ChatModel(parrot, template="{{ messages.__class__.__mro__ }}")
    with pytest.raises(PyTritonRequestError, match="unsafe"):
        answers(model, {"model": "m", "messages": USER})


def test_a_template_has_what_models_of_hugging_face_use():
    template = """\
{% for message in messages %}
    {%- if loop.index0 > 5 %}{% break %}{% endif %}
[{{ message['role'] }}] {{ message['content'] | trim }}
{% endfor %}
{{ tools | tojson }}{{ strftime_now('%Y')[:2] }}{% if add_generation_prompt %}[assistant]{% endif %}
"""
    found = []

    def prompted(request: ChatRequest) -> str:
        found.append(request.prompt)
        return ""

    request = {"model": "m", "messages": USER, "tools": [{"type": "function", "function": {"name": "f"}}]}
    answers(ChatModel(prompted, template=template), request)
    tools = '[{"type": "function", "function": {"name": "f"}}]'
    assert found == [f"[user] a\n{tools}20[assistant]"]


def test_a_tokenizer_of_transformers_renders_too():
    class Tokenizer:
        def apply_chat_template(self, messages: Any, **options: Any) -> str:
            return f"{len(messages)} {sorted(options)}"

    def prompted(request: ChatRequest) -> str:
        return request.prompt

    chunks = answers(ChatModel(prompted, template=Tokenizer()), {"model": "m", "messages": USER})
    assert chunks[0]["delta"]["content"] == "1 ['add_generation_prompt', 'tokenize', 'tools']"


@pytest.mark.parametrize("takes_tokens", [None, True])
def test_an_error_of_a_function_that_has_begun_or_takes_tokens_is_its_own(takes_tokens):
    def failing(request: CompletionRequest) -> Iterator[str]:
        if takes_tokens is None:
            yield "begin"
        yield request.prompt.upper()

    with pytest.raises(AttributeError, match="upper"):
        answers(CompletionModel(failing, takes_tokens=takes_tokens), {"model": "m", "prompt": [1]})


def test_a_function_that_takes_no_tokens_gets_their_text_from_the_tokenizer():
    tokenizer = SimpleNamespace(encode=str.split, decode=lambda tokens: " ".join(map(str, tokens)))
    model = CompletionModel(lambda request: request.prompt, tokenizer=tokenizer, takes_tokens=False)
    text, _, usage = answers(model, {"model": "m", "prompt": [[1, 2], [3]]})
    assert (text["text"], usage["usage"]["prompt_tokens"]) == ("1 2", 2)


def test_sampling_has_what_the_client_gave():
    request = ChatRequest(model="m", messages=USER, temperature=0.5, seed=3, max_completion_tokens=9, stop=["x"])
    given = {"temperature": 0.5, "max_tokens": 9, "stop": ["x"]}
    assert request.sampling == {**given, "seed": 3}
    assert request.for_choice(2).sampling == {**given, "seed": 5}


def test_prompts_are_told_apart_from_tokens():
    def prompts(prompt: Any) -> Any:
        return CompletionRequest(model="m", prompt=prompt).prompts

    assert prompts("a") == ["a"]
    assert prompts(["a", "b"]) == ["a", "b"]
    assert prompts([1, 2]) == [[1, 2]]
    assert prompts([[1], [2]]) == [[1], [2]]


@pytest.mark.parametrize("given", ["", [], [""], [[]], [-1], [1.5], ["a"] * 3000, {"a": 1}, None, [True]])
def test_inputs_that_cannot_be_embedded_are_refused(given):
    with pytest.raises(ValidationError):
        EmbeddingRequest(model="m", input=given)


def test_tokens_become_text_where_a_tokenizer_decodes():
    class Tokenizer:
        def encode(self, text: str) -> list[int]:
            return [*map(ord, text)]

        def decode(self, tokens: list[int]) -> str:
            return "".join(map(chr, tokens))

    model = EmbeddingModel(lambda texts: np.array([[len(text)] for text in texts]), tokenizer=Tokenizer())
    request = {"input": np.array([[b'"abc"'], [b"[97, 98]"]], object)}
    (response,) = model.served()([request])
    assert response["embedding"].tolist() == [[3.0], [2.0]]
    assert response["tokens"].tolist() == [[3], [2]]


def test_an_array_of_another_size_is_an_error():
    model = EmbeddingModel(lambda texts: np.zeros((1, 4)))
    with pytest.raises(ValueError, match=r"shape \(1, 4\) for 2 texts"):
        model.served()([{"input": np.array([[b'"a"'], [b'"b"']], object)}])


class Script:
    """Answers as a server that sends these responses.

    Args:
        model: What made them.
        responses: Of one request.
    """

    def __init__(self, model: ChatModel, responses: list[Any]) -> None:
        parameters = model.derived(ModelConfig()).parameters
        self._served = SimpleNamespace(
            model=SimpleNamespace(config=TritonModelConfig("a", backend_parameters=parameters))
        )
        self._responses = responses

    async def answer(self, *_: Any) -> Any:
        async def responses() -> AsyncIterator[Any]:
            for (each,) in self._responses:
                yield each

        return self._served, None, responses()


@pytest.mark.parametrize("tokenizer", [None, str.split])
def test_an_answer_of_which_the_server_has_lost_the_end_is_an_error(tokenizer):
    model = ChatModel(parrot, tokenizer=tokenizer)
    body = json.dumps({"model": "a", "messages": USER}).encode()
    call = Call(ChatRequest.model_validate_json(body), [body], CHAT, CallDetails("1", {}))
    responses = [*model.served()([{"request": np.array([body], object)}])]

    async def read(sent: list[Any]) -> list[bytes]:
        script: Any = Script(model, sent)
        return [chunk async for chunks in answer(script, call, 0) for chunk in chunks]

    assert b'"stop"' in b"".join(asyncio.run(read(responses)))
    for count in range(len(responses)):
        with pytest.raises(RestError, match="before it was complete"):
            asyncio.run(read(responses[:count]))
