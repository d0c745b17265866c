"""Whether values fit the schemas of a signature, and what they are in JSON."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.model_config.dtypes import from_triton_name, triton_name
from pytriton.signature.foreign import host_array, is_table, records_of
from pytriton.signature.schema import Schema

__all__ = [
    "Problem",
    "Problems",
    "ValueMismatchError",
    "array_of",
    "as_json",
    "checks",
    "expectation",
    "message_of",
    "problems",
    "problems_of",
    "shown",
    "to_json",
]

Path = tuple[str | int, ...]
Definitions = Mapping[str, Schema]

INT64 = range(-(2**63), 2**63)
NAMES = {"integer": "an integer", "number": "a number", "boolean": "true or false", "string": "a string"}
NAMES |= {"array": "a list", "object": "an object", "null": "null"}
PLURALS = {"integer": "integers", "number": "numbers", "boolean": "booleans", "string": "strings", "object": "objects"}
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")
CONSTRAINTS = {*LIMITS, *LENGTHS, "enum", "const", "pattern"}
ELEMENTS: dict[str, tuple[Any, str]] = {  # by the kind of the dtype
    "b": ((bool, np.bool_), "true or false"),
    "i": ((int, np.integer), "an integer"),
    "u": ((int, np.integer), "an integer"),
    "f": ((int, float, np.integer, np.floating), "a number"),
    "S": ((str, bytes), "a string"),
}
LONGEST = 60  # characters of a value in a message
LONGEST_EXPECTED = 300
MOST_BITS = 4096  # of an integer that is written in digits
MOST_PARTS = 16  # of a path in a message
MOST_PROBLEMS = 10  # that an error tells
MOST_SENT_BYTES = 2900  # of a message, and of its details; a worker sends 6000
FEWEST_PARTS, SHORTEST = 4, 20  # of a path, and of each text, of a problem that is longer than that alone
MOST_COUNTED = 1000  # after which no further ones are looked for


class Problem(NamedTuple):
    """A part of a value that does not fit its schema.

    Attributes:
        path: Names of fields, and indices in lists.
        expected: A noun phrase.
        got: Likewise.
    """

    path: Path
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{json.dumps(self.path, ensure_ascii=False)}: expected {self.expected}, got {self.got}"


class Problems:
    """Problems as they are found: the first ten are kept, the others counted up to a thousand.

    Args:
        more: How many there are beyond those.

    Attributes:
        kept: The first ten; long names, texts and paths are cut.
        more: How many others there are.
    """

    def __init__(self, found: Iterable[Problem] = (), more: int = 0) -> None:
        self.kept: list[Problem] = []
        self.more = 0
        self.add(found, more)

    def __bool__(self) -> bool:
        return bool(self.kept)

    @property
    def is_enough(self) -> bool:
        """Whether no further ones are worth the search."""
        return len(self.kept) + self.more >= MOST_COUNTED

    def add(self, found: Iterable[Problem], more: int = 0) -> None:
        """Take some problems; an iterator is read only as far as they are counted."""
        for each in found:
            if len(self.kept) < MOST_PROBLEMS:
                self.kept.append(_cut(each))
            elif self.is_enough:
                break
            else:
                self.more += 1
        self.more = min(self.more + more, MOST_COUNTED - len(self.kept))

    def add_error(self, error: ValueMismatchError) -> None:
        """Take the problems of an error."""
        self.add(error.problems, error.more)

    def error(self) -> ValueMismatchError:
        """The error that tells them."""
        return ValueMismatchError(self.kept, self.more)


class ValueMismatchError(PyTritonRequestError, ValueError):
    """A value does not fit the schema of its input or output. The request fails with INVALID_ARG.

    Args:
        more: How many problems there are beyond those.

    Attributes:
        problems: The first ten of them.
        more: How many others were found, at most 990.

    A worker cuts long messages in their middle; message and details tell fewer problems instead.
    """

    def __init__(self, problems: Iterable[Problem], more: int = 0) -> None:
        found = Problems(problems, more)
        count = len(found.kept)
        text = message_of(found.kept, found.more)
        while count > 1 and _sent_bytes(text) > MOST_SENT_BYTES:
            count -= 1
            text = message_of(found.kept[:count], found.more + len(found.kept) - count)
        super().__init__(text, ErrorCode.INVALID_ARG)
        self.problems, self.more = found.kept, found.more

    @property
    def details(self) -> str:
        """The problems as JSON, as the app's errors have them; as many as can be sent."""
        told, more = self.problems, self.more
        text = _compact(told, more)
        while _sent_bytes(text) > MOST_SENT_BYTES and len(told) > 1:
            told, more = told[:-1], more + 1
            text = _compact(told, more)
        if _sent_bytes(text) <= MOST_SENT_BYTES:
            return text
        return _compact([_cut(each, FEWEST_PARTS, SHORTEST, SHORTEST) for each in told], more)


