"""Classes with fields, and the descriptions of fields and parameters in docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from typing import Any, NamedTuple, get_type_hints, is_typeddict

from pytriton.exceptions import PyTritonError

__all__ = ["Docstring", "Field", "UnderivableError", "fields_of", "is_record"]

_SECTION = re.compile(r"(Args|Arguments|Parameters|Attributes|Fields):?\s*$")
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s+(.*)")
_NUMPY = re.compile(r"\*{0,2}(\w+)(?:\s*:.*)?$")
_SPHINX = re.compile(r":param\s+(?:[\w\[\], .|]+\s+)?\*{0,2}(\w+)\s*:\s*(.*)")


class UnderivableError(PyTritonError):
    """There is no schema for an annotation; the message is a clause about it.

    Attributes:
        instead: The annotations to write instead, if there are obvious ones.
    """

    def __init__(self, message: str, instead: str = "") -> None:
        super().__init__(message)
        self.instead = instead


class Field(NamedTuple):
    """A field of a record."""

    name: str
    annotation: Any
    required: bool
    default: Any
    description: str


def is_record(cls: Any) -> bool:
    """Whether it is a dataclass, a TypedDict, a NamedTuple, or a model of pydantic."""
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls)
        or is_typeddict(cls)
        or type(cls).__name__ == "_TypedDictMeta"  # that of typing_extensions
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or hasattr(cls, "model_json_schema")
    )


def fields_of(cls: Any) -> list[Field]:
    """The fields of a record."""
    told = Docstring.of(cls).parameters
    if hasattr(cls, "model_fields"):
        return [
            Field(name, _annotated(info), info.is_required(), None if info.is_required() else info.default, "")
            for name, info in cls.model_fields.items()
        ]
    try:
        hints = get_type_hints(cls, include_extras=True)
    except Exception as error:
        raise UnderivableError(f"the fields of {cls.__name__} cannot be resolved ({error})") from error
    if dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        return [
            Field(
                each.name,
                hints[each.name],
                each.default is missing and each.default_factory is missing,
                None if each.default is missing else each.default,
                told.get(each.name, ""),
            )
            for each in dataclasses.fields(cls)
            if each.init
        ]
    if hasattr(cls, "_fields"):
        defaults = cls._field_defaults
        return [
            Field(name, hints.get(name, Any), name not in defaults, defaults.get(name), told.get(name, ""))
            for name in cls._fields
        ]
    return [Field(name, hints[name], name in cls.__required_keys__, None, told.get(name, "")) for name in hints]


def _annotated(info: Any) -> Any:
    """The annotation of a field of pydantic, with its constraints."""
    return typing.Annotated[info.annotation, info]


class Docstring(NamedTuple):
    """The parts of a docstring.

    Attributes:
        summary: The first paragraph, as one line.
        parameters: The text of each parameter or field, as one line.
    """

    summary: str = ""
    parameters: dict[str, str] = {}  # noqa: RUF012  (never changed)

    @classmethod
    def of(cls, documented: Any) -> Docstring:
        """That of a function or a class; empty if it has none of its own."""
        text = documented.__doc__
        if not isinstance(text, str) or text.startswith(f"{getattr(documented, '__name__', '')}("):  # of a dataclass
            return cls()
        lines = inspect.cleandoc(text).splitlines()
        end = next((index for index, line in enumerate(lines) if not line.strip()), len(lines))
        first = [line.strip() for line in lines[:end] if not _SPHINX.match(line) and not _SECTION.match(line)]
        return cls(" ".join(first), _parameters(lines))


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    within = underlined = False
    name, depth = "", 0
    for index, line in enumerate(lines):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if sphinx := _SPHINX.match(text):
            name, depth = sphinx[1], indent
            found[name] = [sphinx[2]]
        elif not indent and _SECTION.match(line):
            within, name = True, ""
            underlined = index + 1 < len(lines) and set(lines[index + 1].strip()) == {"-"}
        elif text and within and not indent and not underlined:
            within, name = False, ""
        elif within and underlined and not indent and set(text) != {"-"}:
            after = lines[index + 1].strip() if index + 1 < len(lines) else ""
            match = _NUMPY.match(text) if set(after) != {"-"} else None
            within, name, depth = match is not None or not text, match[1] if match else "", 0
            if match:
                found[name] = []
        elif within and not underlined and text and (not name or indent <= depth) and (match := _GOOGLE.match(text)):
            name, depth = match[1], indent
            found[name] = [match[2]]
        elif name and text and indent > depth:
            found[name].append(text)
        elif not text and not within:
            name = ""
    return {name: " ".join(texts).strip() for name, texts in found.items() if any(texts)}
