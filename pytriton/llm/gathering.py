"""Responses with several chunks, for streams that are faster than responses can be sent.

A response costs the server and the app about as much as hundreds of chunks. The streams of an instance send
:data:`MOST_PER_S` responses a second together. A chunk that comes later than that after the one before it is sent at
once; others wait for their turn, and travel in one response with those that come meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

__all__ = ["MOST_PER_S", "Pace"]

MOST_PER_S = 2000
MOST_CHUNKS = 256  # that wait; the function is not asked for more before they are sent


class Pace:
    """Spaces the responses of the streams of one event loop."""

    def __init__(self) -> None:
        self._streams = 0

    async def gathered(self, source: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[list[bytes], None]:
        """The chunks of a stream, in its order, several at a time. The source is closed in any case."""
        waiting: list[bytes] = []
        changed, taken = asyncio.Event(), asyncio.Event()

        async def collect() -> None:
            try:
                async with aclosing(source):
                    async for chunks in source:
                        waiting.extend(chunks)
                        changed.set()
                        if len(waiting) >= MOST_CHUNKS:
                            taken.clear()
                            await taken.wait()
            finally:
                changed.set()

        loop = asyncio.get_running_loop()
        task = loop.create_task(collect())
        next_s = 0.0
        self._streams += 1
        try:
            while True:
                await changed.wait()
                delay_s = next_s - loop.time()
                if delay_s > 0 and len(waiting) < MOST_CHUNKS and not task.done():
                    await asyncio.sleep(delay_s)
                changed.clear()
                chunks = waiting[:]
                waiting.clear()
                taken.set()
                if task.done():
                    if chunks:
                        yield chunks
                    task.result()
                    return
                if chunks:
                    next_s = loop.time() + self._streams / MOST_PER_S
                    yield chunks
        finally:
            self._streams -= 1
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
