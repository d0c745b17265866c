"""The table of options: fields of dataclasses, what each may be, and how text, such as a variable, says it."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, NamedTuple

from pytriton.exceptions import PyTritonBadParameterError, PyTritonError

__all__ = [
    "ANY_SECONDS",
    "FLAG",
    "ITEMS",
    "PATH",
    "SECONDS",
    "TEXT",
    "TEXTS",
    "Kind",
    "check",
    "choice",
    "converted",
    "integer",
    "kinds_of",
    "option",
    "read",
    "shown",
    "with_none",
]

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_SECRET = ("restricted", "token", "secret", "password")
# One item of a list as a user types it: `setting=value` or `name,setting=value`. A value runs up to the next such
# beginning, so commas inside values survive unless a word and "=" follow them.
_BEGINNING = r"(?:[A-Za-z][\w-]*,)?[A-Za-z][\w-]*="
_ITEM = re.compile(rf"{_BEGINNING}.*?(?=,{_BEGINNING}|$)", re.DOTALL)


class Kind(NamedTuple):
    """What an option may be.

    Attributes:
        expected: The same in words.
        accepts: Tells whether a value is of this kind.
        read: Makes a value of text, or of another value of plain meaning; raises TypeError or ValueError.
        written: What it reads, in words.
    """

    expected: str
    accepts: Callable[[Any], bool]
    read: Callable[[Any], Any]
    written: str


def integer(least: int = 1, most: int | None = None, *words: str) -> Kind:
    """A whole number, which True is not, from ``least`` on, up to ``most`` if that is given; or one of some words."""
    limit = f"of at least {least}" if most is None else f"from {least} to {most}"
    expected = ", or ".join([f"an integer {limit}", *map(repr, words)])

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int):
            return value in words
        return least <= value and (most is None or value <= most)

    return Kind(expected, accepts, lambda value: value if value in words else _integer(value), expected)


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, str) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return operator.index(value)


def choice(*words: str) -> Kind:
    """One of some words."""
    expected = f"one of {', '.join(map(repr, words))}"
    return Kind(expected, lambda value: value in words, lambda value: value, expected)


def _is_above_0(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _flag(value: Any) -> bool:
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


def _text(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _path(value: Any) -> Path:
    if not TEXT.accepts(os.fspath(value)) or not os.fspath(value):
        raise ValueError
    return Path(value)


def _items(value: Any) -> list[str]:
    if not isinstance(value, str):
        return [_text(item) for item in value] if isinstance(value, (list, tuple)) else value
    text = re.sub(r"\s*,\s*", ",", value).strip().strip(",")
    items = _ITEM.findall(text) if "=" in text else text.split(",")
    if ",".join(items) != text:
        raise ValueError
    return [item for item in items if item]


def with_none(kind: Kind) -> Kind:
    """A kind, or None."""
    expected = f"{kind.expected}, or None"
    return kind._replace(expected=expected, accepts=lambda value: value is None or kind.accepts(value))


def _are_texts(value: Any) -> bool:
    return not isinstance(value, str) and all(isinstance(each, str) for each in value)


ANY_SECONDS = Kind("a positive number of seconds", _is_above_0, float, "a positive number of seconds")
SECONDS = ANY_SECONDS._replace(accepts=lambda value: _is_above_0(value) and value < math.inf)
FLAG = Kind(
    "True or False",
    lambda value: isinstance(value, bool),
    _flag,
    f"a boolean ({'/'.join(_TRUE)} or {'/'.join(_FALSE)})",
)
TEXT = Kind("a text", lambda value: isinstance(value, str) and "\0" not in value, _text, "text without NUL characters")
PATH = Kind("a path", lambda value: isinstance(value, Path), _path, "a path")
TEXTS = Kind(
    "a list of texts",
    _are_texts,
    lambda text: [item.strip() for item in text.split(",") if item.strip()],
    "texts with commas between them",
)
ITEMS = Kind(
    "a list of texts",
    lambda value: isinstance(value, list) and all(map(TEXT.accepts, value)),
    _items,
    "'setting=value' or 'name,setting=value' items, in a list or with commas between them",
)


def option(default: Any, kind: Kind, *, secret: bool = False, **metadata: Any) -> Any:
    """A field of a dataclass whose values are of a kind.

    Args:
        default: The default.
        kind: See :class:`Kind`.
        secret: Its value is not shown.
        metadata: What else the table says of it.
    """
    return field(default=default, repr=not secret, metadata={"kind": kind, **metadata})


def kinds_of(table: type[Any]) -> dict[str, Kind]:
    """The kind of each field of a dataclass; those without one take any text."""
    return {each.name: each.metadata.get("kind", TEXT) for each in fields(table)}


def check(options: Any) -> None:
    """Check the fields of a dataclass that have a kind.

    Raises:
        PyTritonBadParameterError: A value is of another; the message names the field.
    """
    for each in fields(options):
        kind, value = each.metadata.get("kind"), getattr(options, each.name)
        if kind is not None and not kind.accepts(value):
            raise PyTritonBadParameterError(f"{each.name} must be {kind.expected}, got {value!r}")


def converted(kind: Kind, value: Any, label: str, error: type[PyTritonError]) -> Any:
    """A value of a kind, from one that means it plainly, such as the text of a variable.

    Args:
        label: Its field or variable, for the message.
        error: What is raised if it cannot be understood, or is out of range.
    """
    cause = None
    try:
        result = kind.read(value)
        if kind.accepts(result):
            return result
    except (TypeError, ValueError) as problem:
        cause = problem
    raise error(f"{label}: expected {kind.written}, got {shown(label, value)}") from cause


def read(
    table: type[Any],
    prefix: str,
    environment: Mapping[str, str],
    error: type[PyTritonError],
    on_unknown: Callable[[str, str], object] = lambda variable, text: None,
) -> dict[str, Any]:
    """The fields of a dataclass for which the environment has a variable: the prefix, and the name in capitals.

    :data:`ITEMS` may also be one variable each, with the suffixes ``_0``, ``_1`` and so on; gaps are dropped.

    Args:
        error: What is raised if a text cannot be understood, or :data:`ITEMS` are given in both forms.
        on_unknown: Called with other variables that have the prefix, and their texts.
    """
    kinds, given = kinds_of(table), dict[str, Any]()
    numbered: dict[str, dict[int, str]] = {}
    for variable, text in environment.items():
        if not variable.startswith(prefix):
            continue
        name = variable[len(prefix) :].lower()
        base, _, index = name.rpartition("_")
        if name in kinds:
            given[name] = converted(kinds[name], text, variable, error)
        elif index.isdecimal() and kinds.get(base) is ITEMS:
            numbered.setdefault(base, {})[int(index)] = text
        else:
            on_unknown(variable, text)
    for name, items in numbered.items():
        if name in given:
            variable = prefix + name.upper()
            raise error(f"{variable} and {variable}_{min(items)} are both set; use one form")
        given[name] = [items[index] for index in sorted(items)]
    return given


def shown(name: str, value: Any) -> str:
    """The value of an option as messages may have it."""
    return "***" if any(word in name.lower() for word in _SECRET) else repr(value)
