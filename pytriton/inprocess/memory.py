"""Memory of tensors: buffers, allocators, and the devices that CuPy manages where it is installed."""

from __future__ import annotations

import ctypes
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from pytriton.inprocess.arguments import python_value
from pytriton.inprocess.dlpack import capsule_of, describe
from pytriton.inprocess.enums import DLDeviceType, MemoryType
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError, UnsupportedError

__all__ = [
    "HostMemory",
    "MemoryAllocator",
    "MemoryBuffer",
    "Place",
    "allocate",
    "choose_allocator",
    "copy",
    "default_memory_allocators",
    "has_gpu",
    "place_of",
]

Place = tuple[MemoryType, int]
"""A type of memory, and the number of its GPU, else 0."""

_DEVICES = {
    DLDeviceType.kDLCPU: MemoryType.CPU,
    DLDeviceType.kDLCUDA: MemoryType.GPU,
    DLDeviceType.kDLCUDAHost: MemoryType.CPU_PINNED,
}


@dataclass
class MemoryBuffer:
    """Memory that another object owns.

    Attributes:
        data_ptr: Its address.
        memory_type: Its type.
        memory_type_id: Number of its GPU; else 0.
        size: Bytes.
        owner: Kept alive as long as this object.
        capsule: Kept alive as well: the DLPack capsule that the memory came with, if any.
    """

    data_ptr: int
    memory_type: MemoryType
    memory_type_id: int
    size: int
    owner: Any
    capsule: Any = field(default=None, repr=False, compare=False)

    @staticmethod
    def from_dlpack(owner: Any) -> MemoryBuffer:
        """The memory of another library's tensor, without a copy.

        Args:
            owner: Has ``__dlpack__``; in C order, on the CPU or a GPU.

        Raises:
            InvalidArgumentError: It is anything else.
        """
        return MemoryBuffer.from_capsule(capsule_of(owner), owner)

    @staticmethod
    def from_capsule(capsule: Any, owner: Any) -> MemoryBuffer:
        """As :meth:`from_dlpack`, from the capsule of ``owner``."""
        found = describe(capsule)
        # The capsule of an array refers to the array alone, which owns its memory; others may refer to anything.
        kept = None if isinstance(owner, np.ndarray) else capsule
        return MemoryBuffer(found.data_ptr, _DEVICES[found.device], found.device_id, found.size, owner, kept)

    @staticmethod
    def from_array(array: np.ndarray[Any, Any]) -> MemoryBuffer:
        """The memory of an array in C order, without a copy."""
        return MemoryBuffer(array.__array_interface__["data"][0], MemoryType.CPU, 0, array.nbytes, array)


class HostMemory:
    """Memory that C++ allocated; it is freed with this object."""

    __slots__ = ("_base", "_free")

    def __init__(self, base: int, free: Callable[[int], object]) -> None:
        self._base, self._free = base, free

    def __del__(self) -> None:
        self._free(self._base)


def place_of(device: object) -> Place:
    """The place that ``MemoryType.GPU``, ``(MemoryType.GPU, 1)``, ``(DLDeviceType.kDLCUDA, 1)`` or ``"gpu:1"`` names.

    Raises:
        InvalidArgumentError: It is none of those.
    """
    kind, number = device if isinstance(device, tuple) and len(device) == 2 else (device, 0)
    if isinstance(device, str):
        name, colon, digits = device.partition(":")
        kind = MemoryType.__members__.get(name.upper())
        number = int(digits) if digits.isdecimal() else -1 if colon else 0
    if isinstance(kind, DLDeviceType):
        kind = _DEVICES[kind]
    number = python_value(number)
    if not isinstance(kind, MemoryType) or not isinstance(number, int) or number < 0:
        raise InvalidArgumentError(
            f"{device!r} is no kind of memory; give a MemoryType, 'cpu', 'cpu_pinned', 'gpu' or 'gpu:<number>'"
        )
    return kind, number


def allocate(size: int, place: Place) -> MemoryBuffer:
    """Allocate so many bytes.

    Raises:
        UnsupportedError: CuPy, a driver or that GPU is missing, or its memory is full.
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


def copy(buffer: MemoryBuffer, size: int, place: Place) -> MemoryBuffer:
    """A copy of a buffer's first bytes in a place; errors as :func:`allocate`."""
    places = [place, (buffer.memory_type, buffer.memory_type_id)]
    gpus = [each for each in places if each[0] == MemoryType.GPU]
    cuda = _cuda(gpus[0]) if gpus else None  # an error comes before anything is allocated
    made = allocate(size, place)
    if cuda is None:
        ctypes.memmove(made.data_ptr, buffer.data_ptr, size)
        return made
    try:
        with cuda.Device(gpus[0][1]):
            cuda.runtime.memcpy(made.data_ptr, buffer.data_ptr, size, cuda.runtime.memcpyDefault)
            cuda.runtime.deviceSynchronize()  # the copy may be read on any stream
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


class MemoryAllocator(ABC):
    """Allocates buffers of outputs. Several threads of the server may call it at the same time."""

    @abstractmethod
    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
        """A buffer of at least ``size`` bytes, which may be 0. It need not be in the memory that is asked for.

        An exception fails the response.
        """


class _HostAllocator(MemoryAllocator):
    """Ordinary memory, whatever is asked for."""

    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
        return allocate(size, (MemoryType.CPU, 0))


class _GpuAllocator(MemoryAllocator):
    """Memory of a GPU, from CuPy."""

    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
        return allocate(size, (MemoryType.GPU, memory_type_id))


_host = _HostAllocator()

#: Allocators of outputs by the type of memory that a request asks for. They may be replaced or deleted.
default_memory_allocators: dict[MemoryType, MemoryAllocator] = {
    MemoryType.CPU: _host,
    MemoryType.CPU_PINNED: _host,
    MemoryType.GPU: _GpuAllocator(),
}


def choose_allocator(allocator: MemoryAllocator | None, place: Place | None) -> MemoryAllocator | None:
    """The allocator of a request's outputs; None: C++ allocates ordinary memory.

    Args:
        allocator: The request's own.
        place: Where the request wants outputs, if it says so.

    Raises:
        InvalidTypeError: ``allocator`` is not an allocator.
        InvalidArgumentError: There is no allocator for that memory.
    """
    if allocator is not None:
        if not callable(getattr(allocator, "allocate", None)):
            raise InvalidTypeError(f"output_memory_allocator is {allocator!r:.200}; give a MemoryAllocator")
        return allocator
    memory_type = MemoryType.CPU if place is None else place[0]
    default = default_memory_allocators.get(memory_type)
    if default is _host:
        return None
    if default is None or (isinstance(default, _GpuAllocator) and not has_gpu()):
        raise InvalidArgumentError(
            f"nothing allocates outputs in memory of the kind {memory_type.name}: give an output_memory_allocator, or "
            "add one to default_memory_allocators; for memory of GPUs, install CuPy: pip install 'pytriton[cuda]'"
        )
    return default
