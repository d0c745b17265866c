"""Memory of GPUs, and page-locked memory, which CuPy manages where it is installed."""

from __future__ import annotations

import ctypes
import importlib
from functools import lru_cache
from typing import Any

import numpy as np

from pytriton.inprocess.enums import MemoryType
from pytriton.inprocess.exceptions import UnsupportedError
from pytriton.inprocess.memory import MemoryBuffer, Place

__all__ = ["allocated", "copied", "has_gpu"]


def allocated(size: int, place: Place) -> MemoryBuffer:
    """Memory of so many bytes in a place.

    Raises:
        UnsupportedError: CuPy is missing, or a driver, or that GPU, or its memory is full.
    """
    memory_type, number = place
    if memory_type == MemoryType.CPU:
        return MemoryBuffer.from_array(np.empty(size, np.uint8))
    cuda = _cuda(place)
    try:
        if memory_type == MemoryType.CPU_PINNED:
            made = cuda.alloc_pinned_memory(size)
        else:
            with cuda.Device(number):
                made = cuda.alloc(size)
    except (RuntimeError, MemoryError) as error:
        raise UnsupportedError(f"{_named(place)} cannot be allocated: {error}") from error
    return MemoryBuffer(made.ptr, memory_type, number, size, made)


def copied(buffer: MemoryBuffer, size: int, place: Place) -> MemoryBuffer:
    """The first bytes of a buffer, copied to a place; errors as :func:`allocated`."""
    places = [place, (buffer.memory_type, buffer.memory_type_id)]
    gpus = [each for each in places if each[0] == MemoryType.GPU]
    cuda = _cuda(gpus[0]) if gpus else None  # before anything is allocated
    made = allocated(size, place)
    if cuda is None:
        ctypes.memmove(made.data_ptr, buffer.data_ptr, size)
        return made
    try:
        with cuda.Device(gpus[0][1]):
            cuda.runtime.memcpy(made.data_ptr, buffer.data_ptr, size, cuda.runtime.memcpyDefault)
            cuda.runtime.deviceSynchronize()  # whoever reads it may do so on any stream
    except RuntimeError as error:
        raise UnsupportedError(f"a copy from {_named(places[1])} to {_named(place)} failed: {error}") from error
    return made


@lru_cache(maxsize=1)
def has_gpu() -> bool:
    """Whether memory of GPUs can be allocated here."""
    try:
        return int(importlib.import_module("cupy").cuda.runtime.getDeviceCount()) > 0
    except (ImportError, RuntimeError):  # the latter without a driver
        return False


def _cuda(place: Place) -> Any:
    try:
        return importlib.import_module("cupy").cuda
    except ImportError as error:
        raise UnsupportedError(
            f"CuPy is needed for {_named(place)}, and is not there ({error}); "
            "install it with: pip install 'pytriton[cuda]'"
        ) from error


def _named(place: Place) -> str:
    memory_type, number = place
    return f"memory of GPU {number}" if memory_type == MemoryType.GPU else f"{memory_type.name} memory"
