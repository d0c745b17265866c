"""Bind a Python function as a model, and a real Triton Inference Server serves it.

::

    from pytriton.decorators import batch
    from pytriton.model_config import ModelConfig, Tensor
    from pytriton.triton import Triton

The submodules ``client``, ``model_config`` and ``triton`` are imported when first used.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["client", "model_config", "triton"]

with suppress(PackageNotFoundError):
    __version__ = version("pytriton")


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
