"""Whether values fit the schemas of a signature."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pytriton.signature.arrays import array_of
from pytriton.signature.problems import MOST_COUNTED, Path, Problem, ValueMismatchError, expectation, literal, shown
from pytriton.signature.schema import Schema

__all__ = ["checks", "problems"]

Definitions = Mapping[str, Schema]

INT64 = range(-(2**63), 2**63)
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")
CONSTRAINTS = {*LIMITS, *LENGTHS, "enum", "const", "pattern"}


def checks(schema: Schema) -> bool:
    """Whether a decoded value of a schema has to be checked: a tensor's dtype needs no check."""
    if schema.get("encoding") == "json" or not CONSTRAINTS.isdisjoint(schema):
        return True
    return "items" in schema and checks(schema["items"])


def problems(
    schema: Schema, value: Any, definitions: Definitions, path: Path = (), *, inside: bool = False
) -> list[Problem]:
    """Where a value does not fit a schema.

    Args:
        schema: Of the value. Unknown keywords are ignored.
        value: As JSON has it, but for bytes and arrays, which may be such.
        inside: Whether it is a part of a JSON text, where bytes are base64.

    Returns:
        The first thousand.
    """
    context = _Context(definitions, inside or schema.get("encoding") == "json", {})
    found = _each_problem(schema, value, path, context)
    try:
        return list(islice(found, MOST_COUNTED))
    except RecursionError:
        return [Problem(path, "a value that is nested less deeply", "one of too many levels")]


class _Context(NamedTuple):
    """What does not change from one part of a value to the next.

    Attributes:
        inside: Whether the value is a part of a JSON text.
        fitting: Whether the parts at some paths fit the options that they were compared with: records may hold each
            other, and to compare each part with each option of all that are around it would take for ever.
    """

    definitions: Definitions
    inside: bool
    fitting: dict[tuple[int, Path], bool]


def _each_problem(schema: Schema, value: Any, path: Path, context: _Context) -> Iterator[Problem]:
    schema = _resolved(schema, context)
    for part in schema.get("allOf", ()):
        yield from _each_problem(part, value, path, context)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        yield from _in_no_option(options, value, path, context)
    elif "enum" in schema or "const" in schema:
        if not any(value == each and type(value) is type(each) for each in schema.get("enum", [schema.get("const")])):
            yield Problem(path, expectation(schema), shown(value))
    elif "dtype" in schema and "shape" in schema:
        try:
            array_of(schema, value, path)
        except ValueMismatchError as error:
            yield from error.problems
    elif not _has_type(schema, value, context.inside) or not _is_within(schema, value):
        yield Problem(path, expectation(schema), shown(value))
    elif isinstance(value, dict):
        yield from _problems_of_members(schema, value, path, context)
    elif isinstance(value, (list, tuple)):
        first = schema.get("prefixItems", ())
        for index, item in enumerate(value):
            part = first[index] if index < len(first) else schema.get("items", {})
            if isinstance(part, dict):
                yield from _each_problem(part, item, (*path, index), context)


def _resolved(schema: Schema, context: _Context) -> Schema:
    while "$ref" in schema:
        schema = context.definitions.get(schema["$ref"].rpartition("/")[2], {})
    return schema


def _in_no_option(options: Sequence[Schema], value: Any, path: Path, context: _Context) -> Iterator[Problem]:
    others = [each for each in options if each.get("type") != "null"]
    if value is None and len(others) < len(options):
        return
    if len(others) == 1 and value is not None:
        yield from _each_problem(others[0], value, path, context)
    elif not any(_fits(each, value, path, context) for each in others):
        yield Problem(path, " or ".join(map(expectation, options)), shown(value))


def _fits(schema: Schema, value: Any, path: Path, context: _Context) -> bool:
    schema = _resolved(schema, context)
    known = context.fitting.get((id(schema), path))
    if known is None:
        known = next(_each_problem(schema, value, path, context), None) is None
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        if any(isinstance(part, (dict, list, tuple)) for part in parts):  # others are as fast to compare again
            context.fitting[id(schema), path] = known
    return known


def _problems_of_members(schema: Schema, value: Mapping[str, Any], path: Path, context: _Context) -> Iterator[Problem]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem((*path, name), expectation(properties.get(name, {})), "nothing")
    names = schema.get("propertyNames", {}).get("enum")
    for name, item in value.items():
        if names is not None and name not in names:
            yield Problem((*path, name), f"one of {', '.join(map(literal, names))}", "another name")
            continue
        part = properties.get(name, others)
        if part is False:
            listed = ", ".join(map(literal, properties)) or "none"
            yield Problem((*path, name), f"one of the fields {listed}", "another")
        elif isinstance(part, dict):
            yield from _each_problem(part, item, (*path, name), context)


def _has_type(schema: Schema, value: Any, inside: bool) -> bool:
    wanted = schema.get("type")
    if isinstance(wanted, list):
        return any(_has_type({**schema, "type": each}, value, inside) for each in wanted)
    if wanted == "string" and "contentEncoding" in schema:
        return (isinstance(value, str) and _is_base64(value)) if inside else isinstance(value, bytes)
    if wanted in ("integer", "number"):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if wanted == "number" or not number:
            return number
        return (isinstance(value, int) or value.is_integer()) and (inside or int(value) in INT64)
    kinds = {"string": str, "boolean": bool, "null": type(None), "object": dict, "array": (list, tuple)}
    return wanted not in kinds or isinstance(value, kinds[wanted])  # type: ignore[arg-type]


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_within(schema: Schema, value: Any) -> bool:
    """Whether a value of the right type is within the limits."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        step = schema.get("multipleOf")
        return (
            value >= schema.get("minimum", value)
            and value <= schema.get("maximum", value)
            and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
            and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
            and (step is None or _is_multiple(value, step))
        ) or (value != value and not any(limit in schema for limit in LIMITS))
    if isinstance(value, (str, bytes)):
        size = len(value)
        matches = "pattern" not in schema or not isinstance(value, str) or re.search(schema["pattern"], value)
        return schema.get("minLength", 0) <= size <= schema.get("maxLength", size) and bool(matches)
    if isinstance(value, (list, tuple)):
        return bool(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)))
    return True


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return math.isfinite(value) and abs(value / step - round(value / step)) < 1e-9
    except OverflowError:  # an integer that no float is near
        return False
