"""A callable with all that answers batches with it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytriton.decorators.batching import whole_batch_form
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.worker.context import Binding, TritonContext
from pytriton.worker.failures import FailureLog
from pytriton.worker.inference import Inference, Options
from pytriton.worker.instance import Instance, make_executor
from pytriton.worker.interfaces import Executor, ListenLocally
from pytriton.worker.observation import Observation

__all__ = ["Served", "ServedCallable"]


@dataclass(frozen=True)
class Served:
    """What the callables of one model have in common.

    Attributes:
        config: Of the model.
        context: Shared by the callables of a ``Triton`` object.
        options: How the callables are called.
        observation: Who observes the batches.
        trace_config: Of the server that traces the requests.
        offer: Has proxies in this process connect without a socket.
        failures: What the callables do wrong.
    """

    config: TritonModelConfig
    context: TritonContext
    options: Options
    observation: Observation
    trace_config: Sequence[str] | None = None
    offer: ListenLocally | None = None
    failures: FailureLog = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "failures", FailureLog(self.config.model_name))


class ServedCallable:
    """Answers the batches of one model instance with a callable, which may be replaced.

    Args:
        function: The callable.
        served: The model.
        several: Whether the proxy sends batches before earlier ones are answered.
        name: Of the instance, for threads.
        on_unrecoverable: Called when the callable asks to stop the server.
    """

    def __init__(
        self, function: Any, served: Served, several: bool, name: str, on_unrecoverable: Callable[[], None]
    ) -> None:
        self._served = served
        self.binding = Binding(function, served.config, served.context)
        self._inference = Inference(
            function,
            served.config,
            served.options,
            on_unrecoverable,
            whole_batch_form(function),
            self.binding,
            served.failures,
            served.observation,
        )
        self.engine: Executor = make_executor(function, self._inference, several, name)
        self._instance: Instance | None = None

    def listen(
        self,
        path: str,
        on_disconnect: Callable[[], None],
        on_connect: Callable[[], None] = lambda: None,
        inherited: socket.socket | None = None,
    ) -> Instance:
        """Wait for the proxy; arguments are those of Instance."""
        offer = self._served.offer
        self._instance = Instance(path, self.binding, self.engine, on_disconnect, on_connect, inherited, offer)
        return self._instance

    def rebind(self, function: Any) -> None:
        """Have another callable answer the batches that come from now on."""
        self.binding = Binding(function, self._served.config, self._served.context)
        if self._instance is not None:
            self._instance.rebind(self.binding)
        self._inference.rebind(self.binding, whole_batch_form(function))
