"""What the log says of the app: where it is, and a command that calls one of its models."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable
from typing import Any

from pytriton.llm.kinds import CHAT, COMPLETION, EMBEDDING, Kind
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.signature.schema import Schema, Signature

__all__ = ["announcement", "example_command"]

MOST_VALUES = 64  # written out in a command
ZEROS = {"BOOL": False, "BYTES": "text", "FP16": 0.0, "FP32": 0.0, "FP64": 0.0, "BF16": 0.0}
OPENAI: dict[str, tuple[str, dict[str, Any]]] = {
    CHAT: ("v1/chat/completions", {"messages": [{"role": "user", "content": "text"}]}),
    COMPLETION: ("v1/completions", {"prompt": "text"}),
    EMBEDDING: ("v1/embeddings", {"input": "text"}),
}
OF_TYPES: dict[str, Any] = {"boolean": False, "integer": 0, "number": 0.0, "string": "text"}


def announcement(url: str, configs: Iterable[TritonModelConfig], *, header: str | None) -> str:
    """Where the app is, as lines for the log.

    Args:
        configs: Of the bound models.
        header: With the token that calls need, as the shell writes it; None if they need none.
    """
    typed = sorted(configs, key=lambda config: Signature.of(config) is None)  # functions first, which have examples
    commands = (example_command(url, config, header=header) for config in typed)
    command = next(filter(None, commands), None)
    return f"app at {url}" + (f"\n  Try it:         {command}" if command else "")


def example_command(url: str, config: TritonModelConfig, *, header: str | None) -> str | None:
    """A line for a shell that calls a model once; None if its inputs do not fit into a line.

    Args:
        header: As for :func:`announcement`.
    """
    route = f"predict/{config.model_name}"
    kind = Kind.of(config)
    try:
        if kind is None:
            request = _request(config)
        else:
            route, inputs = OPENAI[kind.kind]
            request = {"model": config.model_name, **inputs, **({"stream": True} if config.decoupled else {})}
    except _NoExampleError:
        return None
    body = json.dumps(request, ensure_ascii=False)
    if len(body) > 8 * MOST_VALUES:
        return None
    options = " -N" * config.decoupled + (f' -H "{header}"' if header else "")
    return f"curl{options} {url}/{route} -d {shlex.quote(body)}"


class _NoExampleError(Exception):
    """A schema has no value that is short and surely valid."""


def _request(config: TritonModelConfig) -> Any:
    signature = Signature.of(config)
    if signature is not None:
        if signature.examples:
            return signature.examples[0]["input"]
        schemas, required = dict(signature.inputs), [*signature.required]
    else:
        inputs = config.inputs or ()
        schemas = {each.name: {"dtype": triton_name(each.dtype), "shape": list(each.shape)} for each in inputs}
        required = [each.name for each in inputs if not each.optional]
    return {name: _value(schemas[name]) for name in required or [*schemas][:1]}


def _value(schema: Schema) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if "shape" in schema:
        return _zeros(schema["dtype"], [max(size, 1) for size in schema["shape"]])
    if "dtype" in schema:
        return ZEROS.get(schema["dtype"], 0)
    if schema.get("type") == "array" and "items" in schema:
        return [_value(schema["items"])]
    if schema.get("type") not in OF_TYPES or "contentEncoding" in schema or "pattern" in schema:
        raise _NoExampleError
    value = OF_TYPES[schema["type"]]
    return max(value, schema["minimum"]) if "minimum" in schema else value


def _zeros(dtype: str, shape: list[int]) -> Any:
    if math.prod(shape) > MOST_VALUES:
        raise _NoExampleError
    if not shape:
        return ZEROS.get(dtype, 0)
    return [_zeros(dtype, shape[1:]) for _ in range(shape[0])]
