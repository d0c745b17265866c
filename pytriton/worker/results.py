"""What a callable returned, whatever its form: a value, a coroutine's, or the one value of a generator."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

_END = object()


class Results:
    """Resolves results on the thread of one model instance; coroutines run on one event loop of its own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def of(self, returned: Any) -> Any:
        """The responses that a call stands for.

        Args:
            returned: What the callable returned.

        Raises:
            ValueError: A generator yielded nothing, or more than once.
        """
        if isinstance(returned, (list, dict)):
            return returned
        if inspect.isasyncgen(returned):
            return self._run(_only_async(returned))
        if inspect.isgenerator(returned):
            return _only(returned)
        if inspect.isawaitable(returned):
            return self.of(self._run(returned))
        return returned

    def _run(self, awaitable: Awaitable[Any]) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        value, error = self._loop.run_until_complete(_outcome(awaitable))
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame
        return value

    def close(self) -> None:
        """Cancel what still runs on the event loop and close it."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            try:
                loop.run_until_complete(_cancel_others())
                loop.run_until_complete(loop.shutdown_asyncgens())
            finally:
                loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _outcome(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """A value, or what was raised. A task that raises is a cycle, which keeps the inputs until the next collection."""
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


def _only(generator: Iterator[Any]) -> Any:
    try:
        result = next(generator, _END)
        more = result is not _END and next(generator, _END) is not _END
    finally:
        generator.close()  # type: ignore[attr-defined]
    return _checked(result, more)


async def _only_async(generator: AsyncIterator[Any]) -> Any:
    try:
        result = await _next(generator)
        more = result is not _END and await _next(generator) is not _END
    finally:
        await generator.aclose()  # type: ignore[attr-defined]
    return _checked(result, more)


async def _next(generator: AsyncIterator[Any]) -> Any:
    async for value in generator:
        return value
    return _END


def _checked(result: Any, more: bool) -> Any:
    if result is _END:
        raise ValueError("the generator yielded nothing; a model that is not decoupled needs exactly one result")
    if more:
        raise ValueError("the generator yielded more than once; only a decoupled model may answer several times")
    return result
