"""Bind a Python function as a model, and a real Triton Inference Server serves it.

::

    from pytriton import ModelConfig, Tensor, Triton, batch

The names below are imported from their modules when they are first used: a client does not load what serves models.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pytriton.distribution import warn_of_other

if TYPE_CHECKING:
    from pytriton import client, decorators, exceptions, model_config, triton
    from pytriton.client import (
        AsyncioDecoupledModelClient,
        AsyncioModelClient,
        DecoupledModelClient,
        FuturesModelClient,
        ModelClient,
    )
    from pytriton.composition.handle import ModelCallError, ModelHandle
    from pytriton.decorators import (
        ConstantPadder,
        PerSequence,
        batch,
        fill_optionals,
        first_value,
        group_by_keys,
        group_by_values,
        pad_batch,
        sample,
        sequence_states,
        triton_context,
        with_requests,
    )
    from pytriton.model_config import (
        DynamicBatcher,
        LatencyTarget,
        ModelConfig,
        ModelWarmup,
        QueuePolicy,
        SequenceBatcher,
        Tensor,
        TimeoutAction,
        WarmupInput,
    )
    from pytriton.pipeline import Pipeline, Step
    from pytriton.rest import RestConfig
    from pytriton.traffic import Shadow, Split
    from pytriton.triton import RemoteTriton, Triton, TritonConfig, TritonContext, TritonSecurityConfig
    from pytriton.workers import Processes, RayWorkers, RemoteWorkers

DISTRIBUTION = "pytriton"  # tells this file from that of another distribution
warn_of_other()

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "ConstantPadder",
    "DecoupledModelClient",
    "DynamicBatcher",
    "FuturesModelClient",
    "LatencyTarget",
    "ModelCallError",
    "ModelClient",
    "ModelConfig",
    "ModelHandle",
    "ModelWarmup",
    "PerSequence",
    "Pipeline",
    "Processes",
    "QueuePolicy",
    "RayWorkers",
    "RemoteTriton",
    "RemoteWorkers",
    "RestConfig",
    "SequenceBatcher",
    "Shadow",
    "Split",
    "Step",
    "Tensor",
    "TimeoutAction",
    "Triton",
    "TritonConfig",
    "TritonContext",
    "TritonSecurityConfig",
    "WarmupInput",
    "batch",
    "client",
    "decorators",
    "exceptions",
    "fill_optionals",
    "first_value",
    "group_by_keys",
    "group_by_values",
    "model_config",
    "pad_batch",
    "sample",
    "sequence_states",
    "triton",
    "triton_context",
    "with_requests",
]

_MODULES = ("client", "decorators", "exceptions", "model_config", "triton")
_HOMES = {
    "client": "AsyncioDecoupledModelClient AsyncioModelClient DecoupledModelClient FuturesModelClient ModelClient",
    "composition.handle": "ModelCallError ModelHandle",
    "decorators": """ConstantPadder PerSequence batch fill_optionals first_value group_by_keys group_by_values pad_batch
        sample sequence_states triton_context with_requests""",
    "model_config": """DynamicBatcher LatencyTarget ModelConfig ModelWarmup QueuePolicy SequenceBatcher Tensor
        TimeoutAction WarmupInput""",
    "pipeline": "Pipeline Step",
    "rest": "RestConfig",
    "triton": "RemoteTriton Triton TritonConfig TritonContext TritonSecurityConfig",
    "traffic": "Shadow Split",
    "workers": "Processes RayWorkers RemoteWorkers",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value  # so that this is not asked again
        return value
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # which take longer than all else here

    try:
        return version("pytriton")
    except PackageNotFoundError as error:
        raise AttributeError("a source tree that is not installed has no version") from error
