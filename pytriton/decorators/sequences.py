"""Callables that keep a state for each sequence of requests.

A state is created when its sequence starts, and dropped when the sequence ends or was idle for too long.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytriton.decorators.function_kinds import then
from pytriton.decorators.inputs_and_outputs import convert_output, requests_in, tensors
from pytriton.decorators.signatures import AddingDecorator, Wrapped, adding_decorator
from pytriton.exceptions import (
    ErrorCode,
    PyTritonBadParameterError,
    PyTritonRequestError,
    PyTritonUnrecoverableError,
    PyTritonValidationError,
)
from pytriton.model_config import SequenceBatcher
from pytriton.worker.context import current_binding

__all__ = ["DEFAULT_IDLE_S", "GRACE_S", "PerSequence", "SequenceStates", "sequence_states"]

DEFAULT_IDLE_S = 600.0  # if neither the model nor the user sets a timeout
GRACE_S = 5.0  # added to the server's timeout, which does not include the time that a request has waited

_Key = tuple[str, int, "int | str"]


@dataclass
class _Entry:
    state: Any
    idle_s: float
    last_use_s: float


class PerSequence:
    """An inference callable with a separate object for each sequence. Pass it to ``bind``.

    The object is made when a sequence starts, called with the inputs of each of its requests, and dropped when the
    sequence ends or was idle for too long::

        class Total:
            def __init__(self):
                self.total = 0.0

            def __call__(self, x):
                self.total += x.sum()
                return {"total": np.full((len(x), 1), self.total)}

        triton.bind("total", PerSequence(Total), ..., config=ModelConfig(batcher=SequenceBatcher()))

    The object gets inputs as keyword arguments, in the shape of one request (with batch axis if the model has
    batching), and returns a dict from output name to array, or a list or tuple of arrays in the order of the model's
    outputs. An exception of the object fails its request alone, and leaves the sequence open. A request of a sequence
    that has not started fails with INVALID_ARG.

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
        """A result or an exception for each request."""
        states = self._states.of(requests)
        results = [self._result(request, state) for request, state in zip(requests, states, strict=True)]
        self._states.used(requests)
        return results

    def _result(self, request: Any, state: Any) -> Any:
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
            merged = list(states)  # keeps the exceptions
            for index, response in zip(known, responses, strict=True):
                merged[index] = response
            return merged

        kept = [states[index] for index in known]
        return then(wrapped(answerable, *args[1:], **{**kwargs, "states": kept}), merge)

    return stateful


class SequenceStates:
    """Keeps a state for each sequence; thread-safe.

    Args:
        make: Makes the state of a sequence that starts.
        idle_timeout_s: How long a sequence may be without requests. None is the timeout of the model's SequenceBatcher
            and some seconds more, or ten minutes for other models.
        clock: Seconds.

    Raises:
        PyTritonBadParameterError: ``make`` cannot be called, or the timeout is not positive.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        idle_timeout_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not callable(make):
            raise PyTritonBadParameterError(f"{make!r} cannot be called to make the state of a sequence; give a class")
        if idle_timeout_s is not None and not idle_timeout_s > 0:
            raise PyTritonBadParameterError(f"idle_timeout_s is {idle_timeout_s!r}; give seconds above 0, or None")
        self._make = make
        self._idle_timeout_s = idle_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()  # ordered by the time of the last use

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, requests: Sequence[Any]) -> list[Any]:
        """The state of each request's sequence, or the exception with which the request fails.

        The first request of a sequence creates a state and replaces an older one with that id. The last request removes
        the state.
        """
        self._drop_idle()
        return [self._of(request) for request in requests]

    def _of(self, request: Any) -> Any:
        correlation_id = getattr(request, "correlation_id", None)
        if correlation_id is None:
            return PyTritonRequestError(
                "the request belongs to no sequence; send it with a sequence id", ErrorCode.INVALID_ARG
            )
        key = _key(correlation_id)
        if request.sequence_start:
            try:
                entry = _Entry(self._make(), self._idle_s(), self._clock())
            except Exception as error:  # fails this request alone
                return error
        else:
            with self._lock:
                known = self._entries.get(key)
            if known is None:
                return PyTritonRequestError(
                    f"sequence {correlation_id!r} has not started, or has ended, or was idle for more than "
                    f"{self._idle_s():g} s; start it anew with sequence_start",
                    ErrorCode.INVALID_ARG,
                )
            entry = known
        with self._lock:
            if request.sequence_end:
                self._entries.pop(key, None)
            else:
                self._use(key, entry)
        return entry.state

    def used(self, requests: Sequence[Any]) -> None:
        """Count the idle time of the requests' sequences from now on, not since their requests arrived."""
        with self._lock:
            for request in requests:
                correlation_id = getattr(request, "correlation_id", None)
                if correlation_id is not None and (entry := self._entries.get(key := _key(correlation_id))):
                    self._use(key, entry)

    def _use(self, key: _Key, entry: _Entry) -> None:
        entry.last_use_s = self._clock()
        self._entries[key] = entry
        self._entries.move_to_end(key)

    def _drop_idle(self) -> None:
        with self._lock:
            now_s = self._clock()
            while self._entries:
                key, entry = next(iter(self._entries.items()))
                if now_s - entry.last_use_s <= entry.idle_s:
                    return
                del self._entries[key]

    def _idle_s(self) -> float:
        if self._idle_timeout_s is not None:
            return self._idle_timeout_s
        binding = current_binding.get()
        batcher = None if binding is None else binding.model_config.batcher
        if isinstance(batcher, SequenceBatcher):
            return batcher.max_sequence_idle_microseconds / 1e6 + GRACE_S
        return DEFAULT_IDLE_S


def _key(correlation_id: int | str) -> _Key:
    """Key of a sequence; it includes the model, because one callable may serve several models."""
    binding = current_binding.get()
    if binding is None:
        return "", 0, correlation_id
    return binding.model_config.model_name, binding.model_config.model_version, correlation_id
