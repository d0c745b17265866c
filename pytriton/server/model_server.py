"""The server of bound models: what it can do for them, and calls to it, from its start to its end.

::

    ModelServer                what a Triton object holds: calls over HTTP or gRPC
    ├── LaunchedServer         pytriton/server/launched_server.py: a process of ours
    ├── RemoteServer           pytriton/remote.py: another process launched it
    └── InprocessServer        pytriton/inprocess/triton.py: a library of this process
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pytriton.client.conversations import Call, Transport
from pytriton.client.exceptions import (
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
)
from pytriton.config import TritonConfig
from pytriton.constants import TRITON_LOCAL_IP
from pytriton.exceptions import PyTritonModelControlError
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.server.access import Access
from pytriton.server.announcement import announcement
from pytriton.server.installation import Installation
from pytriton.server.launch import metrics_address
from pytriton.server.statistics import ModelStatistics, parse_statistics

__all__ = ["ModelServer", "ServerCapabilities", "WaitDrained", "seconds_until"]

CALL_TIMEOUT_S = 600.0
ASK_AGAIN_S = 5.0
LEAST_CALL_S = 1.0
EXIT_TIMEOUT_S = 30.0
READY_POLL_S = 0.002
OWNER = "pytriton_owner"
HELD_STATES = {"READY", "LOADING", "UNLOADING"}
NOT_LOADED = ("is not found", "has no available versions")
MESSAGE_END = ";. \n"  # how the server ends its messages

WaitDrained = Callable[[float, Callable[[], bool]], bool]
"""As :meth:`pytriton.binding.ModelRegistry.wait_drained`, without the server."""


@dataclass(frozen=True)
class ServerCapabilities:
    """What ``bind`` has to know of a server. The defaults are for a server that another process launched.

    Attributes:
        has_native_backend: Whether the server has our backend, because this process launches it.
        forwards_headers: Whether the server may put headers among requests' parameters.
        trace_config: How the server traces requests, if that is known.
        caches: Whether the server keeps responses.
        limits: Whether instances wait for the resources of their rate limiters.
        host_policies: Names of the server's host policies; None if they are not known.
        metrics_address: The address at which metrics of the callables are served, if nothing else is asked for.
        check_python_backend: Raises PyTritonServerError if the server's Python backend is known to run no models.
        listen_locally: Has proxies in this process connect to a worker, as
            :data:`pytriton.worker.interfaces.ListenLocally`; None if no proxy runs in this process.
        cache_option: What to set for ``caches``.
        limit_option: What to set for ``limits``.
        host_policy_option: What to set for ``host_policies``.
    """

    has_native_backend: bool = False
    forwards_headers: bool = True
    trace_config: Sequence[str] | None = None
    caches: bool = True
    limits: bool = True
    host_policies: Collection[str] | None = None
    metrics_address: str = TRITON_LOCAL_IP
    check_python_backend: Callable[[], object] = lambda: None
    listen_locally: Callable[[str, Callable[[Any], bool]], Callable[[], None]] | None = None
    cache_option: str = "TritonConfig.cache_config"
    limit_option: str = "TritonConfig.rate_limit to 'execution_count'"
    host_policy_option: str = "TritonConfig.host_policy"

    @classmethod
    def of(cls, config: TritonConfig, installation: Installation) -> ServerCapabilities:
        """The capabilities of a server that this process launches."""
        return cls(
            has_native_backend=True,
            forwards_headers=bool(config.http_header_forward_pattern or config.grpc_header_forward_pattern),
            trace_config=config.trace_config,
            caches=bool(config.cache_config),
            limits=config.rate_limit == "execution_count",
            host_policies={policy.partition(",")[0] for policy in config.host_policy or ()},
            metrics_address=metrics_address(config),
            check_python_backend=installation.python_backend,
        )

    def ignored_options(self, model: TritonModelConfig) -> Iterator[str]:
        """Each option of a model that the server would silently ignore, as a sentence that says what to set."""
        if model.response_cache is not None and model.response_cache.enable and not self.caches:
            yield f"it asks for a response cache, but the server has none; set {self.cache_option}"
        groups = model.instance_groups or ()
        if any(group.rate_limiter for group in groups) and not self.limits:
            yield f"it has a rate limiter, but the server does not limit; set {self.limit_option}"
        if self.host_policies is not None:
            for name in sorted({group.host_policy for group in groups if group.host_policy} - {*self.host_policies}):
                yield (
                    f"it names the host policy {name!r}, which the server does not have; add it to "
                    f"{self.host_policy_option}"
                )


def seconds_until(deadline: float) -> float:
    """The time that a call to a server which may hang has before a deadline, in seconds; at least one.

    Args:
        deadline: In :func:`time.monotonic` seconds.
    """
    return max(LEAST_CALL_S, deadline - time.monotonic())


class ModelServer(ABC):
    """A server that reads the model repository which this process writes, called over HTTP or gRPC.

    All methods raise PyTritonModelControlError if the server refuses or cannot be reached.

    Attributes:
        id: Marks the models that this object loads, among those of others.
        is_shared: Whether others restart it and unload models, so that models which it has lost are loaded again until
            that works.
    """

    is_shared = False

    def __init__(self, access: Access) -> None:
        self._access = access
        self.url = access.public_url
        self.id = ""  # models of the server's own repositories have no mark

    def is_alive(self) -> bool:
        """Whether models can be loaded now."""
        return True

    def pid(self) -> int | None:
        """Process id of the server; None if it is unknown, or this process."""
        return None

    def load(self, name: str) -> None:
        """Load a model, or its new versions and configuration."""
        self._call("load_model", model_name=name)

    def load_others(self, bound: Collection[str]) -> None:  # noqa: B027  (most servers have no others)
        """Load the models that are not ``bound`` here, but may use those that are, if the server has any."""

    def announce_models(self) -> None:  # noqa: B027  (most servers say themselves what they have loaded)
        """Have checks of the server's health say that the models are there, if they do not say so already."""

    def unload(self, name: str, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Have a model refuse new requests and go once those in flight are answered; returns before it is gone."""
        self._call("unload_model", timeout_s, model_name=name)

    def is_model_ready(self, name: str, version: int | None = None) -> bool:
        """Whether the server can serve a version of a model, or any."""
        return bool(self._call("is_model_ready", model_name=name, model_version=str(version or "")))

    def is_own(self, name: str) -> bool:
        """Whether the server has loaded a model of this name, and it is the one that this object loaded."""
        try:
            config = self._call("get_model_config", model_name=name)
        except PyTritonModelControlError as error:
            if any(text in str(error) for text in NOT_LOADED):
                return False
            raise
        parameters = config.get("parameters") or {}
        return bool(parameters.get(OWNER, {}).get("string_value", "") == self.id)

    def announcement(self, config: TritonModelConfig) -> str:
        """Where a model is served, as lines for the log."""
        return announcement(self.url, config, self._access.inference_header)

    def models(self) -> dict[str, bool]:
        """The models of the server's repositories, and whether any version of each is ready."""
        return {name: "READY" in states for name, states in self.states().items()}

    def states(self) -> dict[str, set[str]]:
        """The models of the server's repositories, and the states of their versions, such as READY and UNLOADING."""
        found: dict[str, set[str]] = defaultdict(set)
        for (name, _), state in self.version_states().items():
            found[name].add(state)
        return found

    def version_states(self) -> dict[tuple[str, str], str]:
        """The state of each version of each model; a model that was never loaded has a version without a number."""
        index = self._call("get_model_repository_index")
        return {(entry["name"], entry.get("version", "")): entry.get("state", "") for entry in index}

    def are_unloaded(self, versions: Iterable[tuple[str, int]]) -> bool:
        """Whether models, by name and version, have gone: each goes when its last request is answered.

        The server counts an open gRPC stream as a request, and never stops to count some that were cancelled.
        """
        states = self.version_states()
        return not any(states.get((name, str(version))) in HELD_STATES for name, version in versions)

    def statistics(self, name: str | None) -> list[ModelStatistics]:
        """What the server has counted of a model, or with None of all, by name and version."""
        return parse_statistics(self._call("get_inference_statistics", model_name=name or ""))

    def is_ready(self) -> bool:
        """Whether the server answers, and is ready."""
        return self.wait_ready(0.0, lambda: True) is None

    def is_responding(self, timeout_s: float) -> bool:
        """Whether the server answers within ``timeout_s`` seconds."""
        return self.wait_ready(0.0, lambda: True, live=True, call_timeout_s=timeout_s) is None

    def wait_ready(
        self,
        timeout_s: float,
        keep_waiting: Callable[[], bool],
        *,
        live: bool = False,
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> str | None:
        """Wait until the server is live and ready.

        Args:
            timeout_s: For at most so long; 0 asks once.
            live: It is enough that the server is live: it need not have all its models ready.
            call_timeout_s: How long to wait for each answer, and no longer than some seconds if there is time to ask
                again: a server that hangs answers nothing.

        Returns:
            None, or what the server said last if it did not get ready.
        """
        deadline = time.monotonic() + timeout_s
        answer = "not ready"
        call_timeout_s = min(call_timeout_s, ASK_AGAIN_S) if timeout_s else call_timeout_s
        methods = ["is_server_live"] if live else ["is_server_live", "is_server_ready"]
        with closing(self._connect()) as transport:
            while keep_waiting():
                try:
                    if all(transport.call(Call(method, call_timeout_s)) for method in methods) and keep_waiting():
                        return None
                except PyTritonClientError as error:
                    answer = str(error)
                if time.monotonic() >= deadline:
                    break
                time.sleep(READY_POLL_S)
        return answer

    def refuse_connections(self) -> bool:
        """Refuse new HTTP connections from now on, and close each when its request is answered.

        Returns:
            Whether that is possible.
        """
        return False

    def wait_http_answered(self, deadline: float = -math.inf) -> bool:
        """After :meth:`refuse_connections`, wait until all requests over HTTP are answered.

        Args:
            deadline: In :func:`time.monotonic` seconds; by default this does not wait.

        Returns:
            False at the deadline; true also if connections cannot be refused.
        """
        return True

    def wait_received(self, models: Collection[str], timeout_s: float) -> Callable[[], bool]:
        """Before models are unloaded, wait for requests that the server is receiving, for a part of ``timeout_s``.

        Returns:
            Whether the server has handed all requests that it had then to these models, as far as can be seen.
        """
        return lambda: True

    @property
    def exit_timeout_s(self) -> float:
        """How long requests in flight may hold up the end."""
        return EXIT_TIMEOUT_S

    @abstractmethod
    def end(self, models: Sequence[str], wait_drained: WaitDrained, deadline: float) -> None:
        """Unload models, wait for their requests in flight, and end the server if it is ours.

        Args:
            wait_drained: Waits for the requests.
            deadline: For the requests, in :func:`time.monotonic` seconds.
        """

    def kill(self) -> None:  # noqa: B027  (some are not ours)
        """End the server at once if it is ours."""

    def check_ready(self, timeout_s: float, keep_waiting: Callable[[], bool] = lambda: True) -> None:
        """Wait as :meth:`wait_ready` does.

        Raises:
            PyTritonClientTimeoutError: The server was not ready in time; also a TimeoutError.
        """
        answer = self.wait_ready(timeout_s, keep_waiting)
        if answer is not None:
            raise self._not_ready(timeout_s, answer)

    def _not_ready(self, timeout_s: float, answer: str) -> PyTritonClientTimeoutError:
        return PyTritonClientTimeoutError(
            f"the server at {self.url} was not ready after {timeout_s:g} s; it last said: {answer}"
        )

    def _connect(self) -> Transport:
        """A transport to the server, which the caller closes."""
        return self._access.connect()

    def _call(self, method: str, timeout_s: float = CALL_TIMEOUT_S, **arguments: Any) -> Any:
        """Perform one :class:`~pytriton.client.conversations.Call` on a new connection."""
        try:
            with closing(self._connect()) as transport:
                return transport.call(Call(method, timeout_s, arguments))
        except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError) as error:
            raise PyTritonModelControlError(self._explain(str(error))) from error

    def _explain(self, message: str) -> str:
        """What the server, or the network, said, and what to do about it if that is known."""
        return message
