"""Calls of the model that gives back what it gets."""

from __future__ import annotations

from typing import Any

from pytriton.inprocess import Model, Tensor


def echoed(model: Model, dtype: str, value: Any, **options: Any) -> Tensor:
    (response,) = model.infer(inputs={f"in_{dtype}": value}, **options)
    return response.outputs[f"out_{dtype}"]
