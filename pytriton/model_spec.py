"""What is bound: the arguments of `bind`, checked, as the configuration of a model and options of its callables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.model_config import LatencyTarget, ModelConfig, Recording, Tensor
from pytriton.model_config.tensor import name_tensors
from pytriton.model_config.triton_model_config import ResponseCache, TritonModelConfig
from pytriton.model_config.validation import (
    check_batcher_of_proxy,
    check_integer,
    checked_copy,
    groups_of_callables,
    validate_for_bind,
)
from pytriton.options import integer
from pytriton.pool.inspection import tensors_of
from pytriton.pool.pool import Infer, ServedModel, Workers
from pytriton.pool.threads import workers_of
from pytriton.server.backends import uses_native
from pytriton.server.model_server import ServerCapabilities
from pytriton.worker.context import TritonContext
from pytriton.worker.inference import Options
from pytriton.worker.observation import Observation, traces

__all__ = ["ModelSpec", "describe"]

MAX_BATCHES_IN_FLIGHT = 2**16  # each is a thread's or a task's worth of memory
MAX_RANK = 64
MAX_NAME = 200  # it is a folder's name, with additions
MODEL_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}")


def check_name(name: object) -> None:
    """Check the name of a model.

    Raises:
        PyTritonValidationError: The server cannot use it.
    """
    if not isinstance(name, str) or not MODEL_NAME.fullmatch(name) or not name.strip("."):
        raise PyTritonValidationError(
            f"model name {name!r}: use 1 to {MAX_NAME} letters, digits, dots, underscores and dashes, and not only dots"
        )


def describe(
    name: str, version: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor], config: ModelConfig, instances: int
) -> TritonModelConfig:
    """The configuration of a model for server, callables and clients, checked.

    Raises:
        PyTritonValidationError: The server cannot use the name, an output is optional, or a type is wrong.
        PyTritonBadParameterError: A value is out of range, or the version is not a positive integer.
    """
    check_name(name)
    for side, tensors in (("inputs", inputs), ("outputs", outputs)):
        if not isinstance(tensors, Sequence) or not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise PyTritonValidationError(f"{side} of model {name!r} must be a list of Tensor, not {tensors!r}")
    if not isinstance(config, ModelConfig):
        raise PyTritonValidationError(f"config of model {name!r} must be a ModelConfig, not {config!r}")
    if any(tensor.optional for tensor in outputs):
        raise PyTritonValidationError(f"model {name!r} has an optional output; only inputs may be optional")
    if not integer().accepts(version):
        raise PyTritonBadParameterError(f"model_version of model {name!r} is {version!r}; give an integer above 0")
    if isinstance(config.batcher, LatencyTarget) and not config.batching:
        raise PyTritonBadParameterError(f"model {name!r} has a LatencyTarget, which needs batching=True")
    check_integer("max_batches_in_flight", config.max_batches_in_flight, 1, MAX_BATCHES_IN_FLIGHT)
    described = TritonModelConfig(
        model_name=name,
        model_version=version,
        batching=config.batching,
        max_batch_size=config.max_batch_size,
        batcher=config.batcher,
        decoupled=config.decoupled,
        instance_groups=groups_of_callables(config.instance_groups, instances),
        version_policy=config.version_policy,
        inputs=name_tensors(inputs, "INPUT"),
        outputs=name_tensors(outputs, "OUTPUT"),
        response_cache=ResponseCache(True) if config.response_cache else None,
        batch_cost=_batch_cost(name, config.batch_cost),
        max_batch_cost=config.max_batch_cost,
    )
    validate_for_bind(described, instances, config.model_warmup)
    return described


def _batch_cost(model: str, cost: object) -> tuple[str, int | None] | None:
    if cost is None or isinstance(cost, str):
        return None if cost is None else (cost, None)
    if isinstance(cost, (tuple, list)) and len(cost) == 2 and isinstance(cost[0], str):
        check_integer("the axis of batch_cost", cost[1], 0, MAX_RANK)
        return (cost[0], int(cost[1]))
    raise PyTritonBadParameterError(
        f'batch_cost of model {model!r} is {cost!r}; give the name of an input, or a pair such as ("input_ids", 1)'
    )


class ModelSpec(NamedTuple):
    """What :class:`Model` is made of."""

    workers: Workers
    served: ServedModel
    traced: bool
    native: bool

    @classmethod
    def of(
        cls,
        model_name: str | Infer | None,
        infer_func: Infer | None,
        inputs: Sequence[Tensor] | None,
        outputs: Sequence[Tensor] | None,
        model_version: int,
        config: ModelConfig | None,
        strict: bool,
        trace_config: list[str] | None,
        example: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        server: ServerCapabilities,
        context: TritonContext,
        observation: Observation,
        bound: Callable[[str], TritonModelConfig | None],
    ) -> ModelSpec:
        """That of the arguments of :meth:`pytriton.base.TritonBase.bind`, which raises the same.

        Args:
            server: The server that shall serve it.
            context: Shared by the callables of all models.
            bound: Returns the configuration of the model of a name that is bound, if there is one.
        """
        name, workers = _named(model_name, infer_func)
        config = ModelConfig() if config is None else checked_copy(config)
        workers.look_up(bound)
        instances = workers.instance_count()
        derived = tensors_of(name, model_version, workers, inputs, outputs, config, example)
        config = derived.config
        described = describe(name, model_version, derived.inputs, derived.outputs, config, instances)
        described.backend_parameters |= derived.parameters
        if derived.steps is not None:
            described.steps, described.instance_groups, described.instance_group = derived.steps, None, {}
        native = uses_native(config.proxy, ours=server.has_native_backend)
        if not native:
            check_batcher_of_proxy(described, "the Python proxy")
            server.check_python_backend()
        options = Options(
            strict,
            config.isolate_errors,
            config.send_traceback,
            config.max_batches_in_flight,
            config.model_warmup or (),
            server.forwards_headers,
        )
        traced = traces(name, trace_config, server.trace_config)
        trace = server.trace_config if trace_config is None else trace_config
        if not isinstance(config.record, (Recording, type(None))):
            raise PyTritonValidationError(f"record of model {name!r} must be a Recording, not {config.record!r}")
        served = ServedModel(described, context, options, observation, trace, server.listen_locally, config.record)
        return cls(workers, served, traced, native)


def _named(model_name: Any, infer_func: Any) -> tuple[str, Workers]:
    """The name and the callable that ``bind`` was given, of which the one may be in the other's place or missing."""
    if infer_func is None and not isinstance(model_name, str):
        model_name, infer_func = None, model_name
    if infer_func is None:
        raise PyTritonValidationError(f"model {model_name!r} has no infer_func; give bind() a callable")
    workers = workers_of(infer_func)
    return workers.model_name() if model_name is None else model_name, workers
