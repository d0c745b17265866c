"""``Processes``, which ``bind`` takes instead of callables, and the share of the machine that each worker gets."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError

__all__ = [
    "ALL",
    "AUTO",
    "FIRST",
    "THREAD_COUNTS",
    "Processes",
    "WorkerResources",
    "all_gpus",
    "cores_of_worker",
    "takes_device",
]

AUTO = "auto"
ALL, FIRST = "all", "first"
MAX_WORKERS = 1024
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
        cores: The worker is pinned to them; None is all.
    """

    device: str | None = None
    threads: int | None = None
    cores: tuple[int, ...] | None = None

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


@dataclass(frozen=True)
class Processes:
    """Worker processes for a model: one per instance, each with its own interpreter.

    Each worker calls ``factory``, which returns the inference callable, decorated as usual. The factory is sent with
    cloudpickle, so it may be a lambda, a closure, or a function of ``__main__`` or of a notebook. What it refers to is
    copied; load large objects in the factory itself. A parameter ``device`` receives the worker's device. If the
    callable has a method ``close``, the worker calls it at its end.

    Args:
        factory: Makes the inference callable.
        count: Number of workers; ``"auto"`` is one per device or, without devices, one per core that this process may
            use.
        devices: One per worker, in turn if there are fewer. With ``"cuda:1"`` the worker sees this GPU alone, through
            ``CUDA_VISIBLE_DEVICES``, so that ``device`` is ``"cuda:0"`` there; other names are passed on unchanged.
            ``"auto"`` is every GPU of the machine. None is no device.
        threads: Value of ``OMP_NUM_THREADS`` and similar variables in a worker, unless this process has them in its
            environment; ``"auto"`` divides the cores among the workers; None sets nothing.
        pin: Whether to pin each worker to its share of the cores. The server needs some too, so measure.
        wait_for: ``"all"``: the model is served when all workers are ready. ``"first"``: when the first one is; the
            others join when all of them are.
        max_requests: A worker that has answered this many is replaced, between two batches; None is never.
        max_restarts: If a worker dies more often within ``restart_period_s``, the model counts as dead.
        restart_period_s: See ``max_restarts``.
        start_timeout_s: Longest time until the factory has returned and the model is warmed up.
        stop_timeout_s: Longest time for a worker to end before it is killed.

    Raises:
        PyTritonValidationError: ``factory`` cannot be called, ``devices`` are not names, or ``wait_for`` is neither.
        PyTritonBadParameterError: A number is out of range.
    """

    factory: Callable[..., Any]
    _: KW_ONLY
    count: int | str = AUTO
    devices: Sequence[str] | str | None = None
    threads: int | str | None = AUTO
    pin: bool = False
    wait_for: str = ALL
    max_requests: int | None = None
    max_restarts: int = 5
    restart_period_s: float = 60.0
    start_timeout_s: float = 300.0
    stop_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise PyTritonValidationError(f"factory is {self.factory!r}; give what returns the inference callable")
        if self.wait_for not in (ALL, FIRST):
            raise PyTritonValidationError(f"wait_for is {self.wait_for!r}; give {ALL!r} or {FIRST!r}")
        if self.devices not in (None, AUTO) and not _are_names(self.devices):
            raise PyTritonValidationError(
                f'devices are {self.devices!r}; give a list such as ["cuda:0", "cuda:1"], or "auto"'
            )
        _check_integer("count", self.count, AUTO)
        _check_integer("threads", self.threads, AUTO, None)
        _check_integer("max_requests", self.max_requests, None)
        if isinstance(self.max_restarts, bool) or not isinstance(self.max_restarts, int) or self.max_restarts < 0:
            raise PyTritonBadParameterError(f"max_restarts is {self.max_restarts!r}; give a whole number from 0 on")
        for name in ("restart_period_s", "start_timeout_s", "stop_timeout_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise PyTritonBadParameterError(f"{name} is {value!r}; give a positive number of seconds")

    def resources(self, cores: Sequence[int] | None = None) -> list[WorkerResources]:
        """The share of each worker; their number is the number of workers.

        Args:
            cores: To divide; default: those that this process may use.

        Raises:
            PyTritonBadParameterError: ``devices`` is ``"auto"``, and there is no GPU.
        """
        cores = sorted(os.sched_getaffinity(0)) if cores is None else cores
        devices = all_gpus() if self.devices == AUTO else list(self.devices or ())
        if self.devices == AUTO and not devices:
            raise PyTritonBadParameterError('devices is "auto", but there is no GPU here; leave devices out')
        count = self.count if isinstance(self.count, int) else len(devices) or len(cores)
        threads = max(1, len(cores) // count) if self.threads == AUTO else self.threads
        return [
            WorkerResources(
                device=devices[index % len(devices)] if devices else None,
                threads=threads if isinstance(threads, int) else None,
                cores=cores_of_worker(cores, index, count) if self.pin else None,
            )
            for index in range(count)
        ]

    def takes_device(self) -> bool:
        """Whether the factory has a parameter ``device``."""
        return takes_device(self.factory)


def takes_device(factory: Callable[..., Any]) -> bool:
    """Whether a factory has a parameter ``device``."""
    try:
        return "device" in inspect.signature(factory).parameters
    except ValueError:  # some built-in functions have no signature
        return False


def cores_of_worker(cores: Sequence[int], index: int, count: int) -> tuple[int, ...]:
    """The adjacent cores of worker ``index`` of ``count``; one core, shared with others, if there are too few."""
    if count > len(cores):
        return (cores[index % len(cores)],)
    return tuple(cores[index * len(cores) // count : (index + 1) * len(cores) // count])


def all_gpus(environment: Mapping[str, str] = os.environ, driver: Path = NVIDIA_DRIVER) -> list[str]:
    """``cuda:0``, ``cuda:1``, ... for each GPU of the machine that ``CUDA_VISIBLE_DEVICES`` does not hide."""
    visible = _visible_gpus(environment)
    count = len(visible) if visible is not None else len([*driver.glob("*")])
    return [f"cuda:{number}" for number in range(count)]


def _visible_gpus(environment: Mapping[str, str]) -> list[str] | None:
    given = environment.get(CUDA_VISIBLE_DEVICES)
    return None if given is None else [item.strip() for item in given.split(",") if item.strip() not in ("", "-1")]


def _are_names(given: object) -> bool:
    if isinstance(given, str) or not isinstance(given, Sequence):
        return False
    return bool(given) and all(isinstance(name, str) for name in given)


def _check_integer(name: str, value: object, *others: object) -> None:
    if value in others and not isinstance(value, int):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not value >= 1:
        also = "".join(f", or {other!r}" for other in others)
        raise PyTritonBadParameterError(f"{name} is {value!r}; give a whole number from 1 on{also}")
    if name == "count" and value > MAX_WORKERS:
        raise PyTritonBadParameterError(f"count is {value}; that many processes are more than {MAX_WORKERS}")