def message_of(problems: Iterable[Problem], more: int = 0) -> str:
    """Problems as one message."""
    return "; ".join(map(str, problems)) + (f"; and {more} more" if more else "")


def as_json(problems: Sequence[Problem], more: int = 0) -> dict[str, Any]:
    """Problems as the members ``details`` and ``more`` of an error in JSON; those that there are."""
    listed = [{"path": list(each.path), "expected": each.expected, "got": each.got} for each in problems]
    return ({"details": listed} if listed else {}) | ({"more": more} if more else {})


def problems_of(details: str) -> tuple[list[Problem], int]:
    """What :attr:`ValueMismatchError.details` tells, and how many more; nothing if the text is something else."""
    try:
        told = json.loads(details)
        found = [Problem(tuple(each["path"]), str(each["expected"]), str(each["got"])) for each in told["details"]]
        if all(type(part) in (int, str) for each in found for part in each.path):
            return found, int(told.get("more", 0))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):  # of a callable that writes the mark
        pass
    return [], 0


def _sent_bytes(text: str) -> int:
    """The most that a message takes in the form in which gRPC sends it."""
    is_plain = text.isascii() and text.isprintable() and "%" not in text
    return len(text) if is_plain else 3 * len(text.encode("utf-8", "replace"))


def _compact(problems: Sequence[Problem], more: int) -> str:
    return json.dumps(as_json(problems, more), separators=(",", ":"))


def _cut(problem: Problem, parts: int = MOST_PARTS, part: int = LONGEST, longest: int = LONGEST_EXPECTED) -> Problem:
    """A problem whose size does not depend on what came."""
    path = problem.path
    if len(path) > parts:
        half = parts // 2
        path = *path[:half], "...", *path[1 - half :]
    path = tuple(each if isinstance(each, int) else _shortened(each, part) for each in path)
    return Problem(path, _shortened(problem.expected, longest), _shortened(problem.got, longest))


def _shortened(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


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


def to_json(value: Any) -> Any:
    """A value as :mod:`json` takes it: dataclasses, models of pydantic, enumerations, bytes (as base64), arrays, sets.

    Raises:
        TypeError: JSON cannot express a part of it.
    """
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (np.generic, np.ndarray)):
        return to_json(value.tolist())
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, Mapping):
        return {_key(name): to_json(item) for name, item in value.items()}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    if isinstance(value, (str, int, float)):
        return value
    if is_image(value):
        return to_json(image_file(value))
    if is_table(type(value)):
        return to_json(records_of(value))
    if hasattr(value, "__dlpack__"):
        return to_json(host_array(value))
    raise TypeError(f"an instance of {type(value).__name__}, which JSON cannot express")


def _key(name: Any) -> str:
    key = to_json(name)
    if not isinstance(key, str):
        raise TypeError(f"{name!r} cannot be a key of a JSON object")
    return key


def is_image(value: Any) -> bool:
    """Whether it is an image of Pillow; Pillow need not be installed."""
    return any(each.__module__ == "PIL.Image" for each in type(value).__mro__)


