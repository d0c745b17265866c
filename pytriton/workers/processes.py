"""``Processes``: what ``bind`` takes in place of callables, to have them called in processes of their own."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.workers.devices import all_gpus
from pytriton.workers.place import Place, share

__all__ = ["ALL", "AUTO", "FIRST", "Processes"]

AUTO = "auto"
ALL, FIRST = "all", "first"
MOST_WORKERS = 1024


@dataclass(frozen=True)
class Processes:
    """Worker processes for a model: one per instance, each with an interpreter of its own.

    ``factory`` is called in each worker and returns the inference callable, which is decorated as any other. It is sent
    there with cloudpickle, so it may be a lambda, a closure, or a function of ``__main__`` or of a notebook. What the
    callable needs is best loaded in it; what it refers to from outside is copied. If it has a parameter ``device``, it
    is told the worker's. If the callable has a method ``close``, that is called when the worker ends.

    Args:
        factory: Makes the inference callable.
        count: How many workers; ``"auto"`` is one per device or, without devices, one per core that this process may
            use.
        devices: One per worker, in turn if there are fewer. ``"cuda:1"`` has the worker see this GPU alone, through
            ``CUDA_VISIBLE_DEVICES``, so that ``device`` is ``"cuda:0"`` there; other texts are passed on as they are.
            ``"auto"`` is every GPU that there is. None is no device.
        threads: What ``OMP_NUM_THREADS`` and its like are in a worker, unless this process has them in its environment;
            ``"auto"`` divides the cores among the workers; None leaves them alone.
        pin: Whether each worker keeps to its share of the cores. The server needs some too, so measure.
        wait_for: ``"all"``: the model is served when all workers are ready. ``"first"``: when the first of them is; the
            others join when all of them are.
        max_requests: A worker that has answered as many is replaced by a new one, between two batches; None is never.
        max_restarts: More deaths of a worker than this within ``restart_period_s``, and the model counts as dead.
        restart_period_s: See ``max_restarts``.
        start_timeout_s: How long a worker may take until the factory has returned and the model is warmed up.
        stop_timeout_s: How long a worker may take to end, before it is killed.

    Raises:
        PyTritonValidationError: ``factory`` cannot be called, ``devices`` are no texts, or ``wait_for`` is neither.
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

    def places(self, cores: Sequence[int] | None = None) -> list[Place]:
        """What each worker gets, as many as there are to be.

        Args:
            cores: To divide among them; default: those that this process may use.

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
            Place(
                device=devices[index % len(devices)] if devices else None,
                threads=threads if isinstance(threads, int) else None,
                cores=tuple(share(cores, index, count)) if self.pin else None,
            )
            for index in range(count)
        ]

    def takes_device(self) -> bool:
        """Whether the factory is to be told the device."""
        try:
            return "device" in inspect.signature(self.factory).parameters
        except ValueError:  # some built-in functions do not tell
            return False


def _are_names(given: object) -> bool:
    """Whether it is a sequence of texts, with at least one."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return False
    return bool(given) and all(isinstance(name, str) for name in given)


def _check_integer(name: str, value: object, *others: object) -> None:
    if value in others and not isinstance(value, int):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not value >= 1:
        also = "".join(f", or {other!r}" for other in others)
        raise PyTritonBadParameterError(f"{name} is {value!r}; give a whole number from 1 on{also}")
    if name == "count" and value > MOST_WORKERS:
        raise PyTritonBadParameterError(f"count is {value}; that many processes are more than {MOST_WORKERS}")
