"""Spans of OpenTelemetry around calls of every kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

from pytriton.proxy.telemetry import current, end_span, start_span_from_current

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["BATCH_SPAN", "in_span"]

BATCH_SPAN = "pytriton-batch-decorator-span"


def in_span(name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Make a call in a child of the current span; without one, just make it.

    Args:
        name: Of the new span.
        call: A function of any kind.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Returns:
        What the call returns; the span lasts until a generator or coroutine that it made has ended.
    """
    span = start_span_from_current(name)
    if span is None:
        return call(*args, **kwargs)
    try:
        with current(span):
            result = call(*args, **kwargs)
    except BaseException as error:
        end_span(span, error)
        raise
    if isinstance(result, Generator):
        return _each(result, span)
    if isinstance(result, AsyncGenerator):
        return _each_async(result, span)
    if isinstance(result, Awaitable):
        return _awaited(result, span)
    end_span(span)
    return result


class _Ending:
    """Ends a span with the block, in which it need not be current."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        end_span(self._span, None if isinstance(error, GeneratorExit) else error)


def _each(results: Generator[Any, Any, Any], span: Span) -> Generator[Any, None, None]:
    with _Ending(span), closing(results):
        while True:
            with current(span):  # not while somebody else runs on this thread
                try:
                    result = next(results)
                except StopIteration:
                    return
            yield result


async def _each_async(results: AsyncGenerator[Any, Any], span: Span) -> AsyncGenerator[Any, None]:
    with _Ending(span):
        async with aclosing(results):
            while True:
                with current(span):
                    try:
                        result = await anext(results)
                    except StopAsyncIteration:
                        return
                yield result


async def _awaited(result: Awaitable[Any], span: Span) -> Any:
    with _Ending(span), current(span):
        return await result
