"""Runs flows in an event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from pytriton.client.exceptions import PyTritonClientError
from pytriton.client.flows import Call, Flow, Shared, Sleep, T

__all__ = ["AsyncTransport", "drive_async"]


class AsyncTransport(Protocol):
    """Does what flows ask for while other tasks run; any number of calls at once."""

    async def call(self, call: Call) -> Any:
        """Perform one call; results and errors are those of :meth:`Transport.call`."""

    async def sleep(self, seconds: float) -> None:
        """Pause."""

    async def close(self) -> None:
        """Give connections back."""


async def drive_async(flow: Flow[T], transport: AsyncTransport) -> T:
    """Run a flow to its end and return its result."""
    try:
        step = next(flow)
        while True:
            try:
                answer = None
                if isinstance(step, Call):
                    answer = await transport.call(step)
                elif isinstance(step, Sleep):
                    await transport.sleep(step.seconds)
                else:
                    answer = await _join(step, transport)
            except PyTritonClientError as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        flow.close()


@dataclass
class _Run:
    """A shared flow that is under way, and how many tasks wait for it."""

    task: asyncio.Task[Any]
    waiting: int = 0


async def _join(step: Shared, transport: AsyncTransport) -> Any:
    run: _Run | None = step.running
    loop = asyncio.get_running_loop()
    if run is None or run.task.done() or run.task.get_loop() is not loop:
        run = step.running = _Run(loop.create_task(drive_async(step.start(), transport)))
    run.waiting += 1
    try:
        # Whoever gives up does so alone ...
        return await asyncio.shield(run.task)
    finally:
        run.waiting -= 1
        if not run.waiting:
            # ... but nothing goes on that nobody waits for.
            run.task.cancel()
            if step.running is run:
                step.running = None
