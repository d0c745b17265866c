"""Which models a server has, and in which state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

__all__ = ["LATEST_MODEL_VERSION", "ModelState", "find_model_state", "parse_grpc_response", "parse_http_response"]

LATEST_MODEL_VERSION = "<latest>"
"""Shown where no version was asked for: the highest one is used."""


class ModelState(Enum):
    """State of one version of a model; the values are the server's names."""

    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    READY = "READY"


ModelStates = dict[tuple[str, str], ModelState]


def parse_http_response(models: Iterable[Mapping[str, str]]) -> ModelStates:
    """States by (name, version) from the repository index as HTTP, or gRPC's JSON form, gives it.

    Args:
        models: Entries with ``name`` and, where known, ``version`` and ``state``. Those without a version are skipped:
            they were never loaded. One without a state is being loaded.
    """
    return {
        (model["name"], model["version"]): _state(model.get("state") or "LOADING")
        for model in models
        if model.get("version")
    }


def parse_grpc_response(models: Iterable[Any]) -> ModelStates:
    """As :func:`parse_http_response`, from the ``models`` of the index message of a gRPC client."""
    return parse_http_response({"name": model.name, "version": model.version, "state": model.state} for model in models)


def find_model_state(states: ModelStates, model_name: str, model_version: str | None) -> ModelState:
    """State of one model.

    Args:
        states: By (name, version).
        model_name: Its name.
        model_version: None means the numerically highest version.

    Returns:
        UNAVAILABLE also when the model or the version is unknown.
    """
    versions = {version: state for (name, version), state in states.items() if name == model_name}
    if model_version is None and versions:
        model_version = max(versions, key=int)
    return versions.get(model_version or "", ModelState.UNAVAILABLE)


def _state(name: str) -> ModelState:
    # The server also knows "UNKNOWN", in which a model does not serve.
    return ModelState[name] if name in ModelState.__members__ else ModelState.UNAVAILABLE
