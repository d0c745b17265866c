"""Ends worker processes of models that nobody has called for longest, while all take more memory than they may."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from typing import Protocol

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError
from pytriton.logs import get_logger
from pytriton.options import integer

__all__ = ["Idling", "MemoryBudget"]

LOGGER = get_logger("pytriton.workers")

PAUSE_S = 0.25
MOST_TIME = 0.05  # share of the time that is spent on looking
LEAST_IDLE_S = 0.1
BYTES = integer()
MIB = 2**20


class Idling(Protocol):
    """A model whose worker processes may end until a request comes."""

    @property
    def name(self) -> str:
        """Of the model."""

    def memory_bytes(self) -> int:
        """What its processes take of this machine's memory: of what several share, each its part (PSS)."""

    def idle_s(self) -> float:
        """Seconds since its last request; 0 while it has one, and infinite if no process may end."""

    def end_idle(self) -> None:
        """End the processes that may end, each until a request comes. Does not wait for that.

        Raises:
            PyTritonInvalidOperationError: They may have open sequences.
        """


class MemoryBudget:
    """The memory that the worker processes of all models may take together.

    Args:
        limit_bytes: In bytes, as :meth:`Idling.memory_bytes` counts them.

    Raises:
        PyTritonBadParameterError: It is no integer above 0.
    """

    def __init__(self, limit_bytes: int) -> None:
        if not BYTES.accepts(limit_bytes):
            raise PyTritonBadParameterError(f"memory_budget must be {BYTES.expected}, in bytes, got {limit_bytes!r}")
        self._limit = limit_bytes
        self._is_exceeded = False  # although nothing more can end

    def watch(self, models: Iterable[Idling], ended: threading.Event) -> None:
        """Keep to the budget until an event.

        Args:
            models: All that there are at the moment; those of threads and of other machines take nothing.
        """
        pause_s = PAUSE_S
        while not ended.wait(pause_s):
            start = time.monotonic()
            self.enforce(models)
            pause_s = max(PAUSE_S, (time.monotonic() - start) / MOST_TIME)

    def enforce(self, models: Iterable[Idling]) -> None:
        """End the processes of idle models, those first that nobody has called for longest, until memory suffices."""
        memory = [(model, model.memory_bytes()) for model in models]
        excess = sum(taken for _, taken in memory) - self._limit
        idle = [(model.idle_s(), taken, model) for model, taken in memory if taken] if excess > 0 else []
        for idle_s, taken, model in sorted(idle, key=lambda each: -each[0]):
            if excess <= 0:
                break
            if not LEAST_IDLE_S <= idle_s < math.inf:
                continue
            try:
                model.end_idle()
            except PyTritonInvalidOperationError as error:
                LOGGER.debug("%s", error)
                continue
            excess -= taken
            LOGGER.info(
                "model %s: its workers end, %.0f s after the last request, as all take more than the budget, %.0f MiB",
                model.name,
                idle_s,
                self._limit / MIB,
            )
        if excess > 0 and not self._is_exceeded:
            LOGGER.warning(
                "worker processes take %.0f MiB more than their budget, %.0f MiB, and none of them can end now",
                excess / MIB,
                self._limit / MIB,
            )
        self._is_exceeded = excess > 0
