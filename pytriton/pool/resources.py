"""The share of the machine that each worker process gets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonValidationError
from pytriton.introspection import signature_of

__all__ = ["THREAD_COUNTS", "WorkerResources", "all_gpus", "check_shared", "memory_of", "takes_device"]

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
NVIDIA_DRIVER = Path("/proc/driver/nvidia/gpus")  # has one folder per GPU
# Numeric libraries read these when they are loaded. Without them, each worker would start a thread per core.
THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_GPU = re.compile(r"(?:cuda|gpu):(\d+)")


@dataclass(frozen=True)
class WorkerResources:
    """One worker's share of the machine.

    Attributes:
        device: As the launching process names it; None is no device.
        threads: For libraries that start threads of their own; None leaves that to them.
    """

    device: str | None = None
    threads: int | None = None

    @property
    def device_in_worker(self) -> str | None:
        """The device as the worker names it: ``cuda:0`` for any GPU, as it sees no other."""
        return "cuda:0" if self._gpu() is not None else self.device

    def environment(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The worker's environment.

        Args:
            environment: Of the launching process. Its thread counts win, and ``device`` counts the GPUs that are
                visible in it.
        """
        result = dict(environment)
        if self.threads is not None:
            result = {**dict.fromkeys(THREAD_COUNTS, str(self.threads)), **result}
        if (gpu := self._gpu()) is not None:
            visible = _visible_gpus(environment) or []
            result[CUDA_VISIBLE_DEVICES] = visible[gpu] if gpu < len(visible) else str(gpu)
        return result

    def _gpu(self) -> int | None:
        match = _GPU.fullmatch(self.device or "")
        return int(match[1]) if match else None


def takes_device(factory: Callable[..., Any]) -> bool:
    """Whether a factory has a parameter ``device``."""
    try:
        return "device" in signature_of(factory).parameters
    except ValueError:  # some built-in functions have no signature
        return False


def check_shared(factory: Callable[..., Any]) -> None:
    """Raise PyTritonValidationError if a factory cannot be called once for all workers."""
    if takes_device(factory):
        raise PyTritonValidationError(
            f"factory {factory!r} has a parameter device, but with share=True it is called once for all workers; "
            "choose the device in the callable's method after_fork(worker)"
        )


def all_gpus(environment: Mapping[str, str] = os.environ, driver: Path = NVIDIA_DRIVER) -> list[str]:
    """``cuda:0``, ``cuda:1``, ... for each GPU of the machine that ``CUDA_VISIBLE_DEVICES`` does not hide."""
    visible = _visible_gpus(environment)
    count = len(visible) if visible is not None else len([*driver.glob("*")])
    return [f"cuda:{number}" for number in range(count)]


def _visible_gpus(environment: Mapping[str, str]) -> list[str] | None:
    given = environment.get(CUDA_VISIBLE_DEVICES)
    return None if given is None else [item.strip() for item in given.split(",") if item.strip() not in ("", "-1")]


def memory_of(pid: int) -> tuple[int, int] | None:
    """The memory of a process, in bytes: private (USS), and proportional (PSS); None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    sizes = {name: 1024 * int(size) for name, size in re.findall(r"(\w+): +(\d+) kB", text)}
    return sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0), sizes.get("Pss", 0)
