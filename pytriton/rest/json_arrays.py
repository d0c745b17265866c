"""JSON and arrays, without Python lists of numbers in between.

NaN and infinities have no form in JSON. In arrays, and where a number is expected, they are the strings ``"NaN"``,
``"Infinity"`` and ``"-Infinity"``, as in the JSON of protobuf.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any, NoReturn

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from pytriton.signature.problems import Path, Problem, ValueMismatchError, shown

__all__ = [
    "SPECIAL_NUMBERS",
    "InvalidJsonError",
    "check_elements",
    "count_brackets",
    "count_lists",
    "depth_exceeds",
    "dumps",
    "has_member",
    "is_list",
    "is_object",
    "no_charge",
    "numbers",
    "parse",
    "plain",
    "shown_json",
    "special",
    "to_json",
]

SPECIAL_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

BUFFERS = {"f": ("d", np.float64), "i": ("i", np.int64), "u": ("u", np.uint64)}
MOST_COUNTED = 0xFFFFFF  # simdjson counts no further
MOST_KEPT_BYTES = 2 * 2**20  # of a text for which the parser keeps its memory, up to 12 times as much as the text
FEW_BYTES = 2**14  # of a text that bytes.count searches faster than NumPy

MOST_LEVELS = 1000  # of lists and objects that hold each other
LEVELS = np.zeros(256, np.int64)  # by byte: one more, or one less
LEVELS[list(b"[{")], LEVELS[list(b"]}")] = 1, -1

_parser = simdjson.Parser()  # a new one clears some pages of memory, which takes a third of the time of 1 MiB


class InvalidJsonError(ValueError):
    """A text is no JSON; the message says where."""


def no_charge() -> None:
    """Charge nothing for the objects of a text."""


def parse(text: bytes, charge_objects: Callable[[], None] = no_charge) -> Any:
    """The value of a JSON text.

    Args:
        text: JSON.
        charge_objects: Is called before the text becomes Python's objects, as one with long integers or mistakes does.

    Returns:
        A ``simdjson.Object`` or ``simdjson.Array``, which :func:`plain` and :func:`numbers` take; or a scalar. Of an
        object, take ``keys()`` and the members that are wanted: each is found by a search, and ``items()`` copies. A
        text with integers of more than 64 bits comes as Python's objects.

    Raises:
        InvalidJsonError: It is no JSON in UTF-8, or nested deeper than 1,000 levels.
    """
    if len(text) <= MOST_KEPT_BYTES:
        with suppress(RuntimeError, ValueError):  # it refuses while a value that it has returned is in use
            return _parser.parse(text)
    try:
        return simdjson.Parser().parse(text)
    except (RuntimeError, ValueError):
        charge_objects()
        return _parse_slowly(text)


def count_brackets(text: bytes) -> int:
    """How many lists a JSON text has, counting brackets in its strings as well."""
    if len(text) < FEW_BYTES:
        return text.count(b"[")
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("[")))


def _parse_slowly(text: bytes) -> Any:
    """Read what simdjson refuses: long integers, and mistakes, of which it does not tell the place."""
    if _is_deep(text):  # a program may have raised Python's own limit, above what the stack bears
        raise InvalidJsonError("it is nested too deeply")
    try:
        value = json.loads(text.decode(), parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # refuses 1e999, and lone surrogates
    except RecursionError:
        raise InvalidJsonError("it is nested too deeply") from None
    except ValueError as error:
        raise InvalidJsonError(str(error)) from error
    return value


def _is_deep(text: bytes) -> bool:
    """Whether lists and objects of a JSON text hold each other in more than ``MOST_LEVELS``."""
    outside = np.frombuffer(
        text.replace(rb"\\", b"..").replace(rb"\"", b".."), np.uint8
    )  # each quote begins or ends a string
    level = quotes = 0
    for start in range(0, len(outside), FEW_BYTES):
        part = outside[start : start + FEW_BYTES]
        seen = quotes + np.cumsum(part == ord('"'))
        levels = level + np.cumsum(np.where(seen & 1, 0, LEVELS[part]))
        if levels.max() > MOST_LEVELS:
            return True
        level, quotes = int(levels[-1]), int(seen[-1])
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f'{name} is no JSON; write "{name}" in quotes')


def is_list(value: Any) -> bool:
    """Whether a value that :func:`parse` returned is a list."""
    return isinstance(value, (simdjson.Array, list))


def is_object(value: Any) -> bool:
    """Whether a value that :func:`parse` returned is an object."""
    return isinstance(value, (simdjson.Object, dict))


def has_member(value: Any, name: str) -> bool:
    """Whether a value that :func:`parse` returned is an object with a member of that name."""
    return is_object(value) and name in value.keys()  # noqa: SIM118 (simdjson's objects do not know "in")


def plain(value: Any) -> Any:
    """A value that :func:`parse` returned, as Python's objects."""
    if isinstance(value, simdjson.Object):
        return value.as_dict()
    return value.as_list() if isinstance(value, simdjson.Array) else value


