"""Examples of requests, for the OpenAPI description, the forms of the pages and the command in the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytriton.signature.schema import OBJECT, RESULT, Schema, Signature
from pytriton.signature.validation import problems

__all__ = ["example_of"]

LARGEST_EXAMPLE = 64  # numbers, items or characters; one made from a schema that needs more is left out
DEFAULT_SIZE = 2  # of dimensions that may have any


def example_of(signature: Signature) -> Any:
    """A request, with its answer if it is known; None if it would be large, or if no valid one is obvious."""
    if signature.examples:
        first = signature.examples[0]
        if signature.result != OBJECT and "output" in first:
            return {**first, "output": {RESULT: first["output"]}}
        return first
    schemas = {name: signature.inputs[name] for name in signature.required or [*signature.inputs][:1]}
    if sum(_size(each) for each in schemas.values()) > LARGEST_EXAMPLE:
        return None
    values = {name: _value(each, signature.definitions) for name, each in schemas.items()}
    return None if any(value is None for value in values.values()) else {"input": values}


def _size(schema: Schema) -> int:
    size = 1
    for each in schema.get("shape", ()):
        size *= DEFAULT_SIZE if each == -1 else each
    return size


def _value(schema: Schema, definitions: Mapping[str, Schema]) -> Any:
    """A value that fits a schema; None for one that is not obvious."""
    if "default" in schema or schema.get("examples"):
        return schema["examples"][0] if schema.get("examples") else schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    value = _made(schema, definitions)
    return None if value is None or problems(schema, value, definitions) else value


def _made(schema: Schema, definitions: Mapping[str, Schema]) -> Any:
    """A value of the type of a schema, which fits most limits; None for one that is not obvious."""
    if "shape" in schema:
        value = _scalar(schema["dtype"])
        for size in reversed(schema["shape"]):
            value = [value] * (DEFAULT_SIZE if size == -1 else size)
        return value
    if any(key in schema for key in ("contentEncoding", "pattern", "encoding", "anyOf")):
        return None
    if max(schema.get("minLength", 0), schema.get("minItems", 0)) > LARGEST_EXAMPLE:
        return None
    match schema.get("type"):
        case "integer" | "number" as kind:
            low = schema.get("minimum", schema.get("exclusiveMinimum", schema.get("maximum", 1) - 1) + 1)
            return math.ceil(low) if kind == "integer" else float(low)
        case "boolean":
            return True
        case "string":
            return "text".ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength", None)]
        case "array":
            item = _value(schema["items"], definitions)
            return None if item is None else [item] * max(1, schema.get("minItems", 0))
    return None


def _scalar(dtype: str) -> Any:
    if dtype == "BOOL":
        return True
    if dtype == "BYTES":
        return "text"
    return 1.0 if dtype.startswith(("FP", "BF")) else 1
