"""The chunks of a model's answer, whatever the model's own convention is.

=========================== ==========================================================================================
:mod:`pytriton.llm`         a request as it came, and chunks as they are sent
vLLM's and TensorRT-LLM's   ``text_input`` and, where the model has them, ``sampling_parameters`` (JSON), ``stream``,
backends                    ``max_tokens``, ``temperature``, ``stop_words`` ...; ``text_output`` has pieces of the ans
=========================== ==========================================================================================

A model of the second kind answers chats if its configuration has a parameter ``chat_template``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from pytriton.client.codec import Arrays
from pytriton.exceptions import PyTritonError
from pytriton.llm.chunks import Finish, Usage
from pytriton.llm.kinds import CHAT, CHOICE, CHUNKS, COMPLETION, REQUEST, Kind
from pytriton.llm.requests import ChatRequest, CompletionRequest
from pytriton.llm.templates import renderer
from pytriton.llm.writing import ChatWriter, CompletionWriter, Writer
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.errors import RestError
from pytriton.rest.inference import CallDetails, Inference, Question, Served
from pytriton.rest.openai.errors import no_model

__all__ = ["Call", "answer", "kinds_of", "owner_of"]

TEXT_INPUT, TEXT_OUTPUT = "text_input", "text_output"
SAMPLING, TEMPLATE = "sampling_parameters", "chat_template"
YES = ("exclude_input_in_output", "return_finish_reason", "return_num_input_tokens", "return_num_output_tokens")
FINISH, INPUT_TOKENS, OUTPUT_TOKENS = "finish_reason", "num_input_tokens", "num_output_tokens"
FINISHED = b'"finish_reason": "'  # in one chunk of a whole answer, as pytriton.llm.writing makes it
OTHER_NAMES = {"random_seed": "seed", "stop_words": "stop"}


@dataclass(frozen=True)
class Call:
    """A request of a client.

    Attributes:
        request: As it was checked.
        bodies: JSON, one for each of its prompts: what models of :mod:`pytriton.llm` get.
        kind: CHAT or COMPLETION.
        details: What travels with it.
    """

    request: ChatRequest | CompletionRequest
    bodies: Sequence[bytes]
    kind: str
    details: CallDetails


def kinds_of(config: TritonModelConfig) -> Sequence[str]:
    """What a model can do, as :mod:`pytriton.llm.kinds` names it; nothing for models of other kinds."""
    kind = Kind.of(config)
    if kind is not None:
        return (kind.kind,)
    if not _is_generating(config):
        return ()
    return (CHAT, COMPLETION) if TEMPLATE in config.backend_parameters else (COMPLETION,)


def owner_of(config: TritonModelConfig) -> str:
    """Whom the list of models names."""
    kind = Kind.of(config)
    return config.backend or "triton" if kind is None else kind.owned_by


def _is_generating(config: TritonModelConfig) -> bool:
    inputs, outputs = {each.name for each in config.inputs or ()}, {each.name for each in config.outputs or ()}
    return TEXT_INPUT in inputs and TEXT_OUTPUT in outputs


async def answer(inference: Inference, call: Call, choice: int) -> AsyncGenerator[list[bytes], None]:
    """The chunks of one of the answers to a request, in the order in which they come; some at a time.

    Raises:
        RestError: The model does not do this, or failed.
    """

    async def read(served: Served) -> Question:
        config = served.model.config
        if call.kind not in kinds_of(config):
            raise no_model(config.model_name, "chats" if call.kind == CHAT else "completions")
        return Question([_own_inputs(call, choice) if Kind.of(config) else _inputs(config, call, choice)])

    served, _, responses = await inference.answer(call.request.model, "", read, call.details)
    if not isinstance(responses, AsyncGenerator):
        responses = _each(responses)
    async with aclosing(responses):
        if Kind.of(served.model.config) is None:
            async with aclosing(_written(_writer(call), responses)) as chunks:
                async for each in chunks:
                    yield each
        else:
            has_finished = False
            async for outputs in responses:
                own = outputs[CHUNKS].tolist()
                has_finished = has_finished or any(FINISHED in chunk for chunk in own)
                yield own
            if not has_finished:  # the server has lost responses
                raise RestError(500, "INTERNAL", "the server ended the answer before it was complete")


async def _each(rows: Sequence[Arrays]) -> AsyncGenerator[Arrays, None]:
    for row in rows:
        yield row


def _own_inputs(call: Call, choice: int) -> Arrays:
    number, index = divmod(choice, call.request.n or 1)
    row = {REQUEST: np.array([[call.bodies[number]]], object)}
    return row if not index else {**row, CHOICE: np.array([[index]], np.int32)}


# Models of other backends.


def _inputs(config: TritonModelConfig, call: Call, choice: int) -> Arrays:
    """The inputs of a model of another backend."""
    request = call.request
    number, index = divmod(choice, request.n or 1)
    request = request.model_copy().for_choice(index)
    given = {**request.sampling, TEXT_INPUT: _prompt(config, request, number), "stream": config.decoupled}
    given |= dict.fromkeys(YES, True)
    given |= {other: given[name] for other, name in OTHER_NAMES.items() if name in given}
    given[SAMPLING] = json.dumps(request.sampling)
    row = {}
    for each in config.inputs or ():
        if each.name in given:
            value = given[each.name]
            values = value if isinstance(value, list) else [value]
            if isinstance(values[0], str):
                values = [text.encode("utf-8", "replace") for text in values]
            row[each.name] = np.array([values], object if isinstance(values[0], bytes) else each.dtype)
    return row


def _prompt(config: TritonModelConfig, request: ChatRequest | CompletionRequest, number: int) -> str:
    if isinstance(request, ChatRequest):
        try:
            return renderer(config.backend_parameters[TEMPLATE])(request.messages, request.tools)
        except PyTritonError as error:
            raise RestError(400, "INVALID_REQUEST", str(error)) from error
    prompt = request.prompts[number]
    if not isinstance(prompt, str):
        raise RestError(400, "INVALID_VALUE", f"the model {config.model_name!r} takes text, not tokens")
    return prompt


def _writer(call: Call) -> Writer:
    make: Callable[..., Writer] = ChatWriter if call.kind == CHAT else CompletionWriter
    return make(call.request.stop, None, str, None)


async def _written(writer: Writer, responses: AsyncGenerator[Arrays, None]) -> AsyncGenerator[list[bytes], None]:
    reason = ""
    prompt_tokens = completion_tokens = 0
    async for outputs in responses:
        text = b"".join(outputs[TEXT_OUTPUT].reshape(-1).tolist())
        chunk = writer.write(text) if text else None
        if chunk is not None:
            yield [chunk]
        if writer.ended:
            break
        if FINISH in outputs and (told := outputs[FINISH].reshape(-1)[0]) not in (b"", b"None"):
            reason = told.decode("utf-8", "replace")
        if INPUT_TOKENS in outputs and OUTPUT_TOKENS in outputs:
            prompt_tokens = int(outputs[INPUT_TOKENS].reshape(-1)[0])
            completion_tokens += int(outputs[OUTPUT_TOKENS].reshape(-1)[0])
    if reason and not writer.ended:
        writer.write(Finish(reason))
    if prompt_tokens:
        writer.write(Usage(prompt_tokens, completion_tokens))
    yield writer.end()