def image_file(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


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
            yield Problem((*path, name), f"one of {', '.join(map(_literal, names))}", "another name")
            continue
        part = properties.get(name, others)
        if part is False:
            listed = ", ".join(map(_literal, properties)) or "none"
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


def expectation(schema: Schema) -> str:
    """The values that a schema allows, as a noun phrase."""
    if "$ref" in schema:
        return f"an object {schema['$ref'].rpartition('/')[2]}"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(expectation, options))
    if "enum" in schema or "const" in schema:
        listed = [*map(_literal, schema.get("enum", [schema.get("const")]))]
        return f"one of {', '.join(listed)}" if len(listed) > 1 else listed[0]
    if "shape" in schema:
        return _described(schema)
    kind = schema.get("type", "a value")
    if isinstance(kind, list):
        return " or ".join(str(NAMES.get(each, each)) for each in kind)
    if kind == "array":
        item = schema.get("items", {}).get("type")
        return f"a list of {PLURALS.get(item, 'values')}{_limits(schema)}"
    name = "bytes (base64 in JSON)" if "contentEncoding" in schema else NAMES.get(kind, kind)
    return f"{name}{_limits(schema)}"


def _limits(schema: Schema) -> str:
    words = {
        "minimum": "of at least {}",
        "exclusiveMinimum": "above {}",
        "maximum": "of at most {}",
        "exclusiveMaximum": "below {}",
        "multipleOf": "that is a multiple of {}",
        "minLength": "of length {} or more",
        "maxLength": "of length {} or less",
        "minItems": "with {} items or more",
        "maxItems": "with {} items or less",
        "pattern": "like {}",
    }
    said = [text.format(schema[key]) for key, text in words.items() if key in schema]
    return " " + " and ".join(said) if said else ""


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def shown(value: Any) -> str:
    """A value in a message. Only its beginning is read."""
    if isinstance(value, str):
        text = _literal(value[: LONGEST + 1])
    elif value is None or isinstance(value, bool):
        text = _literal(value)
    elif isinstance(value, np.ndarray):
        text = f"an array of {value.dtype} and shape {_shape(value.shape)}"
    elif isinstance(value, bytes):
        text = repr(value[: LONGEST + 1])
    elif isinstance(value, (int, float)):
        text = repr(value) if isinstance(value, float) or value.bit_length() < MOST_BITS else "an integer"
    elif isinstance(value, (list, tuple, set, frozenset)):
        text = f"a list of {len(value)}"
    elif isinstance(value, Mapping):
        names = (name[:LONGEST] if isinstance(name, str) else name for name in islice(value, LONGEST))
        text = f"an object with {', '.join(map(repr, names)) or 'nothing'}"
    else:
        text = f"a {type(value).__name__}"
    return _shortened(text)


def array_of(schema: Schema, value: Any, path: Path) -> NDArray[Any]:
    """A value as an array of its schema's dtype and shape; not copied if it is one.

    Args:
        schema: With ``dtype`` and ``shape``.
        value: An array whose dtype can be cast without a change of its kind, or nested lists of such values.

    Raises:
        ValueMismatchError: It is something else, or of another shape.
    """
    dtype = np.dtype(from_triton_name(schema["dtype"]))
    shape: list[int] = schema["shape"]
    value = host_array(value)
    is_array = hasattr(value, "__array__")
    if not is_array and (problem := _misshaped(shape, value, path)):
        raise ValueMismatchError([problem])
    try:
        found = value if dtype.kind == "S" else _as_found(value, dtype)
        if schema.get("nullable") and found.dtype.kind == "O":
            found = _without_nulls(found)
        array = _text_array(value) if dtype.kind == "S" else _number_array(found, dtype, is_array)
    except (OverflowError, TypeError, ValueError) as error:
        problem = None if is_array else _misfit(dtype, len(shape), value, path)
        raise ValueMismatchError([problem or Problem(path, _described(schema), shown(value))]) from error
    fits = array.ndim == len(shape) and all(want in (-1, size) for want, size in zip(shape, array.shape, strict=True))
    if not fits:
        raise ValueMismatchError([Problem(path, _described(schema), f"shape {_shape(array.shape)}")])
    return array


