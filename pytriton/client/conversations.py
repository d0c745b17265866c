"""Conversations with a server, written once for synchronous and asynchronous clients.

A conversation is a generator. It yields a :class:`Call`, a :class:`Sleep` or a :class:`Shared` conversation. The driver
sends the result back in, or throws a :class:`PyTritonClientError`. A conversation does no input or output itself::

    def infer(...) -> Conversation[Arrays]:
        codec = yield from prepare()
        return codec.decode((yield Call("infer", ...)))

:func:`pytriton.client.sync.drive` runs it on a synchronous transport, :func:`pytriton.client.aio.drive_async` does the
same with ``await``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.restarts import Backoff

__all__ = [
    "NETWORK_TIMEOUT_S",
    "AsyncTransport",
    "Call",
    "Conversation",
    "Deadline",
    "OtherProgramError",
    "Shared",
    "Sleep",
    "Transport",
    "retried",
]

NETWORK_TIMEOUT_S = 60.0
"""Bounds each call other than inference and loading."""

# The first pause before a retry is at most 0.2 s, because a server reloads a model or restarts within some tenths of a
# second. Each later pause may be twice as long. Pauses are random, so that clients do not retry in step.
_SHORTEST_PAUSE_S = 0.05
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0


@dataclass(slots=True)
class Call:
    """One call to the server.

    Args:
        method: Name of a method of tritonclient's ``InferenceServerClient``.
        timeout_s: The transport ends the call after that many seconds.
        arguments: The arguments of that method, without headers and timeout. Those of ``infer`` hold
            :class:`~pytriton.client.tensors.InputTensor` and :class:`~pytriton.client.tensors.OutputRequest` objects.
        headers: Sent in addition to the transport's own.
        compression: ``gzip``, ``deflate`` or None; for inference alone.
    """

    method: str
    timeout_s: float
    arguments: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    compression: str | None = None


class OtherProgramError(ConnectionError):
    """What answers is no Triton server, or speaks another protocol than the URL says; of transports, not of clients."""


@dataclass(frozen=True)
class Sleep:
    """A pause of some seconds."""

    seconds: float


class Shared:
    """A conversation that runs at most once at a time: tasks that want it meanwhile get the same outcome.

    Attributes:
        running: For the asynchronous driver, which notes the run under way.
    """

    def __init__(self, start: Callable[[], Conversation[Any]]) -> None:
        self.start = start
        self.running: Any = None


T = TypeVar("T")
Conversation = Generator[Call | Sleep | Shared, Any, T]


class Transport(Protocol):
    """Performs the steps of conversations, and blocks meanwhile."""

    def call(self, call: Call) -> Any:
        """Perform one call.

        Returns:
            A bool for readiness and liveness, an ``InferResponse`` for inference, else the JSON form of the answer:
            a dict for a model's configuration, a list of dicts for the repository index.

        Raises:
            PyTritonClientError: For every failure but interrupts.
        """

    def sleep(self, seconds: float) -> None:
        """Pause."""

    def close(self) -> None:
        """Close the connections."""


class AsyncTransport(Protocol):
    """Performs the steps of conversations in an event loop, any number at once."""

    async def call(self, call: Call) -> Any:
        """Perform one call; results and errors are those of :meth:`Transport.call`."""

    async def sleep(self, seconds: float) -> None:
        """Pause."""

    async def close(self) -> None:
        """Close the connections."""


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
        """Seconds until the deadline, less a reserve; 0 once it has passed."""
        return max(0.0, self._end - reserve_s - self._clock())

    def elapsed_s(self) -> float:
        """Seconds since the start."""
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


def retried(call: Call, retries: int, check: Callable[[], None]) -> Conversation[Any]:
    """Make a call, and repeat it while the connection fails or the server is unavailable.

    Args:
        call: Its own timeout bounds each attempt.
        retries: Most attempts after the first one.
        check: Called before each retry; raises if the client was closed meanwhile.

    Raises:
        PyTritonClientError: Of the last attempt, or of the check.
    """
    backoff, attempt = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), 0
    while True:
        try:
            return (yield call)
        except (PyTritonClientConnectionError, PyTritonClientServerUnavailableError) as error:
            if attempt == retries or isinstance(error, PyTritonClientTlsError):
                raise
        yield Sleep(random.uniform(_SHORTEST_PAUSE_S, backoff.next_s()))
        attempt += 1
        check()