def shown_json(value: Any) -> str:
    """A value that :func:`parse` returned, in a message; lists and objects are not converted."""
    if isinstance(value, simdjson.Array):
        return f"a list of {len(value)}"
    return shown(dict.fromkeys(value.keys()) if isinstance(value, simdjson.Object) else value)


def depth_exceeds(value: Any, limit: int) -> bool:
    """Whether lists and dicts are nested deeper than a limit; looks at each, and does not recurse."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def numbers(array: Any, dtype: np.dtype[Any], shape: Sequence[int], path: Path) -> NDArray[Any] | None:
    """The numbers of nested JSON lists, as an array.

    simdjson flattens lists, so that a list of one number among the numbers is not noticed here. Compare the number of
    lists in the text with :func:`count_lists`, and if there are more, use :func:`check_elements`.

    Args:
        array: A ``simdjson.Array``.
        dtype: Of integers or floating-point numbers.
        shape: At least one dimension; -1 is any size.
        path: Of the value, for messages.

    Returns:
        A new array of that dtype; None if something else than numbers is in the lists, or a number that the dtype does
        not have.

    Raises:
        ValueMismatchError: The lists have other lengths or another depth; it names the first that has.
    """
    found = _shape_of(array, shape, path)
    code, wide = BUFFERS[dtype.kind]
    try:
        flat = np.frombuffer(array.as_buffer(of_type=code), wide)
    except (TypeError, ValueError):
        return None
    if len(found) == 1 and len(array) == MOST_COUNTED:
        found = (len(flat),)
    if math.prod(found) != len(flat):
        return None
    if dtype != flat.dtype:
        low, high = _range(dtype)
        if len(flat) and not (low <= np.minimum.reduce(flat) and np.maximum.reduce(flat) <= high):
            return None
        flat = flat.astype(dtype)
    return flat.reshape(found)


@cache
def _range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Bounds between which a number of 64 bits becomes a finite one of a dtype."""
    if dtype.kind != "f":
        integers = np.iinfo(dtype)
        return integers.min, integers.max
    about = np.finfo(dtype)
    largest = float(about.max) * (1 + float(about.eps) / 8)  # what is a little larger is rounded to the largest
    return -largest, largest


def count_lists(shape: Sequence[int]) -> int:
    """How many lists an array of a shape has in JSON."""
    return sum(accumulate(shape[:-1], mul, initial=1)) if len(shape) > 1 else 1


def check_elements(array: Any, shape: Sequence[int], path: Path) -> None:
    """Check that the innermost of nested lists have numbers alone.

    Args:
        array: A ``simdjson.Array``, of which :func:`numbers` has made an array.

    Raises:
        ValueMismatchError: An element is a list.
    """
    level = [array]
    for _ in shape[:-1]:
        level = [inner for each in level for inner in each]
    for row, each in enumerate(level):
        for column, element in enumerate(each):
            if isinstance(element, simdjson.Array):
                raise _misfit(path, shape, row * shape[-1] + column, "a number", element)


def _shape_of(array: Any, shape: Sequence[int], path: Path) -> tuple[int, ...]:
    """The lengths of nested lists, which are the same at each depth.

    Raises:
        ValueMismatchError: As :func:`numbers`.
    """
    rank = len(shape)
    found: list[int] = []
    level: list[Any] = [array]
    for depth, wanted in enumerate(shape):
        size = len(level[0]) if wanted == -1 and level and isinstance(level[0], simdjson.Array) else wanted
        noun = "numbers" if depth == rank - 1 else "lists"
        for position, each in enumerate(level):
            if not isinstance(each, simdjson.Array):
                raise _misfit(path, found, position, f"a list of {noun}", each)
            if len(each) != size and min(len(each), size) < MOST_COUNTED:
                raise _misfit(path, found, position, f"{size} {noun}", len(each))
        found.append(size if level else max(wanted, 0))
        if depth < rank - 1:
            level = [inner for each in level for inner in each]
    return tuple(found)


def _misfit(path: Path, sizes: Sequence[int], position: int, expected: str, got: Any) -> ValueMismatchError:
    """The error for one of the lists at a depth, by its position among all of them."""
    indices = tuple(int(each) for each in np.unravel_index(position, sizes)) if sizes else ()
    return ValueMismatchError([Problem((*path, *indices), expected, _named(got))])


def _named(value: Any) -> str:
    if isinstance(value, simdjson.Object):
        return "an object"
    return "a list" if isinstance(value, simdjson.Array) else shown(value)


def to_json(array: NDArray[Any]) -> Any:
    """An array of numbers or truth values as :func:`dumps` takes it: itself, as far as that is possible."""
    if array.dtype.kind == "f" and not np.logical_and.reduce(np.isfinite(array), axis=None):
        return special(array.tolist())
    if not array.ndim:
        return array.item()
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def special(value: Any) -> Any:
    """Python's objects, with the strings for NaN and infinities."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [special(each) for each in value]
    if isinstance(value, dict):
        return {name: special(each) for name, each in value.items()}
    return value


def dumps(value: Any) -> bytes:
    """The JSON of Python's objects and of arrays."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
