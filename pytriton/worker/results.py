"""What a callable returned, whatever its form: a value, a coroutine's, or the values of a generator."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Iterator
from contextlib import aclosing, closing
from typing import Any

__all__ = ["Results", "close_loop", "each_async", "is_async"]

Step = tuple[Any, bool]
"""A value, and whether others may follow."""

_END = object()


def is_async(function: Any) -> bool:
    """Whether a callable, or an object's ``__call__``, is a coroutine function or an async generator function."""
    forms = (function, getattr(type(function), "__call__", None))  # noqa: B004
    return any(inspect.iscoroutinefunction(form) or inspect.isasyncgenfunction(form) for form in forms)


async def each_async(returned: Any, decoupled: bool) -> AsyncGenerator[Step, None]:
    """The values that a call stands for, on the event loop that runs; as :meth:`Results.each`."""
    if not decoupled:
        yield await _one(returned), False
        return
    if inspect.isawaitable(returned):
        returned = await returned
    if inspect.isasyncgen(returned):
        async with aclosing(returned):
            async for value in returned:
                yield value, True
    elif inspect.isgenerator(returned):
        with closing(returned):
            for value in returned:
                yield value, True
    else:
        yield returned, False


class Results:
    """Resolves results on the thread of one model instance; coroutines run on one event loop of its own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def of(self, returned: Any) -> Any:
        """The one value that a call stands for.

        Args:
            returned: What the callable returned.

        Raises:
            ValueError: A generator yielded nothing, or more than once.
        """
        if isinstance(returned, (list, dict)):
            return returned
        if inspect.isasyncgen(returned) or inspect.isawaitable(returned):
            return self._run(_one(returned))
        if inspect.isgenerator(returned):
            return _only(returned)
        return returned

    def each(self, returned: Any, decoupled: bool) -> Generator[Step, None, None]:
        """The values of a call's result, each with whether more may follow, as after each value of a generator.

        Args:
            returned: What the callable returned.
            decoupled: Whether there may be any number of values, which generators yield; else it must be one.

        Raises:
            ValueError: It is not one and must be.
        """
        if not decoupled:
            yield self.of(returned), False
            return
        if inspect.isawaitable(returned):
            returned = self._run(returned)
        if inspect.isasyncgen(returned):
            try:
                while (value := self._run(_next(returned))) is not _END:
                    yield value, True
            finally:
                self._run(returned.aclose())
        elif inspect.isgenerator(returned):
            with closing(returned):
                for value in returned:
                    yield value, True
        else:
            yield returned, False

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
        """Cancel the tasks that still run on the event loop, and close it."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            close_loop(loop)


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of an event loop that has stopped, and close it."""
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
    """A value, or an exception: a task that raises is a cycle, which would keep the inputs until a collection."""
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


async def _one(returned: Any) -> Any:
    if inspect.isasyncgen(returned):
        return await _only_async(returned)
    if inspect.isawaitable(returned):
        return await _one(await returned)
    return _only(returned) if inspect.isgenerator(returned) else returned


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
