"""Options as fields of dataclasses: what each may be, and how a variable of the environment says it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, NamedTuple

from pytriton.exceptions import PyTritonBadParameterError

__all__ = ["ANY_SECONDS", "FLAG", "SECONDS", "TEXT", "TEXTS", "Kind", "check", "integer", "option", "read", "with_none"]


class Kind(NamedTuple):
    """What an option may be.

    Attributes:
        expected: The same in words.
        accepts: Tells whether a value is of this kind.
        read: Makes a value of the text of a variable; raises ValueError or KeyError.
        written: What the text may be, in words.
    """

    expected: str
    accepts: Callable[[Any], bool]
    read: Callable[[str], Any] = str
    written: str = "a text"


def integer(least: int = 1, most: int | None = None, *words: str) -> Kind:
    """A whole number, which True is not, from ``least`` on, up to ``most`` if that is given; or one of some words."""
    limit = f"of at least {least}" if most is None else f"from {least} to {most}"
    expected = ", or ".join([f"an integer {limit}", *map(repr, words)])

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int):
            return value in words
        return least <= value and (most is None or value <= most)

    return Kind(expected, accepts, int, "an integer")


def _is_above_0(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def with_none(kind: Kind) -> Kind:
    """A kind, or None."""
    expected = f"{kind.expected}, or None"
    return kind._replace(expected=expected, accepts=lambda value: value is None or kind.accepts(value))


ANY_SECONDS = Kind("a positive number of seconds", _is_above_0, float, "a number")
SECONDS = ANY_SECONDS._replace(accepts=lambda value: _is_above_0(value) and value < math.inf)
FLAG = Kind(
    "True or False",
    lambda value: isinstance(value, bool),
    lambda text: {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()],
    "true or false",
)
TEXT = Kind("a text", lambda value: isinstance(value, str))
TEXTS = Kind(
    "a list of texts",
    lambda value: not isinstance(value, str) and all(isinstance(each, str) for each in value),
    lambda text: [item.strip() for item in text.split(",") if item.strip()],
    "texts with commas between them",
)


def option(default: Any, kind: Kind, **settings: Any) -> Any:
    """A field of a dataclass whose values are of a kind.

    Args:
        default: The default.
        kind: See :class:`Kind`.
        settings: Further arguments of :func:`dataclasses.field`.
    """
    return field(default=default, metadata={"kind": kind}, **settings)


def check(options: Any) -> None:
    """Check the fields of a dataclass that have a kind.

    Raises:
        PyTritonBadParameterError: A value is of another; the message names the field.
    """
    for each in fields(options):
        kind, value = each.metadata.get("kind"), getattr(options, each.name)
        if kind is not None and not kind.accepts(value):
            raise PyTritonBadParameterError(f"{each.name} must be {kind.expected}, got {value!r}")


def read(options: type[Any], prefix: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a dataclass for which the environment has a variable: the prefix, and the name in capitals.

    Raises:
        PyTritonBadParameterError: A text cannot be understood; the message names the variable.
    """
    given = {}
    for each in fields(options):
        name = f"{prefix}{each.name.upper()}"
        text, kind = environment.get(name), each.metadata.get("kind", TEXT)
        if text is not None:
            try:
                given[each.name] = kind.read(text)
            except (KeyError, ValueError) as error:
                raise PyTritonBadParameterError(f"{name} cannot be {text!r}; give {kind.written}") from error
    return given
