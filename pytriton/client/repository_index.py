"""What a server tells of the models in its repositories: their states, and which there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any

from pytriton.client.conversations import Conversation, Deadline
from pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
)

__all__ = [
    "ModelState",
    "find_model_state",
    "is_listed",
    "model_state",
    "parse_grpc_response",
    "parse_http_response",
    "repository_index",
    "suggestion",
]

_MOST_NAMES = 8  # in a message


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
        model_version: None means the numerically highest version.

    Returns:
        UNAVAILABLE also when the model or the version is unknown.
    """
    versions = {version: state for (name, version), state in states.items() if name == model_name}
    if model_version is None and versions:
        model_version = max(versions, key=int)
    return versions.get(model_version or "", ModelState.UNAVAILABLE)


def repository_index(deadline: Deadline) -> Conversation[list[Mapping[str, str]]]:
    """The entries of the server's repository index.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonClientTimeoutError: There was no answer at the deadline.
    """
    index = yield deadline.call("get_model_repository_index")
    try:
        return [{**entry, "name": entry["name"]} for entry in index]
    except (KeyError, TypeError) as error:
        raise PyTritonClientInferenceServerError(
            f"the server's list of models cannot be understood: {type(error).__name__} {error}"
        ) from error


def model_state(model_name: str, model_version: str | None, deadline: Deadline) -> Conversation[ModelState]:
    """Look a model up in the server's repository index; raises as :func:`repository_index`."""
    index = yield from repository_index(deadline)
    return find_model_state(parse_http_response(index), model_name, model_version)


def is_listed(index: Iterable[Mapping[str, str]], model_name: str, model_version: str | None) -> bool:
    """Whether a server has a model in its repositories, loaded or not.

    Args:
        model_version: None is any version.
    """
    versions = {entry.get("version") or "" for entry in index if entry["name"] == model_name}
    return bool(versions & {"", model_version}) if model_version else bool(versions)


def suggestion(index: Sequence[Mapping[str, str]], model_name: str, model_version: str | None) -> str:
    """Why a server does not serve a model or a version of it, and which model the user may have meant.

    Args:
        model_version: The version in question; None is any.
    """
    if is_listed(index, model_name, model_version):
        reasons = {entry["reason"] for entry in index if entry["name"] == model_name and entry.get("reason")}
        return "the server lists it as not loaded" + f" ({'; '.join(sorted(reasons))})" * bool(reasons)
    versions = [entry["version"] for entry in index if entry["name"] == model_name]
    if versions:
        return f"the server has version {', '.join(sorted(versions, key=int))} of it"
    names = {entry["name"].lower(): entry["name"] for entry in index}
    if not names:
        return "the server has no models yet"
    near = get_close_matches(model_name.lower(), names, 1)
    question = f"did you mean {names[near[0]]!r}? " if near else ""
    shown = sorted(names.values())
    more = f" and {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else ""
    return f"{question}The server has {', '.join(map(repr, shown[:_MOST_NAMES]))}{more}"


def _state(name: str) -> ModelState:
    # The server also knows "UNKNOWN", in which a model does not serve.
    return ModelState[name] if name in ModelState.__members__ else ModelState.UNAVAILABLE
