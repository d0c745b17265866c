"""The tensors of a model whose callables remote workers have: a worker derives them, and tells them as JSON."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

from pytriton.cluster.models import RemoteModel
from pytriton.cluster.options import WorkerListener
from pytriton.exceptions import PyTritonError, PyTritonValidationError, PyTritonWorkerError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.tensor import TensorSpec, name_tensors
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.inspection import call_example
from pytriton.signature.derive import Derived, derive
from pytriton.worker.observation import Observation

__all__ = ["derive_tensors", "derived_by_worker"]

CHECK_S = 0.5


def derived_by_worker(remote: WorkerListener, name: str, version: int, config: ModelConfig) -> Derived:
    """The tensors of a model, from the callable of the first worker that joins.

    Raises:
        PyTritonValidationError: They cannot be derived; the message says what to write.
        PyTritonWorkerError: No worker has joined in time, or the address cannot be listened on.
    """
    changed = threading.Event()
    asked = {"batching": config.batching, "max_batch_size": config.max_batch_size, "decoupled": config.decoupled}
    unknown = TritonModelConfig(name, version)
    model = RemoteModel(unknown, remote, {"derive": asked}, Observation(), changed.set)
    model.enter()
    try:
        deadline = time.monotonic() + remote.start_timeout_s
        while model.derived is None and time.monotonic() < deadline:
            changed.wait(CHECK_S)
            changed.clear()
    finally:
        model.leave()
    if model.derived is None:
        raise PyTritonWorkerError(
            f"model {name!r} has no inputs and outputs, and no worker has joined {remote.listen} within "
            f"{remote.start_timeout_s:g} s that could tell them; start one, or give both"
        )
    if "refused" in model.derived:
        raise PyTritonValidationError(
            f"inputs and outputs of model {name!r} cannot be derived: {model.derived['refused']}"
        )
    found = ModelConfigParser.from_dict(model.derived["config"])
    return Derived(
        [_declared(each) for each in found.inputs or ()],
        [_declared(each) for each in found.outputs or ()],
        replace(config, batching=found.batching, decoupled=found.decoupled),
        marks=found.backend_parameters,
    )


def _declared(spec: TensorSpec) -> Tensor:
    return Tensor(spec.shape, spec.dtype, spec.name, spec.optional, spec.labels, spec.format)


def derive_tensors(function: Any, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """In a worker: the configuration of a model with the tensors of its callable, or why they cannot be derived.

    Args:
        asked: ``batching``, ``max_batch_size`` and ``decoupled`` of the model.
    """
    try:
        derived = derive(function, ModelConfig(**asked), (), call_example)
        config = TritonModelConfig(
            name,
            batching=derived.config.batching,
            max_batch_size=derived.config.max_batch_size,
            decoupled=derived.config.decoupled,
            inputs=name_tensors(derived.inputs, "INPUT"),
            outputs=name_tensors(derived.outputs, "OUTPUT"),
            backend_parameters=derived.parameters,
        )
        return {"config": ModelConfigGenerator(config).get_config()}
    except PyTritonError as error:
        return {"refused": str(error)}
