"""A bound model: its callables, their worker threads, and its files in the model repository."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytriton.decorators.batching import takes_joined_inputs
from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.model_config import ModelConfig, SequenceBatcher, Tensor
from pytriton.model_config.placement import check_callables, placed
from pytriton.model_config.triton_model_config import ResponseCache, TritonModelConfig, name_tensors
from pytriton.model_config.validation import check_combination, check_integer, validate
from pytriton.model_config.warmup_validation import check_warmup
from pytriton.server.repository import remove_model, write_model
from pytriton.worker.context import Binding, TritonContext, attach
from pytriton.worker.engine import make_engine
from pytriton.worker.inference import Inference, Options
from pytriton.worker.instance import Instance
from pytriton.worker.observation import Observation, ObservedInference
from pytriton.worker.results import is_async
from pytriton.worker.warmup import warm_up

MAX_BATCHES_IN_FLIGHT = 2**16  # each is a thread's or a task's worth of memory
MAX_NAME = 200  # it is a folder's name, with additions
MODEL_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}")

InferFunc = Callable[..., Any]


def check_name(name: str) -> None:
    """Raise PyTritonValidationError unless the server can serve a model under this name."""
    if not isinstance(name, str) or not MODEL_NAME.fullmatch(name) or not name.strip("."):
        raise PyTritonValidationError(
            f"model name {name!r}: use 1 to {MAX_NAME} letters, digits, dots, underscores and dashes, and not only dots"
        )


def callables(infer_func: InferFunc | Sequence[InferFunc]) -> list[InferFunc]:
    """The callables of a model, one per instance.

    Raises:
        PyTritonValidationError: Not a callable and not a non-empty sequence of callables.
    """
    functions = [infer_func] if callable(infer_func) else infer_func
    if not isinstance(functions, Sequence) or isinstance(functions, str) or not all(map(callable, functions)):
        raise PyTritonValidationError(f"infer_func is {infer_func!r}; give a callable, or a list of callables")
    if not functions:
        raise PyTritonValidationError("infer_func is an empty list; give one callable per model instance")
    return list(functions)


def describe(
    name: str, version: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor], config: ModelConfig, instances: int
) -> TritonModelConfig:
    """The configuration of a model as server, callables and clients see it.

    Raises:
        PyTritonValidationError: An output is optional, or something is of the wrong type.
        PyTritonBadParameterError: A value is out of range, or the version is not a positive integer.
    """
    for side, tensors in (("inputs", inputs), ("outputs", outputs)):
        if not isinstance(tensors, Sequence) or not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise PyTritonValidationError(f"{side} of model {name!r} must be a list of Tensor, not {tensors!r}")
    if not isinstance(config, ModelConfig):
        raise PyTritonValidationError(f"config of model {name!r} must be a ModelConfig, not {config!r}")
    if any(tensor.optional for tensor in outputs):
        raise PyTritonValidationError(f"model {name!r} has an optional output; only inputs may be optional")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise PyTritonBadParameterError(f"model_version of model {name!r} is {version!r}; give an integer above 0")
    check_integer("max_batches_in_flight", config.max_batches_in_flight, 1, MAX_BATCHES_IN_FLIGHT)
    described = TritonModelConfig(
        model_name=name,
        model_version=version,
        batching=config.batching,
        max_batch_size=config.max_batch_size,
        batcher=config.batcher,
        decoupled=config.decoupled,
        instance_groups=placed(config.instance_groups, instances),
        version_policy=config.version_policy,
        inputs=name_tensors(inputs, "INPUT"),
        outputs=name_tensors(outputs, "OUTPUT"),
        response_cache=ResponseCache(True) if config.response_cache else None,
    )
    validate(described)
    check_combination(described)
    check_callables(described, instances)
    check_warmup(config.model_warmup or (), described)
    return described


class Model:
    """One version of a model.

    Args:
        functions: One callable per instance.
        config: What server, callables and clients see.
        context: Shared by the callables of a ``Triton`` object.
        options: How the callables are called.
        observation: Who observes the batches; None is nobody.
        traced: Whether requests bring the server's trace context.
        native: Whether the native proxy serves it.

    Attributes:
        config: As given.
        loaded: Whether the server was asked to serve it, and not yet to stop.
    """

    def __init__(
        self,
        functions: Sequence[InferFunc],
        config: TritonModelConfig,
        context: TritonContext,
        options: Options,
        observation: Observation | None = None,
        traced: bool = False,
        native: bool = False,
    ) -> None:
        self.config = config
        self.loaded = False
        self._functions = functions
        self._context = context
        self._options = options
        self._observation = observation or Observation()
        self._traced = traced
        self._native = native
        self._instances: list[Instance] = []
        self._inferences: list[Inference] = []
        self._store: Path | None = None
        for function in functions:
            attach(function, context, config)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.config.model_name

    @property
    def version(self) -> int:
        """The version's number."""
        return self.config.model_version

    def check_beside(self, other: TritonModelConfig) -> None:
        """Raise unless ``other`` can be served next to this model.

        Raises:
            PyTritonInvalidOperationError: It has the same name and version; letter case does not count.
            PyTritonBadParameterError: It is another version of this model with another configuration.
        """
        if other.model_name.lower() != self.name.lower():
            return
        if other.model_version == self.version or other.model_name != self.name:
            raise PyTritonInvalidOperationError(
                f"model {self.name!r}, version {self.version}, is bound already; choose another name or version"
            )
        if replace(other, model_version=self.version) != self.config:
            raise PyTritonBadParameterError(
                f"version {other.model_version} of model {self.name!r} must have the tensors, configuration and number "
                f"of instances of version {self.version}; or bind it under another name"
            )

    def endpoints(self) -> str:
        """Where the model is served, as lines for the log."""
        path = f"/v2/models/{self.name}"
        return (
            f"Infer function available as model: `{path}`\n"
            f"  Status:         `GET  {path}/ready/`\n"
            f"  Model config:   `GET  {path}/config/`\n"
            f"  Inference:      `POST {path}/infer/`"
        )

    @property
    def started(self) -> bool:
        """Whether a server can load the model."""
        return bool(self._instances)

    def start(
        self,
        store: Path,
        sockets: Path,
        on_disconnect: Callable[[Model], None],
        on_unrecoverable: Callable[[], None],
    ) -> None:
        """Write the model's files and start its worker threads, so that the server can load it.

        Args:
            store: The model repository.
            sockets: Path of the sockets less their ``.<instance>`` suffix.
            on_disconnect: Called when the server's side of an instance has gone.
            on_unrecoverable: Called when a callable asks to stop the server.
        """
        self._store = store
        several = self.config.decoupled or any(map(is_async, self._functions))
        in_flight = self._options.max_batches_in_flight
        if isinstance(self.config.batcher, SequenceBatcher):
            in_flight = 1  # else the server sends the next request of a sequence before the one before it is answered
        write_model(store, self.config, sockets, in_flight if several else None, self._traced, self._native)
        for index, function in enumerate(self._functions):
            joined = takes_joined_inputs(function)
            binding = Binding(function, self.config, self._context)
            inference = ObservedInference(
                self._observation, function, self.config, self._options, on_unrecoverable, joined, binding
            )
            engine = make_engine(function, inference, several, f"pytriton-{self.name}-loop-{index}")
            self._inferences.append(inference)
            self._instances.append(Instance(f"{sockets}.{index}", binding, engine, lambda: on_disconnect(self)))
        for index in range(len(self._functions)):
            warm_up(f"{sockets}.{index}", self.config, self._options.warmup)

    def rebind(self, functions: Sequence[InferFunc]) -> None:
        """Have other callables answer the batches that come from now on.

        Raises:
            PyTritonValidationError: There are more or fewer than instances, or they are of another kind.
        """
        kinds = [is_async(function) for function in functions]
        if kinds != [is_async(function) for function in self._functions]:
            raise PyTritonValidationError(
                f"model {self.name!r} has {len(self._functions)} instances; rebind() takes as many callables, "
                "coroutine functions in place of coroutine functions and plain ones in place of plain ones. Unbind the "
                "model and bind it again to change that"
            )
        for function in functions:
            attach(function, self._context, self.config)
        started = zip(functions, self._instances, self._inferences, strict=False)  # nothing before start()
        for function, instance, inference in started:
            binding = Binding(function, self.config, self._context)
            instance.rebind(binding)
            inference.rebind(binding, takes_joined_inputs(function))
        self._detach()
        self._functions = list(functions)

    def _detach(self) -> None:
        """Let go of the callables, which may be large; calls that run know their model by themselves."""
        for function in self._functions:
            self._context.model_configs.discard(function, self.config)

    def is_served_beside(self, others: Iterable[Model]) -> bool:
        """Whether the version policy has the server serve this version; ``others`` may be of other models."""
        versions = [self.version, *(other.version for other in others if other.name == self.name)]
        return self.version in self.config.version_policy.served(versions)

    def is_alive(self) -> bool:
        """Whether every instance can serve."""
        return all(instance.is_alive() for instance in self._instances)

    def is_connected(self) -> bool:
        """Whether every instance has its proxy."""
        return all(instance.is_connected() for instance in self._instances)

    def was_dismissed(self) -> bool:
        """Whether the server has ended the proxies that are not there: none has died."""
        return all(instance.was_dismissed for instance in self._instances if not instance.is_connected())

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return min((instance.quiet_s() for instance in self._instances), default=math.inf)

    def queue_delay_s(self) -> float:
        """How long the server may hold a request back to fill a batch."""
        return self.config.batcher.max_queue_delay_microseconds / 1e6 if self.config.batcher else 0.0

    def wait_disconnected(self, deadline: float) -> bool:
        """Wait until no batch is in flight; False at the deadline, in :func:`time.monotonic` seconds."""
        return all(instance.wait_disconnected(max(0.0, deadline - time.monotonic())) for instance in self._instances)

    def disconnect(self) -> None:
        """End the worker threads, each when its callable has returned. From any thread."""
        for instance in list(self._instances):
            instance.close()

    def remove_files(self) -> None:
        """Remove the model's files; its proxies, if there are any, have read them."""
        if self._store is not None:
            remove_model(self._store, self.config)

    def close(self) -> None:
        """End the worker threads and remove the model's files."""
        self.disconnect()
        self._instances.clear()
        self._inferences.clear()
        self._detach()
        self.remove_files()
