"""Replies of tritonclient in HTTP's form: dictionaries without the wrappings of protobuf messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

INTEGERS = ["batch_size", "byte_size", "count", "device_id", "execution_count", "inference_count", "last_inference"]
INTEGERS += ["dims", "max_batch_size", "ns", "offset", "shape"]


def plain(method: str, reply: Any) -> Any:
    """A reply in HTTP's form, whichever form it has."""
    if isinstance(reply, dict) and method in _UNWRAP:
        reply = _UNWRAP[method](reply)
    return integers(reply)


def integers(reply: Any, key: str = "") -> Any:
    """Have numbers where protobuf's JSON has text."""
    if isinstance(reply, dict):
        return {key: integers(value, key) for key, value in reply.items()}
    if isinstance(reply, list):
        return [integers(item, key) for item in reply]
    return int(reply) if key in INTEGERS else reply


def parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """``{name: {"bool_param": True}}``, or already plain."""
    return {
        name: next(iter(value.values())) if isinstance(value, dict) else value for name, value in parameters.items()
    }


def _trace_settings(reply: dict[str, Any]) -> dict[str, Any]:
    values = {name: entry.get("value", []) for name, entry in reply.get("settings", {}).items()}
    if not values:
        return reply
    return {name: value if name == "trace_level" else value[0] for name, value in values.items()}


def _log_settings(reply: dict[str, Any]) -> dict[str, Any]:
    return parameters(reply["settings"]) if "settings" in reply else reply


def _regions(reply: dict[str, Any]) -> list[dict[str, Any]]:
    return list(reply.get("regions", {}).values())


_UNWRAP: dict[str, Callable[[dict[str, Any]], Any]] = {
    "get_model_config": lambda reply: reply.get("config", reply),
    "get_model_repository_index": lambda reply: reply.get("models", []),
    "get_system_shared_memory_status": _regions,
    "get_cuda_shared_memory_status": _regions,
    "get_trace_settings": _trace_settings,
    "update_trace_settings": _trace_settings,
    "get_log_settings": _log_settings,
    "update_log_settings": _log_settings,
}
