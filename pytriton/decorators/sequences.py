"""Callables that keep a state for each sequence of requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from pytriton.decorators.calls import AddingDecorator, Wrapped, adding_decorator, then
from pytriton.decorators.inputs import requests_in, tensors
from pytriton.decorators.outputs import convert_output
from pytriton.decorators.sequence_states import SequenceStates
from pytriton.exceptions import PyTritonBadParameterError, PyTritonUnrecoverableError, PyTritonValidationError

__all__ = ["PerSequence", "sequence_states"]


class PerSequence:
    """An inference callable that has an object of its own for each sequence. Pass it to ``bind``.

    The object is made when a sequence starts, called with the inputs of each of its requests, and dropped when it ends
    or has been idle for too long::

        class Total:
            def __init__(self):
                self.total = 0.0

            def __call__(self, x):
                self.total += x.sum()
                return {"total": np.full((len(x), 1), self.total)}

        triton.bind("total", PerSequence(Total), ..., config=ModelConfig(batcher=SequenceBatcher()))

    The object gets inputs as keyword arguments, in the shape of one request (with batch axis if the model has
    batching), and returns a dict from output name to array, or a list or tuple of arrays in the order of the model's
    outputs. What it raises fails its request alone, and leaves the sequence open. A request of a sequence that has not
    started fails with INVALID_ARG.

    Args:
        make: Makes the object of a sequence; a class, or a function without arguments.
        idle_timeout_s: How long a sequence may be without requests. None is the timeout of the model's SequenceBatcher
            and some seconds more, or ten minutes for other models.

    Raises:
        PyTritonBadParameterError: ``make`` cannot be called, or makes objects whose ``__call__`` is a coroutine or
            generator function; or the timeout is not positive.
    """

    def __init__(self, make: Callable[[], Callable[..., Any]], *, idle_timeout_s: float | None = None) -> None:
        self._states = SequenceStates(make, idle_timeout_s)
        call = getattr(make, "__call__", None) if isinstance(make, type) else None  # noqa: B004
        if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call) or inspect.isgeneratorfunction(call):
            raise PyTritonBadParameterError(
                f"PerSequence needs a plain __call__, and that of {make.__name__} is async or a generator; use "
                "@sequence_states instead"
            )

    def __call__(self, requests: Sequence[Any]) -> list[Any]:
        """A result for each request, or the exception that it failed with."""
        states = self._states.of(requests)
        results = [self._answer(request, state) for request, state in zip(requests, states, strict=True)]
        self._states.used(requests)
        return results

    def _answer(self, request: Any, state: Any) -> Any:
        if isinstance(state, Exception):
            return state
        try:
            return convert_output(state(**tensors(request)), self)
        except PyTritonUnrecoverableError:
            raise
        except Exception as error:
            return error


def sequence_states(make: Callable[[], Any], *, idle_timeout_s: float | None = None) -> AddingDecorator:
    """Call the function with the state of each request's sequence, as the list ``states``. Goes above ``@batch``.

    For callables that work on several sequences at once, and for coroutines and generators; :class:`PerSequence` is
    simpler. ``states`` is a keyword argument, with one state per request, in their order. Clients of a model with
    sequence batching and ``max_batch_size`` rows send one row per request, so that it is one state per row as well::

        @sequence_states(Cache)
        @batch
        def decode(token, states):
            return {"next": model.step(token, states)}

    Requests of sequences that have not started fail with INVALID_ARG, and the function is called without them.

    Args:
        make: Makes the state when a sequence starts; a class, or a function without arguments.
        idle_timeout_s: As of :class:`PerSequence`. It counts from the beginning of a call to the next one, and from
            each result.

    Raises:
        PyTritonBadParameterError: At decoration: ``make`` cannot be called, or the timeout is not positive.
        PyTritonRuntimeError: At the call: there is no list of requests.
        PyTritonValidationError: At the call: the list is empty, or the result is no list with an element per request.
    """
    all_states = SequenceStates(make, idle_timeout_s)

    @adding_decorator("states")
    def stateful(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        requests = requests_in(args, "sequence_states")
        states = all_states.of(requests)
        known = [index for index, state in enumerate(states) if not isinstance(state, Exception)]
        if not known:
            return states
        answerable = requests if len(known) == len(requests) else [requests[index] for index in known]

        def merge(responses: Any) -> list[Any]:
            if not isinstance(responses, list) or len(responses) != len(known):
                raise PyTritonValidationError(
                    f"a callable got {len(known)} requests and returned {type(responses).__name__} {responses!r:.80}; "
                    "return a list with one result per request"
                )
            all_states.used(answerable)
            if len(known) == len(requests):
                return responses
            merged = list(states)  # the exceptions stay
            for index, response in zip(known, responses, strict=True):
                merged[index] = response
            return merged

        kept = [states[index] for index in known]
        return then(wrapped(answerable, *args[1:], **{**kwargs, "states": kept}), merge)

    return stateful
