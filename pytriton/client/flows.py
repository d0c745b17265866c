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
    PyTritonClientModelUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.client.model_state import LATEST_MODEL_VERSION, ModelState, find_model_state, parse_http_response
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
    "model_state",
    "wait_and_fetch",
    "wait_for_model",
    "wait_for_server",
]

NETWORK_TIMEOUT_S = 60.0
"""Most seconds that one call other than inference and loading may take."""

# A starting server is usually ready within some hundred milliseconds, so the first polls follow closely.
_POLL_STEP_S = 0.01
_POLL_MAX_S = 1.0
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
        self._end = clock() + timeout_s

    def left_s(self, reserve_s: float = 0.0) -> float:
        """Seconds until then, less a reserve; 0 once it has passed."""
        return max(0.0, self._end - reserve_s - self._clock())

    def call(self, method: str, **arguments: Any) -> Call:
        """A call that ends at the deadline, or earlier at the network timeout.

        Raises:
            PyTritonClientTimeoutError: The deadline has passed.
        """
        left_s = self.left_s()
        if not left_s:
            raise PyTritonClientTimeoutError(f"no time was left of {self.timeout_s:g} s to call {method}")
        return Call(method, min(NETWORK_TIMEOUT_S, left_s), arguments)


def wait_for_server(deadline: Deadline, interval_s: float | None = None) -> Flow[None]:
    """Wait until the server is live and ready.

    Args:
        deadline: When to give up.
        interval_s: Pause between two attempts; None starts with a short one.

    Raises:
        PyTritonClientTimeoutError: It was not at the deadline.
    """
    for method in ("is_server_live", "is_server_ready"):
        poll = _Poll(method, {}, interval_s)
        if not (yield from poll.until(deadline)):
            raise poll.timeout("the server", deadline)


def wait_for_model(model_name: str, model_version: str | None, deadline: Deadline) -> Flow[None]:
    """Wait until a model can serve, which includes waiting for the server.

    That other models are loading or broken makes the server "not ready", but does not matter here.

    Raises:
        PyTritonClientModelUnavailableError: The server was reached, but had no such model or version.
        PyTritonClientTimeoutError: The model was not ready at the deadline.
    """
    poll = _Poll("is_model_ready", _name(model_name, model_version))
    # Shortly before the deadline, time is kept back to learn why the model is not there.
    if (yield from poll.until(deadline, reserve_s=min(0.1 * deadline.timeout_s, 0.5))):
        return
    try:
        state = yield from model_state(model_name, model_version, deadline)
    except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError):
        state = None  # the repository index may be restricted
    if (yield from poll.until(deadline)):
        return
    model = f"model {model_name!r} (version {model_version or LATEST_MODEL_VERSION})"
    if state is ModelState.UNAVAILABLE:
        raise PyTritonClientModelUnavailableError(
            f"{model} is not available on the server and was not within {deadline.timeout_s:g} s; check its name and "
            "version, and the server's log if it should have been loaded"
        ) from poll.error
    raise poll.timeout(model, deadline)


def fetch_model_config(model_name: str, model_version: str | None, deadline: Deadline) -> Flow[TritonModelConfig]:
    """Get the description of a model.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonClientTimeoutError: There was no answer at the deadline.
        PyTritonModelConfigError: The description cannot be understood.
    """
    poll = _Poll("get_model_config", _name(model_name, model_version))
    config = yield from poll.answer(deadline)
    try:
        return ModelConfigParser.from_dict(config)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise PyTritonModelConfigError(
            f"the server's configuration of model {model_name!r} cannot be understood: {type(error).__name__} {error}"
        ) from error


def wait_and_fetch(model_name: str, model_version: str | None, timeout_s: float) -> Flow[TritonModelConfig]:
    """Wait for a model, then get its description, both within ``timeout_s``; raises as either."""
    deadline = Deadline(timeout_s)
    yield from wait_for_model(model_name, model_version, deadline)
    return (yield from fetch_model_config(model_name, model_version, deadline))


def model_state(model_name: str, model_version: str | None, deadline: Deadline) -> Flow[ModelState]:
    """Look a model up in the server's repository index.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonClientTimeoutError: There was no answer at the deadline.
    """
    index = yield deadline.call("get_model_repository_index")
    try:
        return find_model_state(parse_http_response(index), model_name, model_version)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PyTritonClientInferenceServerError(
            f"the server's list of models cannot be understood: {type(error).__name__} {error}"
        ) from error


class _Poll:
    """Asks the same question until the answer is yes."""

    def __init__(self, method: str, arguments: dict[str, str], interval_s: float | None = None) -> None:
        self._method = method
        self._arguments = arguments
        self._interval_s = interval_s or 0.0
        self._grows = interval_s is None
        self.error: PyTritonClientError | None = None

    def until(self, deadline: Deadline, reserve_s: float = 0.0) -> Flow[bool]:
        while deadline.left_s(reserve_s):
            try:
                if (yield deadline.call(self._method, **self._arguments)):
                    return True
                self.error = None
            except PyTritonClientTlsError:
                raise  # a matter of files and settings, which waiting does not change
            except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError) as error:
                # Refused, reset, unreachable: all of it happens while a server starts.
                self.error = error
            if self._grows:
                self._interval_s = min(self._interval_s + _POLL_STEP_S, _POLL_MAX_S)
            yield Sleep(min(self._interval_s, deadline.left_s(reserve_s)))
        return False

    def answer(self, deadline: Deadline) -> Flow[Any]:
        """The first answer at all: a server that goes and comes back just now is asked again, as it would be before."""
        while True:
            try:
                return (yield deadline.call(self._method, **self._arguments))
            except PyTritonClientTlsError:
                raise
            except PyTritonClientConnectionError:
                if not deadline.left_s(_AGAIN_S):
                    raise
            yield Sleep(_AGAIN_S)

    def timeout(self, what: str, deadline: Deadline) -> PyTritonClientTimeoutError:
        reason = f"; the last attempt failed with: {self.error}" if self.error else ""
        timeout = PyTritonClientTimeoutError(f"{what} was not ready within {deadline.timeout_s:g} s{reason}")
        timeout.__cause__ = self.error
        return timeout


def _name(model_name: str, model_version: str | None) -> dict[str, str]:
    return {"model_name": model_name, "model_version": model_version or ""}
