"""Calls of the model that gives back what it gets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pytriton.inprocess import Model, Tensor


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def echoed(model: Model, dtype: str, value: Any, **options: Any) -> Tensor:
    (response,) = model.infer(inputs={f"in_{dtype}": value}, **options)
    return response.outputs[f"out_{dtype}"]
