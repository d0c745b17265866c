"""Write the attributes of objects as the server's JSON, and read them back.

A :class:`Codec` converts one kind of value to JSON and back; a :class:`Field` connects an attribute with a key. Keys
are read in snake and in camel case, because servers send snake case and protobuf's JSON has camel case.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pytriton.exceptions import PyTritonModelConfigError

__all__ = [
    "BOOLEAN",
    "INTEGER",
    "NUMBER",
    "TEXT",
    "Codec",
    "Field",
    "list_of",
    "look_up",
    "map_of",
    "name_of",
    "one_of",
    "read_fields",
    "record",
    "write_fields",
]


@dataclass(frozen=True)
class Codec:
    """One kind of value.

    Args:
        write: Value to JSON.
        read: JSON to value; raises ValueError or TypeError on anything else.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class Field:
    """One attribute and its key.

    Args:
        codec: Its kind of value.
        omit: The value that is not written; by default every value is written.
        required: Reading fails without it; otherwise the attribute has the default of its class.
        kind: Only values of this class are written with this key. None is all.
    """

    attribute: str
    key: str
    codec: Codec
    omit: Any = ...
    required: bool = False
    kind: type | None = None


def look_up(data: Any, key: str) -> Any:
    """Value of a key spelled in snake or in camel case; None if absent.

    Raises:
        TypeError: ``data`` is not a mapping.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"expected an object, got {data!r}")
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
    first, *others = snake.split("_")
    value = data.get(snake)
    return data.get(first + "".join(map(str.capitalize, others))) if value is None else value


def write_fields(fields: tuple[Field, ...], value: object) -> dict[str, Any]:
    """The attributes of ``value`` by key, without those equal to ``omit``."""
    found = ((field, getattr(value, field.attribute)) for field in fields)
    return {
        field.key: field.codec.write(attribute)
        for field, attribute in found
        if attribute != field.omit and (field.kind is None or isinstance(attribute, field.kind))
    }


def read_fields(fields: tuple[Field, ...], data: Any) -> dict[str, Any]:
    """The attributes that ``data`` has; other keys are ignored.

    Raises:
        PyTritonModelConfigError: A value is of the wrong kind, or a required one is missing.
        TypeError: ``data`` is not a mapping.
    """
    attributes = {}
    for field in fields:
        value = look_up(data, field.key)
        if value is not None:
            with _inside(field.key):
                attributes[field.attribute] = field.codec.read(value)
        elif field.required:
            raise PyTritonModelConfigError(f"{field.key} is missing")
    return attributes


def record(kind: Callable[..., Any], *fields: Field) -> Codec:
    """An object with one key per field; reading calls ``kind`` with the attributes that were found."""
    return Codec(lambda value: write_fields(fields, value), lambda data: kind(**read_fields(fields, data)))


def list_of(item: Codec) -> Codec:
    """A list of values of one kind."""

    def read(data: Any) -> list[Any]:
        if not isinstance(data, (list, tuple)):
            raise TypeError(f"expected a list, got {data!r}")
        values = []
        for index, element in enumerate(data):
            with _inside(f"[{index}]"):
                values.append(item.read(element))
        return values

    return Codec(lambda values: [item.write(value) for value in values], read)


def map_of(key: Codec, item: Codec) -> Codec:
    """A dict with keys of one kind and values of one kind."""

    def read(data: Any) -> dict[Any, Any]:
        if not isinstance(data, Mapping):
            raise TypeError(f"expected an object, got {data!r}")
        values = {}
        for name, element in data.items():
            with _inside(f"[{name}]"):
                values[key.read(name)] = item.read(element)
        return values

    return Codec(lambda values: {key.write(name): item.write(value) for name, value in values.items()}, read)


def one_of(**kinds: tuple[type, Codec]) -> Codec:
    """An object with one key, which depends on the class of the value."""

    def write(value: Any) -> dict[str, Any]:
        return {key: codec.write(value) for key, (kind, codec) in kinds.items() if type(value) is kind}

    def read(data: Any) -> Any:
        for key, (_, codec) in kinds.items():
            if (inner := look_up(data, key)) is not None:
                with _inside(key):
                    return codec.read(inner)
        raise ValueError(f"expected an object with one of {', '.join(kinds)}, got {data!r}")

    return Codec(write, read)


def name_of(kind: type[Enum]) -> Codec:
    """The name of a member of an enumeration whose values are their names."""
    return Codec(lambda member: member.value, kind)


@contextmanager
def _inside(place: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError) as error:
        raise PyTritonModelConfigError(f"{place}: {error}") from error


def _read_integer(data: Any) -> int:
    if isinstance(data, bool):
        raise TypeError(f"expected an integer, got {data!r}")
    # Protobuf's JSON writes 64-bit integers as strings.
    return int(data) if isinstance(data, str) else operator.index(data)


def _read_number(data: Any) -> float:
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise TypeError(f"expected a number, got {data!r}")
    return float(data)


def _read_boolean(data: Any) -> bool:
    if not isinstance(data, bool):
        raise TypeError(f"expected true or false, got {data!r}")
    return data


def _read_text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError(f"expected a text, got {data!r}")
    return data


BOOLEAN = Codec(bool, _read_boolean)
INTEGER = Codec(int, _read_integer)
NUMBER = Codec(float, _read_number)
TEXT = Codec(str, _read_text)
