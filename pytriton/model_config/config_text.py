"""A model's configuration as the text of ``config.pbtxt``, without protobuf, whose import takes as long as a start."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["config_text"]

_ENUMS = {"data_type", "format", "kind", "timeout_action"}
_MAPS = {"inputs", "parameters", "priority_queue_policy"}
_INTEGER_KEYS = {"priority_queue_policy"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def config_text(config: Mapping[str, Any]) -> str:
    """The text form of a configuration that is given in the form of protobuf's JSON."""
    return "\n".join([*_lines(config, ""), ""])


def _lines(message: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in message.items():
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
        if name in _MAPS:
            for entry_key, entry in value.items():
                yield f"{indent}{name} {{"
                yield f"{indent}  key: {int(entry_key) if name in _INTEGER_KEYS else _quoted(entry_key)}"
                yield f"{indent}  value {{"
                yield from _lines(entry, f"{indent}    ")
                yield f"{indent}  }}"
                yield f"{indent}}}"
            continue
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Mapping):
                yield f"{indent}{name} {{"
                yield from _lines(item, f"{indent}  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}{name}: {item if name in _ENUMS else _literal(item)}"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    """A string literal; control characters as octal escapes of their bytes."""
    return (
        '"'
        + "".join(
            _ESCAPES.get(letter)
            or (letter if letter.isprintable() else "".join(f"\\{byte:03o}" for byte in letter.encode()))
            for letter in text
        )
        + '"'
    )
