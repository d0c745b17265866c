"""What a docstring says: Google's style, NumPy's and Sphinx's fields."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

__all__ = ["Docstring"]

_SECTION = re.compile(r"(Args|Arguments|Parameters|Attributes|Fields):?\s*$")
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s+(.*)")
_NUMPY = re.compile(r"\*{0,2}(\w+)(?:\s*:.*)?$")
_SPHINX = re.compile(r":param\s+(?:[\w\[\], .|]+\s+)?\*{0,2}(\w+)\s*:\s*(.*)")


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
