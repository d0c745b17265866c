"""The JSON Schemas of a model's values in the OpenAPI description."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pytriton.rest.models import Model
from pytriton.signature.problems import MOST_PROBLEMS
from pytriton.signature.schema import Schema

__all__ = [
    "COMPONENTS",
    "ERROR",
    "as_json",
    "form_of",
    "instances_of",
    "is_file",
    "object_of",
    "or_null",
    "plain",
    "reference",
    "referring",
]

INTEGERS = {f"{sign}INT{bits}": (sign, bits) for sign in ("", "U") for bits in (8, 16, 32, 64)}
FLOATS = ("FP16", "FP32", "FP64", "BF16")
NON_FINITE = "NonFinite"
ENCODED = "EncodedBytes"
ERROR = "Error"
BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

COMPONENTS: dict[str, Schema] = {
    NON_FINITE: {
        "description": "A number that JSON cannot hold.",
        "type": "string",
        "enum": ["NaN", "Infinity", "-Infinity"],
    },
    ENCODED: {
        "description": "Bytes that are not text in UTF-8.",
        "type": "object",
        "properties": {"b64": {"type": "string", "contentEncoding": "base64", "pattern": BASE64}},
        "required": ["b64"],
        "additionalProperties": False,
    },
    ERROR: {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                    "details": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "path": {"type": "array", "items": {"type": ["string", "integer"]}},
                                "expected": {"type": "string"},
                                "got": {"type": "string"},
                            },
                            "required": ["path", "expected", "got"],
                        },
                        "maxItems": MOST_PROBLEMS,
                    },
                    "more": {"type": "integer", "description": "How many others do not fit."},
                },
                "required": ["code", "message"],
            }
        },
        "required": ["error"],
    },
}


TOLD = ("title", "description", "default", "examples")


def or_null(schema: Schema) -> Schema:
    """The schema of an input that may be absent: null is the same."""
    told = {key: schema[key] for key in TOLD if key in schema}
    bare = {key: value for key, value in schema.items() if key not in told}
    return {"anyOf": [bare, {"type": "null"}], **told} if bare else schema


def as_json(schema: Schema, references: Mapping[str, str], *, is_input: bool) -> Schema:
    """The schema of a property, as it is in JSON."""
    told: Schema = {key: schema[key] for key in TOLD if key in schema}
    if "shape" in schema:
        return {**_of_array(schema, is_input), **told}
    if schema.get("nullable"):
        bare = {key: value for key, value in schema.items() if key != "nullable"}
        return or_null(as_json(bare, references, is_input=is_input))
    if "dtype" in schema:
        limits = {key: value for key, value in schema.items() if key not in ("dtype", "type")}
        return {**_of_dtype(schema["dtype"], is_input), **limits}
    found = referring({key: value for key, value in schema.items() if key != "encoding"}, references)
    return found if "encoding" in schema else _of_values(found, is_input)


def _of_values(schema: Schema, is_input: bool) -> Schema:
    """A scalar or a list of scalars, which travel as a tensor of their own: with the limits of its dtype."""
    kind = schema.get("type")
    if kind == "array":
        return {**schema, "items": _of_values(schema["items"], is_input)}
    if "contentEncoding" in schema:
        return {**schema, "pattern": BASE64}
    if kind == "integer" and "enum" not in schema:
        return {"minimum": -(2**63), "maximum": 2**63 - 1, **schema}
    if kind == "number" and not is_input and "enum" not in schema:
        told = {key: value for key, value in schema.items() if key in ("title", "description")}
        rest = {key: value for key, value in schema.items() if key not in told}
        return {"anyOf": [rest, reference(NON_FINITE)], **told}
    return schema


def _of_array(array: Schema, is_input: bool) -> Schema:
    element = _of_dtype(array["dtype"], is_input)
    schema = or_null(element) if array.get("nullable") else element
    sizes: list[int] = array["shape"]
    for size in reversed(sizes):
        schema = {"type": "array", "items": schema}
        if size != -1:
            schema |= {"minItems": size, "maxItems": size}
    if is_input and sizes == [1]:
        schema = {"anyOf": [schema, schema["items"]]}
    return schema


def _of_dtype(dtype: str, is_input: bool) -> Schema:
    if dtype in INTEGERS:
        sign, bits = INTEGERS[dtype]
        low, high = (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return {"type": "integer", "minimum": low, "maximum": high}
    if dtype in FLOATS:
        return {"type": "number"} if is_input else {"anyOf": [{"type": "number"}, reference(NON_FINITE)]}
    if dtype == "BOOL":
        return {"type": "boolean"}
    return {"anyOf": [{"type": "string"}, reference(ENCODED)]}


def referring(schema: Any, references: Mapping[str, str]) -> Any:
    """A copy whose ``$ref`` are those of the document."""
    if isinstance(schema, dict):
        return {
            key: references.get(str(value).rpartition("/")[2], value) if key == "$ref" else referring(value, references)
            for key, value in schema.items()
        }
    return [referring(each, references) for each in schema] if isinstance(schema, list) else schema


def object_of(properties: Mapping[str, Schema], required: Iterable[str], additional: bool = True) -> Schema:
    """The schema of an object."""
    schema: Schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    return schema if additional else {**schema, "additionalProperties": False}


def instances_of(each: Schema, member: str) -> Schema:
    """The schema of ``{member: [each, ...]}``, with one or more."""
    rows = {"type": "array", "items": each, "minItems": 1}
    return object_of({member: rows}, [member], additional=member == "predictions")


def is_file(schema: Schema) -> bool:
    """Whether an input is bytes or an image, which a form takes as a file."""
    return schema.get("type") == "string" and schema.get("contentEncoding") == "base64"


def form_of(model: Model) -> Schema:
    """The form with a part for each input: bytes and images as files, others as JSON or text."""
    parts = {
        name: {"type": "string", "contentMediaType": each.get("contentMediaType", "application/octet-stream")}
        if is_file(each)
        else {"type": "string", **({"description": each["description"]} if "description" in each else {})}
        for name, each in model.signature.inputs.items()
    }
    return object_of(parts, model.signature.required, additional=False)


def reference(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def plain(name: str) -> str:
    """A name as ``components`` may have it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)
