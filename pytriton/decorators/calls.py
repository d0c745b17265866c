"""One body for plain functions, coroutines, generators and async generators.

A decorator says what goes into the calls of the wrapped function and how to adapt what comes out:

    then(result, adapt)    apply ``adapt`` to a returned or awaited result, or to each yielded one
    each(wrapped, calls)   several calls as one: the list of their results

The kind is known from the result, not from the function: lambdas, partials and callable objects need no special care.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from itertools import zip_longest
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import wrapt

from pytriton.exceptions import PyTritonRuntimeError

__all__ = [
    "AddingDecorator",
    "Call",
    "Decorated",
    "Decorator",
    "NamingDecorator",
    "Passing",
    "Wrapped",
    "Wrapper",
    "adding_decorator",
    "decorator",
    "each",
    "naming_decorator",
    "passing_decorator",
    "passing_of",
    "then",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])

Wrapped = Callable[..., Any]
Wrapper = Callable[[Wrapped, Any, tuple[Any, ...], dict[str, Any]], Any]
"""Arguments: the wrapped function (bound, if a method), its object or None, positional arguments, keyword arguments."""
Call = tuple[tuple[Any, ...], dict[str, Any]]

_ENDED = object()


class Passing(NamedTuple):
    """What a decorator passes on beside its own arguments.

    Attributes:
        by_name: Whether it turns the list of requests into a keyword argument for each input.
        adds: Names of further keyword arguments.
        fills: Names of inputs that it adds to requests without them.
        reduces: Names of inputs of which it passes on one value in place of rows.
    """

    by_name: bool = False
    adds: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    reduces: tuple[str, ...] = ()


class Decorated(Protocol[P, R_co]):
    """A function that is called with the list of requests, while what it wraps gets each input by its name."""

    @property
    def __wrapped__(self) -> Callable[P, R_co]:
        """The function as it was written."""

    def __call__(self, requests: Sequence[Mapping[str, Any]], /, *args: Any, **kwargs: Any) -> Any:
        """One result per request; awaited from coroutines, and yielded by generators."""

    def __get__(self, instance: Any, owner: type[Any] | None = None, /) -> Decorated[P, R_co]:
        """A method of an object."""


class Decorator(Protocol):
    """Leaves a function's arguments and result as they are to a type checker."""

    def __call__(self, wrapped: F, /) -> F:
        """Decorate a function."""


class NamingDecorator(Protocol):
    """Turns the list of requests into a keyword argument for each input."""

    def __call__(self, wrapped: Callable[P, R], /) -> Decorated[P, R]:
        """Decorate a function."""


class AddingDecorator(Protocol):
    """Adds keyword arguments, which the caller of the decorated function does not give."""

    def __call__(self, wrapped: Callable[..., R], /) -> Callable[..., R]:
        """Decorate a function."""


def decorator(wrapper: Wrapper) -> Decorator:
    """Turn ``wrapper`` into a decorator of functions, methods, callable objects and what else can be called."""
    made: Decorator = _made(wrapper, Passing())
    return made


def naming_decorator(wrapper: Wrapper) -> NamingDecorator:
    """The same of a wrapper that passes each input as a keyword argument."""
    made: NamingDecorator = _made(wrapper, Passing(by_name=True))
    return made


def adding_decorator(*names: str) -> Callable[[Wrapper], AddingDecorator]:
    """The same of a wrapper that adds keyword arguments of these names."""
    return lambda wrapper: _made(wrapper, Passing(adds=names))


def passing_decorator(passing: Passing) -> Callable[[Wrapper], Decorator]:
    """The same of a wrapper that passes something else on."""
    return lambda wrapper: _made(wrapper, passing)


def _made(wrapper: Any, passing: Passing) -> Any:
    wrapper.passing = passing
    return wrapt.decorator(wrapper)


def passing_of(wrapper: Any) -> Passing | None:
    """What the decorator of a wrapper passes on; None of a decorator that is not ours."""
    passing = getattr(wrapper, "passing", None)
    return passing if isinstance(passing, Passing) else None


def then(result: Any, adapt: Callable[[Any], Any]) -> Any:
    """Apply ``adapt`` to the result of a call.

    Args:
        result: What the call returned: a result, an awaitable of one, or a generator or async generator of several.
        adapt: From one result to another.

    Returns:
        The same kind as ``result``. Closing an adapted generator closes the one behind it.
    """
    if isinstance(result, (dict, list, tuple)):  # by far the most frequent, and the check is the cheapest
        return adapt(result)
    if isinstance(result, Generator):
        return _then_each(result, adapt)
    if isinstance(result, AsyncGenerator):
        return _then_each_async(result, adapt)
    if isinstance(result, Awaitable):
        return _then_awaited(result, adapt)
    return adapt(result)


def each(wrapped: Wrapped, calls: Sequence[Call]) -> Any:
    """Make several calls one after the other, as if they were one.

    Args:
        wrapped: A function of any kind.
        calls: Positional and keyword arguments of each call; at least one.

    Returns:
        The list of the calls' results: returned by a plain function, awaited from a coroutine, or yielded by a
        generator for the first results of all calls, the second ones, and so on.

    Raises:
        PyTritonRuntimeError: While iterating: the calls yield different numbers of results.
    """
    (args, kwargs), *rest = calls
    first = wrapped(*args, **kwargs)
    later = (wrapped(*args, **kwargs) for args, kwargs in rest)  # lazy: a coroutine is made when the one before is done
    if isinstance(first, Generator):
        return _in_step([first, *later])
    if isinstance(first, AsyncGenerator):
        return _in_step_async([first, *later])
    if isinstance(first, Awaitable):
        return _in_turn(first, later)
    return [first, *later]


def _then_each(results: Generator[Any, Any, Any], adapt: Callable[[Any], Any]) -> Generator[Any, None, None]:
    with closing(results):
        for result in results:
            yield adapt(result)


async def _then_each_async(results: AsyncGenerator[Any, Any], adapt: Callable[[Any], Any]) -> AsyncGenerator[Any, None]:
    async with aclosing(results):
        async for result in results:
            yield adapt(result)


async def _then_awaited(result: Awaitable[Any], adapt: Callable[[Any], Any]) -> Any:
    return adapt(await result)


async def _in_turn(first: Awaitable[Any], later: Iterable[Awaitable[Any]]) -> list[Any]:
    return [await first] + [await result for result in later]


def _in_step(generators: Sequence[Generator[Any, Any, Any]]) -> Generator[list[Any], None, None]:
    with ExitStack() as stack:
        for generator in generators:
            stack.enter_context(closing(generator))
        for results in zip_longest(*generators, fillvalue=_ENDED):
            _all_ended(results)
            yield list(results)


async def _in_step_async(generators: Sequence[AsyncGenerator[Any, Any]]) -> AsyncGenerator[list[Any], None]:
    async with AsyncExitStack() as stack:
        for generator in generators:
            await stack.enter_async_context(aclosing(generator))
        while True:
            results = [await anext(generator, _ENDED) for generator in generators]
            if _all_ended(results):
                return
            yield results


def _all_ended(results: Sequence[Any]) -> bool:
    ended = sum(result is _ENDED for result in results)
    if 0 < ended < len(results):
        raise PyTritonRuntimeError(
            f"the generators of {ended} of {len(results)} groups ended before the others; yield equally often for "
            "each group, because each response needs the rows of all of them"
        )
    return ended > 0
