"""Takes samples while the app runs, keeps their history, and sends them to the pages that are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson

from pytriton.logs import get_logger
from pytriton.rest.pages.history import History
from pytriton.rest.pages.sampler import MODEL_COLUMNS, Sampler

__all__ = ["Live"]

LOGGER = get_logger("pytriton.rest")

WATCHED_PERIOD_S = 1.0
IDLE_PERIOD_S = 10.0
STREAM_S = 60.0  # pages open the next stream then: an application that ends waits for the streams that it has mounted
MOST_WAITING = 4  # samples that a slow page has not read; older ones are left out


class Live:
    """Samples of a server: one a second while a page is open, else one in ten seconds.

    Args:
        sampler: Takes them.

    Attributes:
        models: History of the models.
        processes: History of the processes.
        last: The last sample; None before the first.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.models = History(MODEL_COLUMNS, peaks=("p99", "pending"))
        self.processes = History(("memory", "cpu"), peaks=("memory",))
        self.last: dict[str, Any] | None = None
        self._sampler = sampler
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._ended = False

    def start(self) -> None:
        """Take samples from now on, on the running event loop."""
        loop = asyncio.get_running_loop()
        if self._ended or (self._task is not None and self._task.get_loop() is loop and not self._task.done()):
            return
        self._wake = asyncio.Event()
        self._task = loop.create_task(self._run())

    def end(self) -> None:
        """End the streams, and take no more samples. May be called twice."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()
        for watcher in self._watchers:
            _put(watcher, None)

    def batches(self, model: str) -> list[tuple[int, tuple[int, float]]]:
        """Calls of a model so far by number of rows, ascending: how many, and seconds of compute of all."""
        return sorted(self._sampler.batches.get(model, {}).items())

    def reasons(self, model: str) -> dict[str, int]:
        """Why how many batches of a model left its queue, the most frequent first; empty if the server makes them."""
        found = self._sampler.queues.reasons.get(model, {})
        return {reason: found[reason] for reason in sorted(found, key=lambda each: -found[each]) if found[reason]}

    def all_reasons(self) -> dict[str, dict[str, int]]:
        """Those of each model that has some."""
        return {model: reasons for model in self._sampler.queues.reasons if (reasons := self.reasons(model))}

    def learned(self, model: str) -> list[tuple[int, float]]:
        """Seconds that batches of so many rows take, ascending, as its latency target has learned."""
        return sorted(self._sampler.queues.learned.get(model, {}).items())

    def refused(self, model: str) -> int:
        """How many requests its latency target has refused."""
        return self._sampler.queues.refused.get(model, 0)

    def recent(self, model: str) -> list[dict[str, Any]]:
        """As :meth:`Sampler.recent`."""
        return self._sampler.recent(model)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Server-sent events: the last sample, and each that follows, for a minute."""
        self.start()
        loop = asyncio.get_running_loop()
        watcher: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        self._watchers.add(watcher)
        self._wake.set()
        end = loop.time() + STREAM_S
        try:
            if self.last is not None:
                yield _event(self.last)
            while not self._ended and loop.time() < end:
                event = await watcher.get()
                if event is None:
                    return
                yield event
        finally:
            self._watchers.discard(watcher)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ended:
            began = loop.time()
            try:
                self._take(await self._sampler.take())
            except Exception:  # the next sample may succeed
                LOGGER.exception("no sample of the server could be taken")
            period_s = WATCHED_PERIOD_S if self._watchers else IDLE_PERIOD_S
            if not self._watchers:
                self._wake.clear()
            pause_s = max(0.0, began + period_s - loop.time())
            if self._watchers:
                await asyncio.sleep(pause_s)
            else:
                await _wait(self._wake, pause_s)

    def _take(self, sample: dict[str, Any]) -> None:
        self.last = sample
        self.models.put(sample["time"], sample["interval"], sample["models"])
        processes = {each["name"]: each for each in sample["processes"]}
        self.processes.put(sample["time"], sample["interval"], processes)
        if self._watchers:
            event = _event(sample)
            for watcher in self._watchers:
                _put(watcher, event)


def _event(sample: dict[str, Any]) -> bytes:
    return b"event: sample\ndata: %b\n\n" % orjson.dumps(sample)


def _put(watcher: asyncio.Queue[bytes | None], event: bytes | None) -> None:
    if watcher.full():
        watcher.get_nowait()
    watcher.put_nowait(event)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event, or for so many seconds."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait((waiting,), timeout=timeout_s)
    waiting.cancel()
