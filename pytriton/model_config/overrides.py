"""Configurations that a model is loaded with in place of its own.

The server takes such a configuration as the whole one: what it leaves out is not filled up from the model's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["filled_up", "is_partial"]

# A configuration that has none of these cannot be a whole one.
_ESSENTIAL = {"backend", "platform", "input", "output"}
# Of these, a model has one.
_SCHEDULING = {"dynamic_batching", "sequence_batching", "ensemble_scheduling"}


def is_partial(config: Any) -> bool:
    """Whether a configuration, as JSON text, only changes some of a model's own: it has no backend and no tensors."""
    fields = _fields(config)
    return bool(fields) and not _ESSENTIAL & fields.keys()


def filled_up(config: str, own: Mapping[str, Any]) -> str:
    """A partial configuration with what it leaves out, as JSON text.

    Args:
        config: The partial one.
        own: The model's, as a server tells it.
    """
    fields = _fields(config)
    dropped = _SCHEDULING if _SCHEDULING & fields.keys() else set()
    return json.dumps({**{key: value for key, value in own.items() if key not in dropped}, **fields})


def _fields(config: Any) -> dict[str, Any]:
    """The fields by their names in snake case; none if it is no JSON object."""
    try:
        fields = json.loads(config)
    except (TypeError, ValueError, RecursionError):
        return {}
    return {_snake(key): value for key, value in fields.items()} if isinstance(fields, dict) else {}


def _snake(key: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key)
