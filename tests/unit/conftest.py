"""Fixtures shared by the unit tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.worker.context import Binding, TritonContext, attach, current_binding
from tests.unit.links import imported_proxy

# How long an example takes says more about the machine's other work than about ours.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

Bind = Callable[..., TritonModelConfig]


@pytest.fixture
def bind() -> Iterator[Bind]:
    """``bind(callable, inputs, outputs, **options)``: serve the callable in this thread until the test ends.

    Inputs and outputs are dicts from name to ``(shape, dtype)``; options are those of TritonModelConfig.
    """
    token = current_binding.set(None)

    def bound(target: Any, inputs: Any = None, outputs: Any = None, **options: Any) -> TritonModelConfig:
        config = TritonModelConfig(**{
            "model_name": "model",
            "inputs": _specs(inputs or {"x": ((-1,), np.float32)}),
            "outputs": _specs(outputs or {"y": ((-1,), np.float32)}),
            **options,
        })  # fmt: skip
        context = TritonContext()
        attach(target, context, config)
        current_binding.set(Binding(target, config, context))
        return config

    yield bound
    current_binding.reset(token)


@pytest.fixture(scope="module")
def proxy_model() -> Iterator[Any]:
    """The proxy's module ``model``, as in the server's stub."""
    with imported_proxy() as module:
        yield module


def _specs(tensors: Any) -> list[TensorSpec]:
    return [TensorSpec(name, shape, dtype) for name, (shape, dtype) in tensors.items()]
