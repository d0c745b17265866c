"""Conversations with a server, written once for synchronous and asynchronous clients.

A flow is a generator that yields what it wants done, a :class:`Call`, a :class:`Sleep` or a :class:`Shared` flow, and
gets the answer sent back, or a :class:`PyTritonClientError` thrown in. It does no input or output of its own::

    def infer(...) -> Flow[Arrays]:
        codec = yield from prepare()
        return codec.decode((yield Call("infer", ...)))

:func:`drive` runs a flow on a synchronous transport; ``drive_async`` in :mod:`pytriton.client.aio_drive` differs by
``await`` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.client.model_state import ModelState, find_model_state, parse_http_response
from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "NETWORK_TIMEOUT_S",
    "Call",
    "Deadline",
    "Flow",
    "Shared",
    "Sleep",
    "Transport",
    "drive",
    "fetch_model_config",
    "model_arguments",
    "model_state",
    "repository_index",
]

NETWORK_TIMEOUT_S = 60.0
"""Most seconds that one call other than inference and loading may take."""

_AGAIN_S = 0.1


@dataclass(frozen=True)
class Call:
    """One call to the server.

    Args:
        method: Name of the method of tritonclient's ``InferenceServerClient``.
        timeout_s: The call must have ended after that many seconds.
        arguments: The method's own arguments, without headers and timeout.
        headers: To send in addition to the transport's own.
        compression: ``gzip``, ``deflate`` or None; for inference alone.
    """

    method: str
    timeout_s: float
    arguments: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    compression: str | None = None


@dataclass(frozen=True)
class Sleep:
    """A pause.

    Args:
        seconds: Its length.
    """

    seconds: float


class Shared:
    """A flow that is under way once at most: who wants it meanwhile waits for the same outcome.

    Args:
        start: Makes the flow.

    Attributes:
        running: For the driver: the flow that is under way. A synchronous one has nothing to remember.
    """

    def __init__(self, start: Callable[[], Flow[Any]]) -> None:
        self.start = start
        self.running: Any = None


T = TypeVar("T")
Flow = Generator[Call | Sleep | Shared, Any, T]


class Transport(Protocol):
    """Does what flows ask for, by blocking."""

    def call(self, call: Call) -> Any:
        """Perform one call.

        Returns:
            Bool for readiness and liveness, a dict for the model configuration, a list of entries for the
            repository index, an ``InferResult`` for inference.

        Raises:
            PyTritonClientError: The only root of what is raised, apart from interrupts.
        """

    def sleep(self, seconds: float) -> None:
        """Pause."""

    def close(self) -> None:
        """Give connections back."""


def drive(flow: Flow[T], transport: Transport) -> T:
    """Run a flow to its end and return its result."""
    try:
        step = next(flow)
        while True:
            try:
                answer = None
                if isinstance(step, Call):
                    answer = transport.call(step)
                elif isinstance(step, Sleep):
                    transport.sleep(step.seconds)
                else:
                    answer = drive(step.start(), transport)
            except PyTritonClientError as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


class Deadline:
    """A moment that several steps share.

    Args:
        timeout_s: Seconds from now.
        clock: Monotonic seconds.
    """

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout_s = timeout_s
        self._clock = clock
        self._start = clock()
        self._end = self._start + timeout_s

    def left_s(self, reserve_s: float = 0.0) -> float:
        """Seconds until then, less a reserve; 0 once it has passed."""
        return max(0.0, self._end - reserve_s - self._clock())

    def elapsed_s(self) -> float:
        """Seconds since it was set."""
        return self._clock() - self._start

    def call(
        self, method: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = NETWORK_TIMEOUT_S
    ) -> Call:
        """A call that ends at the deadline, or earlier after ``timeout_s``.

        Raises:
            PyTritonClientTimeoutError: The deadline has passed.
        """
        left_s = self.left_s()
        if not left_s:
            raise PyTritonClientTimeoutError(f"no time was left of {self.timeout_s:g} s to call {method}")
        return Call(method, min(timeout_s, left_s), arguments or {})


def fetch_model_config(model_name: str, model_version: str | None, deadline: Deadline) -> Flow[TritonModelConfig]:
    """Get the description of a model.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonClientTimeoutError: There was no answer at the deadline.
        PyTritonModelConfigError: The description cannot be understood.
    """
    arguments = model_arguments(model_name, model_version)
    config = yield from _first_answer(lambda: deadline.call("get_model_config", arguments), deadline)
    try:
        return ModelConfigParser.from_dict(config)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise PyTritonModelConfigError(
            f"the server's configuration of model {model_name!r} cannot be understood: {type(error).__name__} {error}"
        ) from error


def repository_index(deadline: Deadline) -> Flow[list[Mapping[str, str]]]:
    """The entries of the server's repository index.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonClientTimeoutError: There was no answer at the deadline.
    """
    index = yield deadline.call("get_model_repository_index")
    try:
        return [{**entry, "name": entry["name"]} for entry in index]
    except (KeyError, TypeError) as error:
        raise PyTritonClientInferenceServerError(
            f"the server's list of models cannot be understood: {type(error).__name__} {error}"
        ) from error


def model_state(model_name: str, model_version: str | None, deadline: Deadline) -> Flow[ModelState]:
    """Look a model up in the server's repository index; raises as :func:`repository_index`."""
    index = yield from repository_index(deadline)
    return find_model_state(parse_http_response(index), model_name, model_version)


def _first_answer(call: Callable[[], Call], deadline: Deadline) -> Flow[Any]:
    """The first answer at all: a server that goes and comes back just now is asked again."""
    while True:
        try:
            return (yield call())
        except PyTritonClientTlsError:
            raise
        except PyTritonClientConnectionError:
            if not deadline.left_s(_AGAIN_S):
                raise
        yield Sleep(_AGAIN_S)


def model_arguments(model_name: str, model_version: str | None) -> dict[str, str]:
    """The arguments of a call that is about a model."""
    return {"model_name": model_name, "model_version": model_version or ""}
