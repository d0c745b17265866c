"""Files of settings of MLServer, which name a model's class and file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from pytriton.exceptions import PyTritonValidationError

__all__ = ["SETTINGS", "ModelSettings", "read_settings"]

SETTINGS = "model-settings.json"


class ModelSettings(NamedTuple):
    """A model's name, empty if none is told, its class, and where its file is; ``.`` is the folder of the settings."""

    name: str
    implementation: str
    uri: str


def read_settings(path: Path) -> ModelSettings:
    """Read a file.

    Raises:
        PyTritonValidationError: It is no such file.
        OSError: It cannot be read.
    """
    try:
        told = json.loads(path.read_bytes())
        uri = (told.get("parameters") or {}).get("uri") or "."
        return ModelSettings(told.get("name", ""), str(told["implementation"]), uri)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PyTritonValidationError(
            f"{path} is no file of settings of MLServer: {error!r:.200}; it needs name and implementation"
        ) from error
