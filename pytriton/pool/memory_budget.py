"""Ends worker processes of models that nobody has called for longest, while all take more memory than they may."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError
from pytriton.logs import get_logger
from pytriton.options import integer
from pytriton.threads import keep_running

__all__ = ["Idling", "MemoryBudget", "ModelMemory"]

LOGGER = get_logger("pytriton.workers")

PAUSE_S = 0.25
PATIENCE_S = 5.0  # with processes that end
POLL_S = 0.1
MOST_TIME = 0.05  # share of the time that is spent on looking
LEAST_IDLE_S = 0.1
BYTES = integer()
MIB = 2**20


class ModelMemory(NamedTuple):
    """What the worker processes of a model take of this machine's memory, in bytes.

    Attributes:
        taken: By all. Of what several share, each counts its part (PSS). Those that start count at least as much as
            they took before.
        leaving: By those of them that end.
        freed: What the end of those that may end would free.
    """

    taken: int
    leaving: int
    freed: int


class Idling(Protocol):
    """A model whose worker processes may end until a request comes."""

    @property
    def name(self) -> str:
        """Of the model."""

    def memory(self) -> ModelMemory:
        """What its processes take of this machine's memory."""

    def idle_s(self) -> float:
        """Seconds since its last request; 0 while it has one, and infinite if no process may end."""

    def end_idle(self) -> None:
        """End the processes that may end, each until a request comes. Does not wait for that.

        Raises:
            PyTritonInvalidOperationError: They may have open sequences, or their callables are being replaced.
        """


class MemoryBudget:
    """The memory that the worker processes of all models may take together.

    Args:
        limit_bytes: In bytes, as :meth:`Idling.memory` counts them.

    Raises:
        PyTritonBadParameterError: It is no integer above 0.
    """

    def __init__(self, limit_bytes: int) -> None:
        if not BYTES.accepts(limit_bytes):
            raise PyTritonBadParameterError(f"memory_budget must be {BYTES.expected}, in bytes, got {limit_bytes!r}")
        self._limit = limit_bytes
        self._is_exceeded = False  # although nothing more can end
        self._called: dict[Idling, float] = {}  # by model that takes memory, the last call that is known
        self._changed = threading.Condition()  # guards what follows
        self._looks_wanted = self._looks_taken = 0
        self._has_room = True  # as enforce() returned
        self._has_thread = self._is_ended = False

    def start(self, models: Iterable[Idling]) -> None:
        """Do :meth:`watch` on a thread of its own, unless that has begun."""
        if not self._has_thread:
            self._has_thread = True
            keep_running(lambda: self.watch(models), "pytriton-memory")

    def watch(self, models: Iterable[Idling]) -> None:
        """Keep to the budget until :meth:`end`.

        Args:
            models: All that there are at the moment; those of threads and of other machines take nothing.
        """
        pause_s = PAUSE_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_ended or self._looks_wanted > self._looks_taken, pause_s)
                if self._is_ended:
                    return
                looks = self._looks_wanted
            began = time.thread_time()  # most of the time, processes are waited for
            has_room = self.enforce(models)
            pause_s = max(PAUSE_S, (time.thread_time() - began) / MOST_TIME)
            with self._changed:
                self._looks_taken, self._has_room = looks, has_room
                self._changed.notify_all()

    def look(self) -> None:
        """Have :meth:`watch` look at once, as a process has loaded its model, or has ended. Thread-safe."""
        with self._changed:
            self._looks_wanted += 1
            self._changed.notify_all()

    def wait_for_room(self, is_cancelled: Callable[[], bool]) -> None:
        """Wait until there is memory for a process that starts, or no process ends that would make more.

        Thread-safe. Does not wait longer than a few seconds for processes that end.
        """
        give_up_at = time.monotonic() + PATIENCE_S
        self.look()
        with self._changed:
            number = self._looks_wanted
            while not (self._is_ended or (self._looks_taken >= number and self._has_room) or is_cancelled()):
                if time.monotonic() > give_up_at:
                    return
                self._changed.wait(POLL_S)

    def end(self) -> None:
        """Have :meth:`watch` return. Thread-safe."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def enforce(self, models: Iterable[Idling]) -> bool:
        """End the processes of idle models, those first that nobody has called for longest, until memory suffices.

        Returns:
            Whether there is room for all processes that start, or nothing ends that would make more.
        """
        memory = {model: model.memory() for model in models}
        leaving_bytes = sum(each.leaving for each in memory.values())
        self._called = {
            model: self._called.get(model, -math.inf) for model, each in memory.items() if each.taken > each.leaving
        }
        excess = sum(each.taken - each.leaving for each in memory.values()) - self._limit
        has_room = not leaving_bytes or excess + leaving_bytes <= 0
        for model, idle_s in self._idle() if excess > 0 else ():
            try:
                model.end_idle()
            except PyTritonInvalidOperationError as error:
                LOGGER.debug("%s", error)
                continue
            excess -= memory[model].freed
            has_room = False
            LOGGER.info(
                "model %s: its workers end, %.0f s after the last request, as all take more than the budget, %.0f MiB",
                model.name,
                idle_s,
                self._limit / MIB,
            )
            if excess <= 0:
                break
        if excess > 0 and not self._is_exceeded:
            LOGGER.warning(
                "worker processes take %.0f MiB more than their budget, %.0f MiB, and none of them can end now",
                excess / MIB,
                self._limit / MIB,
            )
        self._is_exceeded = excess > 0
        return has_room

    def _idle(self) -> Iterator[tuple[Idling, float]]:
        """The models whose processes may end, with the seconds since their last requests, the longest first.

        Asks a model only if none can have been called before it, as its processes may be slow to answer.
        """
        waiting = [(called, number, model) for number, (model, called) in enumerate(self._called.items())]
        heapq.heapify(waiting)
        asked: dict[Idling, float] = {}
        while waiting:
            _, number, model = heapq.heappop(waiting)
            if model in asked:
                yield model, asked[model]
                continue
            idle_s = model.idle_s()
            if idle_s < math.inf:
                self._called[model] = time.monotonic() - idle_s
            if LEAST_IDLE_S <= idle_s < math.inf:
                asked[model] = idle_s
                heapq.heappush(waiting, (self._called[model], number, model))