def _as_found(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    found = np.asarray(value)
    if dtype.kind == "u" and found.dtype.kind == "f" and isinstance(value, (list, tuple)):
        # NumPy makes floating-point numbers of integers below and above 2**63; objects stay what they are.
        exact = np.asarray(value, object)
        if all(type(each) is int for each in exact.flat):
            return exact.astype(np.uint64)
    return found


def _without_nulls(found: NDArray[Any]) -> NDArray[Any]:
    """An array of objects as one of numbers, with NaN in place of None; itself if it has others."""
    are_numbers = all(each is None or type(each) in (int, float) for each in found.flat)
    return found.astype(np.float64) if are_numbers else found


def _number_array(found: NDArray[Any], dtype: np.dtype[Any], is_array: bool) -> NDArray[Any]:
    if found.dtype == dtype or (is_array and np.can_cast(found.dtype, dtype, "same_kind")):
        return found.astype(dtype, copy=False)
    if found.size and found.dtype.kind not in {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]:
        raise TypeError
    with np.errstate(over="ignore"):
        array = found.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(array, found):
        raise OverflowError
    return array


def _text_array(value: Any) -> NDArray[Any]:
    found = np.asarray(value, object)
    array = np.empty(found.shape, object)
    for index in np.ndindex(found.shape):
        item = found[index]
        if not isinstance(item, (bytes, str)):
            raise TypeError
        array[index] = item.encode() if isinstance(item, str) else bytes(item)
    return array


def _misshaped(shape: Sequence[int], value: Any, path: Path) -> Problem | None:
    """The first part of nested lists that is not a list, or has a wrong length."""
    if not shape:
        return Problem(path, "a number", shown(value)) if isinstance(value, (list, tuple)) else None
    if not isinstance(value, (list, tuple)):
        return Problem(path, _of_length(shape, "a list"), shown(value))
    if shape[0] not in (-1, len(value)):
        return Problem(path, _of_length(shape, str(shape[0])), str(len(value)))
    inner = list(shape[1:])
    if len(inner) and inner[0] == -1 and value and isinstance(value[0], (list, tuple)):
        inner[0] = len(value[0])  # of any length, but of the same
    return next(filter(None, (_misshaped(inner, item, (*path, index)) for index, item in enumerate(value))), None)


def _misfit(dtype: np.dtype[Any], depth: int, value: Any, path: Path) -> Problem | None:
    """The first element of nested lists that an array of a dtype does not hold, if it is wrong by itself."""
    if depth > 1:
        inner = (_misfit(dtype, depth - 1, item, (*path, index)) for index, item in enumerate(value))
        return next(filter(None, inner), None)
    types, noun = ELEMENTS[dtype.kind]
    has_limits = dtype.kind in "iu"
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if has_limits else (0, 0)
    items: Iterable[Any] = value if depth else [value]
    for index, item in enumerate(items):  # there may be millions
        if not isinstance(item, types):
            return Problem((*path, index) if depth else path, noun, shown(item))
        if has_limits and not low <= item <= high:
            return Problem((*path, index) if depth else path, f"{noun} of {triton_name(dtype)}", shown(item))
    return None


def _of_length(shape: Sequence[int], amount: str) -> str:
    noun = "numbers" if len(shape) == 1 else "lists"
    return f"a list of {noun}" if amount == "a list" else f"{amount} {noun}"


def _described(schema: Schema) -> str:
    return f"an array of {schema['dtype']} and shape {_shape(schema['shape'])}"


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join('any' if size == -1 else str(size) for size in shape)}{',' * (len(shape) == 1)})"
