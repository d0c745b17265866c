"""GGUF, by llama-cpp-python: chat models, in files with a chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import llama_cpp

from pytriton.exceptions import ErrorCode, PyTritonRequestError, PyTritonValidationError
from pytriton.files.probe import check_survives
from pytriton.llm import ChatModel, ChatRequest, Finish, Usage
from pytriton.llm.kinds import CHUNKS, REQUEST
from pytriton.model_config import ModelConfig
from pytriton.saved.contents import Contents, LoadOptions
from pytriton.saved.results import ANYTHING
from pytriton.signature.derive import Derived

__all__ = ["read"]

MOST_TOKENS = 8192  # of a context, whose memory is taken when the file is loaded
TEMPLATE = "tokenizer.chat_template"


class Chat(ChatModel):
    """A chat model that answers one request at a time, as its network has one context."""

    def derived(self, config: ModelConfig) -> Derived:
        """The model's tensors: see :mod:`pytriton.llm.kinds`."""
        return super().derived(replace(config, max_batches_in_flight=1))


def read(path: Path, options: LoadOptions) -> Contents:
    """Load a chat model, onto the GPU if the library was built for one.

    Raises:
        PyTritonValidationError: The file is damaged, or has no chat template.
    """
    check_survives(path, "libllama.so")
    with closing(llama_cpp.Llama(str(path), vocab_only=True, verbose=False)) as texts:
        about = texts.metadata
    kind = about["general.architecture"]
    if TEMPLATE not in about:
        raise PyTritonValidationError(
            f"{path} is a GGUF file of a {kind} without chat template; serve it with a program, see docs/llm.md"
        )
    threads = {"n_threads": options.threads, "n_threads_batch": options.threads}
    context = min(int(about[f"{kind}.context_length"]), MOST_TOKENS)
    network = llama_cpp.Llama(str(path), n_ctx=context, n_gpu_layers=-1, verbose=False, **threads)

    def chat(request: ChatRequest) -> Iterator[Mapping[str, Any] | Finish | Usage]:
        return _answer(network, request)

    chat.__doc__ = about.get("general.name", kind)
    notes = [f"a chat for OpenAI's API, with contexts of up to {network.n_ctx()} tokens"]
    inputs, results = {REQUEST: ANYTHING}, {CHUNKS: ANYTHING}
    return Contents(f"GGUF {kind}", inputs, Chat(chat), batching=False, notes=notes, results=results)


def _answer(network: llama_cpp.Llama, request: ChatRequest) -> Iterator[Mapping[str, Any] | Finish | Usage]:
    """What the network says, with the number of tokens so far before each piece."""
    sampling = {name: value for name, value in request.sampling.items() if name != "stop"}  # the model cuts there
    given = {"tools": request.tools, "tool_choice": request.tool_choice, "response_format": request.response_format}
    prompt = 0
    try:
        for chunk in network.create_chat_completion(request.messages, stream=True, **given, **sampling):
            (choice,) = chunk["choices"]
            prompt = prompt or network.n_tokens  # the first token is chosen, and not yet part of these
            if choice["finish_reason"] is None:
                yield Usage(prompt, network.n_tokens - prompt + ("content" in choice["delta"]))
            yield choice["delta"]
            if choice["finish_reason"]:
                yield Finish(choice["finish_reason"])
    except (ValueError, jinja2.TemplateError) as error:  # a context that is too long, roles that the template refuses
        raise PyTritonRequestError(str(error), ErrorCode.INVALID_ARG) from error
