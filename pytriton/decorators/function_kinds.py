"""Treat plain functions, coroutines, generators and async generators alike.

A decorator defines the arguments of the wrapped function's calls, and adapts their results:

    then(result, adapt)        apply ``adapt`` to a returned or awaited result, or to each yielded one
    call_each(wrapped, calls)  make several calls as one, whose result is the list of their results
    in_span(name, call, ...)   make a call within a span of OpenTelemetry

The kind is known from the result, not from the function, so that lambdas, partials and callable objects work too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pytriton.exceptions import PyTritonRuntimeError
from pytriton.proxy.telemetry import current, end_span, start_span_from_current

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["BATCH_SPAN", "Call", "call_each", "in_span", "then"]

Call = tuple[tuple[Any, ...], dict[str, Any]]

BATCH_SPAN = "pytriton-batch-decorator-span"

_ENDED = object()


def then(result: Any, adapt: Callable[[Any], Any]) -> Any:
    """Apply ``adapt`` to the result of a call.

    Args:
        result: The value that the call returned: a result, an awaitable of one, or a generator or async generator of
            several.

    Returns:
        The same kind as ``result``. Closing an adapted generator closes the original one.
    """
    if isinstance(result, (dict, list, tuple)):  # the most frequent kinds, and the fastest check
        return adapt(result)
    if isinstance(result, Generator):
        return _then_each(result, adapt)
    if isinstance(result, AsyncGenerator):
        return _then_each_async(result, adapt)
    if isinstance(result, Awaitable):
        return _then_awaited(result, adapt)
    return adapt(result)


async def _then_awaited(result: Awaitable[Any], adapt: Callable[[Any], Any]) -> Any:
    return adapt(await result)


def _then_each(results: Generator[Any, Any, Any], adapt: Callable[[Any], Any]) -> Generator[Any, None, None]:
    with closing(results):
        for result in results:
            yield adapt(result)


async def _then_each_async(results: AsyncGenerator[Any, Any], adapt: Callable[[Any], Any]) -> AsyncGenerator[Any, None]:
    async with aclosing(results):
        async for result in results:
            yield adapt(result)


def call_each(wrapped: Callable[..., Any], calls: Sequence[Call]) -> Any:
    """Make several calls one after the other, as if they were one.

    Args:
        calls: Positional and keyword arguments of each call; at least one.

    Returns:
        The list of the calls' results: returned by a plain function, awaited from a coroutine, or yielded by a
        generator for the first results of all calls, the second ones, and so on.

    Raises:
        PyTritonRuntimeError: While iterating: the calls yield different numbers of results.
    """
    (args, kwargs), *others = calls
    first = wrapped(*args, **kwargs)
    later = (wrapped(*args, **kwargs) for args, kwargs in others)  # lazy: each coroutine is made when needed
    if isinstance(first, Generator):
        return _yield_together([first, *later])
    if isinstance(first, AsyncGenerator):
        return _yield_together_async([first, *later])
    if isinstance(first, Awaitable):
        return _await_in_order(first, later)
    return [first, *later]


async def _await_in_order(first: Awaitable[Any], later: Iterable[Awaitable[Any]]) -> list[Any]:
    return [await first] + [await result for result in later]


def _yield_together(generators: Sequence[Generator[Any, Any, Any]]) -> Generator[list[Any], None, None]:
    with ExitStack() as stack:
        for generator in generators:
            stack.enter_context(closing(generator))
        for results in zip_longest(*generators, fillvalue=_ENDED):
            _have_all_ended(results)
            yield list(results)


async def _yield_together_async(generators: Sequence[AsyncGenerator[Any, Any]]) -> AsyncGenerator[list[Any], None]:
    async with AsyncExitStack() as stack:
        for generator in generators:
            await stack.enter_async_context(aclosing(generator))
        while True:
            results = [await anext(generator, _ENDED) for generator in generators]
            if _have_all_ended(results):
                return
            yield results


def _have_all_ended(results: Sequence[Any]) -> bool:
    ended = sum(result is _ENDED for result in results)
    if 0 < ended < len(results):
        raise PyTritonRuntimeError(
            f"the generators of {ended} of {len(results)} groups ended before the others; yield equally often for "
            "each group, because each response needs the rows of all of them"
        )
    return ended > 0


def in_span(name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Make a call in a child of the current span; if there is none, just make the call.

    Returns:
        The call's result. If it is a generator or coroutine, the span lasts until that has ended.
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
        return _each_in_span(result, span)
    if isinstance(result, AsyncGenerator):
        return _each_in_span_async(result, span)
    if isinstance(result, Awaitable):
        return _await_in_span(result, span)
    end_span(span)
    return result


class _SpanEnd:
    """Ends a span at the end of the block, in which the span need not be the current one."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        # Closing a generator is not an error.
        end_span(self._span, None if isinstance(error, GeneratorExit) else error)


async def _await_in_span(result: Awaitable[Any], span: Span) -> Any:
    with _SpanEnd(span), current(span):
        return await result


def _each_in_span(results: Generator[Any, Any, Any], span: Span) -> Generator[Any, None, None]:
    with _SpanEnd(span), closing(results):
        while True:
            with current(span):  # only while this generator runs, not between its results
                try:
                    result = next(results)
                except StopIteration:
                    return
            yield result


async def _each_in_span_async(results: AsyncGenerator[Any, Any], span: Span) -> AsyncGenerator[Any, None]:
    with _SpanEnd(span):
        async with aclosing(results):
            while True:
                with current(span):
                    try:
                        result = await anext(results)
                    except StopAsyncIteration:
                        return
                yield result
