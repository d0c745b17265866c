"""Files of settings of MLServer, which name a model's class and file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pytriton.exceptions import PyTritonValidationError

__all__ = ["IMPLEMENTATIONS", "SETTINGS", "ModelSettings", "local_path", "read_settings"]

SETTINGS = "model-settings.json"
IMPLEMENTATIONS = {  # classes of MLServer, and modules of pytriton.saved that read what they load
    "LightGBMModel": "lightgbm",
    "MLflowRuntime": "mlflow",
    "SKLearnModel": "sklearn",
    "XGBoostModel": "xgboost",
}


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
        found = ModelSettings(told.get("name", ""), told["implementation"], uri)
        if not all(isinstance(each, str) for each in found):
            raise TypeError("name, implementation and uri are texts")
        return found
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise PyTritonValidationError(
            f"{path} is no file of settings of MLServer: {error!r:.200}; it needs name and implementation"
        ) from error


def local_path(text: str) -> Path:
    """The path in a text that may be an address, as MLServer and KServe have them.

    Raises:
        PyTritonValidationError: It is not on this machine.
    """
    if not re.match(r"[A-Za-z][\w+.-]+://", text):
        return Path(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise PyTritonValidationError(f"{text} is no address: {error}") from error
    if parts.scheme != "file":
        raise PyTritonValidationError(
            f"{text} is not on this machine; fetch it first, and give the folder (in a pod of KServe: /mnt/models)"
        )
    return Path(unquote(parts.path))
