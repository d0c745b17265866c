"""Parts of values that do not fit, and how messages tell of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.signature.schema import Schema

__all__ = [
    "Path",
    "Problem",
    "Problems",
    "ValueMismatchError",
    "as_json",
    "expectation",
    "literal",
    "message_of",
    "problems_of",
    "shown",
]

Path = tuple[str | int, ...]

NAMES = {"integer": "an integer", "number": "a number", "boolean": "true or false", "string": "a string"}
NAMES |= {"array": "a list", "object": "an object", "null": "null"}
PLURALS = {"integer": "integers", "number": "numbers", "boolean": "booleans", "string": "strings", "object": "objects"}
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


def expectation(schema: Schema) -> str:
    """The values that a schema allows, as a noun phrase."""
    if "$ref" in schema:
        return f"an object {schema['$ref'].rpartition('/')[2]}"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(expectation, options))
    if "enum" in schema or "const" in schema:
        listed = [*map(literal, schema.get("enum", [schema.get("const")]))]
        return f"one of {', '.join(listed)}" if len(listed) > 1 else listed[0]
    if "shape" in schema:
        return described(schema)
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


def literal(value: Any) -> str:
    """A value as JSON has it."""
    return json.dumps(value, ensure_ascii=False)


def shown(value: Any) -> str:
    """A value in a message. Only its beginning is read."""
    if isinstance(value, str):
        text = literal(value[: LONGEST + 1])
    elif value is None or isinstance(value, bool):
        text = literal(value)
    elif isinstance(value, np.ndarray):
        text = f"an array of {value.dtype} and shape {shape_text(value.shape)}"
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


def described(schema: Schema) -> str:
    """The arrays that a schema allows."""
    return f"an array of {schema['dtype']} and shape {shape_text(schema['shape'])}"


def shape_text(shape: Sequence[int]) -> str:
    """A shape as Python writes it, with "any" for an open extent."""
    return f"({', '.join('any' if size == -1 else str(size) for size in shape)}{',' * (len(shape) == 1)})"
