"""Chat templates: the messages of a request as one prompt."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pytriton.exceptions import ErrorCode, PyTritonRequestError, PyTritonValidationError

__all__ = ["Render", "renderer"]

Render = Callable[[Sequence[Any], Sequence[Any] | None], str]
"""Makes the prompt of messages and tools."""


def renderer(template: Any) -> Render:
    """What renders a chat template.

    Args:
        template: A text for jinja2, as models of Hugging Face have; or a tokenizer of transformers, which has its own.

    Raises:
        PyTritonValidationError: It is neither, or no valid template.
        ImportError: jinja2 is not installed.
    """
    if hasattr(template, "apply_chat_template"):
        return lambda messages, tools: str(
            template.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
        )
    if not isinstance(template, str):
        raise PyTritonValidationError(
            f"a chat template is a text, or has apply_chat_template(), which {template!r:.100} has not"
        )
    try:
        sandbox = importlib.import_module("jinja2.sandbox")
    except ModuleNotFoundError as error:
        raise ImportError("chat templates need jinja2; install it with: pip install 'pytriton[llm]'") from error
    jinja2 = importlib.import_module("jinja2")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    try:
        compiled = environment.from_string(template)
    except jinja2.TemplateError as error:
        raise PyTritonValidationError(f"the chat template is wrong: {error}") from error

    def render(messages: Sequence[Any], tools: Sequence[Any] | None) -> str:
        try:
            return str(compiled.render(messages=messages, tools=tools, add_generation_prompt=True))
        except jinja2.TemplateError as error:
            raise _refusal(error) from error

    return render


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise PyTritonRequestError(f"the chat template refuses the messages: {message}", ErrorCode.INVALID_ARG)


def _refusal(error: Exception) -> PyTritonRequestError:
    return PyTritonRequestError(f"the chat template cannot render the messages: {error}", ErrorCode.INVALID_ARG)
