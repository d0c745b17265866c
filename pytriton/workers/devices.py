"""The GPUs that this process may use, by the names that PyTorch and others give them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["CUDA_VISIBLE_DEVICES", "all_gpus", "visible_in_worker"]

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/proc/driver/nvidia/gpus")  # a folder for each GPU
_GPU = re.compile(r"(?:cuda|gpu):(\d+)")


def all_gpus(environment: Mapping[str, str] = os.environ, driver: Path = DRIVER) -> list[str]:
    """``cuda:0`` and so on, as many as there are, or as ``CUDA_VISIBLE_DEVICES`` leaves."""
    visible = _visible(environment)
    count = len(visible) if visible is not None else len([*driver.glob("*")])
    return [f"cuda:{number}" for number in range(count)]


def visible_in_worker(device: str | None, environment: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """How a worker gets a device.

    Args:
        device: As this process calls it.
        environment: Of this process, in which some GPUs may be hidden already.

    Returns:
        What the device is called in the worker, and ``CUDA_VISIBLE_DEVICES`` for it; None leaves that alone.
    """
    match = _GPU.fullmatch(device or "")
    if match is None:
        return device, None
    number, visible = int(match[1]), _visible(environment)
    return "cuda:0", visible[number] if visible is not None and number < len(visible) else str(number)


def _visible(environment: Mapping[str, str]) -> list[str] | None:
    given = environment.get(CUDA_VISIBLE_DEVICES)
    return None if given is None else [item.strip() for item in given.split(",") if item.strip() not in ("", "-1")]
