"""Bind a Python function as a model, and a real Triton Inference Server serves it.

::

    from pytriton.decorators import batch
    from pytriton.model_config import ModelConfig, Tensor
    from pytriton.triton import Triton

The submodules ``client``, ``model_config`` and ``triton`` are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from pytriton.distribution import warn_of_other

DISTRIBUTION = "pytriton"  # tells this file from that of another distribution
warn_of_other()

__all__ = ["client", "model_config", "triton"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # which take longer than all else here

    try:
        return version("pytriton")
    except PackageNotFoundError as error:
        raise AttributeError("a source tree that is not installed has no version") from error
