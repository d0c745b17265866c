"""Which callable an instance of a model belongs to, and whether the callables can serve the model as it is configured.

A client may send another configuration along with a load, which the callables know nothing of.
"""

from __future__ import annotations

from typing import Any

__all__ = ["check_as_bound", "instance_number"]


def check_as_bound(model_config: dict[str, Any], bound: dict[str, Any]) -> None:
    """Refuse a configuration that the bound callables cannot serve.

    Args:
        model_config: The server's description of the model.
        bound: ``callables``, their number; and what must be equal: ``input`` and ``output``, names in order, and
            ``batching`` and ``decoupled``.

    Raises:
        ValueError: They cannot; the message says what differs.
    """
    name, wanted, callables = model_config["name"], len(_instances(model_config)), bound["callables"]
    if wanted > callables:
        raise ValueError(
            f"model {name!r} is configured with {wanted} instances, but was bound with {callables} callables, one per "
            f"instance; give bind() a list of {wanted} callables, or configure {callables} instances"
        )
    found: dict[str, Any] = {side: [item["name"] for item in model_config[side]] for side in ("input", "output")}
    found["batching"] = model_config.get("max_batch_size", 0) > 0
    found["decoupled"] = model_config.get("model_transaction_policy", {}).get("decoupled", False)
    for key, value in found.items():
        if value != bound[key]:
            raise ValueError(
                f"model {name!r} is configured with {key} {value}, but was bound with {bound[key]}; load it without a "
                "configuration of your own, or bind it again"
            )


def instance_number(model_config: dict[str, Any], name: str, device: str) -> int:
    """Number of an instance's callable, from 0.

    Args:
        model_config: The server's description of the model.
        name: Of the instance. Those of one group on several GPUs have the same.
        device: Number of its GPU; without meaning if its group has none.

    Raises:
        ValueError: There is no such instance.
    """
    for number, (instance, gpu) in enumerate(_instances(model_config)):
        if instance == name and gpu in (None, device):
            return number
    raise ValueError(f"instance {name!r} on device {device} is in no instance group of the configuration")


def _instances(model_config: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Name and GPU of each instance, in the order of the callables."""
    instances: list[tuple[str, str | None]] = []
    for group in model_config["instance_group"]:
        gpus: list[str | None] = [str(gpu) for gpu in group.get("gpus") or ()] or [None]
        names = (f"{group['name']}_{number}" for number in range(group["count"]))
        instances += [(name, gpu) for name in names for gpu in gpus]
    return instances
