"""Buffers of tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytriton.inprocess.dlpack import capsule_of, describe
from pytriton.inprocess.enums import DLDeviceType, MemoryType
from pytriton.inprocess.exceptions import InvalidArgumentError
from pytriton.inprocess.parameters import plain

__all__ = [
    "HostMemory",
    "MemoryAllocator",
    "MemoryBuffer",
    "Place",
    "place_of",
]

Place = tuple[MemoryType, int]

_DEVICES = {
    DLDeviceType.kDLCPU: MemoryType.CPU,
    DLDeviceType.kDLCUDA: MemoryType.GPU,
    DLDeviceType.kDLCUDAHost: MemoryType.CPU_PINNED,
}


@dataclass
class MemoryBuffer:
    """Memory of somebody else's.

    Attributes:
        data_ptr: Its address.
        memory_type: Where it lies.
        memory_type_id: On which GPU; else 0.
        size: Bytes.
        owner: Kept alive as long as this.
        capsule: Kept alive, too: DLPack's hold on the memory, if it came by that.
    """

    data_ptr: int
    memory_type: MemoryType
    memory_type_id: int
    size: int
    owner: Any
    capsule: Any = field(default=None, repr=False, compare=False)

    @staticmethod
    def from_dlpack(owner: Any) -> MemoryBuffer:
        """The memory of another library's tensor, not a copy.

        Args:
            owner: Has ``__dlpack__``; in C order, on the CPU or a GPU.

        Raises:
            InvalidArgumentError: It is anything else.
        """
        return MemoryBuffer.from_capsule(capsule_of(owner), owner)

    @staticmethod
    def from_capsule(capsule: Any, owner: Any) -> MemoryBuffer:
        """As :meth:`from_dlpack`, from the capsule that ``owner`` gave."""
        found = describe(capsule)
        # An array's capsule only refers to the array, whose memory is its own; others may refer to anything.
        kept = None if isinstance(owner, np.ndarray) else capsule
        return MemoryBuffer(found.data_ptr, _DEVICES[found.device], found.device_id, found.size, owner, kept)

    @staticmethod
    def from_array(array: np.ndarray[Any, Any]) -> MemoryBuffer:
        """The memory of an array in C order, not a copy."""
        return MemoryBuffer(array.__array_interface__["data"][0], MemoryType.CPU, 0, array.nbytes, array)


class MemoryAllocator(ABC):
    """Makes buffers of outputs. It is called on the server's threads, on several at a time."""

    @abstractmethod
    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
        """A buffer of at least ``size`` bytes, which may be 0; the rest is a wish. An exception fails the response."""


class HostMemory:
    """Memory that C++ allocated, which goes with this object."""

    __slots__ = ("_base", "_free")

    def __init__(self, base: int, free: Callable[[int], object]) -> None:
        self._base, self._free = base, free

    def __del__(self) -> None:
        self._free(self._base)


def place_of(device: object) -> Place:
    """Where ``MemoryType.GPU``, ``(MemoryType.GPU, 1)``, ``(DLDeviceType.kDLCUDA, 1)`` or ``"gpu:1"`` lies.

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
    number = plain(number)
    if not isinstance(kind, MemoryType) or not isinstance(number, int) or number < 0:
        raise InvalidArgumentError(
            f"{device!r} is no kind of memory; give a MemoryType, 'cpu', 'cpu_pinned', 'gpu' or 'gpu:<number>'"
        )
    return kind, number
