"""Memory of tensors: buffers, allocators, DLPack's capsules, and the devices that CuPy manages where it is installed.

Reading a capsule leaves it as it is: it keeps the tensor, and releases it when it is deleted.
"""

from __future__ import annotations

import ctypes
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, PYFUNCTYPE, addressof, c_char_p, c_int, c_int64, c_void_p, py_object, pythonapi
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from pytriton.inprocess.arguments import python_value
from pytriton.inprocess.capi import DataType, DLDeviceType, MemoryType
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError, UnsupportedError

__all__ = [
    "CODES",
    "HostMemory",
    "MemoryAllocator",
    "MemoryBuffer",
    "Place",
    "address_of",
    "allocate",
    "choose_allocator",
    "copy",
    "default_memory_allocators",
    "describe",
    "has_gpu",
    "make_capsule",
    "place_of",
]

Place = tuple[MemoryType, int]
"""A type of memory, and the number of its GPU, else 0."""

_DEVICES = {
    DLDeviceType.kDLCPU: MemoryType.CPU,
    DLDeviceType.kDLCUDA: MemoryType.GPU,
    DLDeviceType.kDLCUDAHost: MemoryType.CPU_PINNED,
}

NAME = b"dltensor"

# By type code (signed, unsigned, floating, bfloat, boolean) and number of bits.
DATA_TYPES = {
    (0, 8): DataType.INT8,
    (0, 16): DataType.INT16,
    (0, 32): DataType.INT32,
    (0, 64): DataType.INT64,
    (1, 8): DataType.UINT8,
    (1, 16): DataType.UINT16,
    (1, 32): DataType.UINT32,
    (1, 64): DataType.UINT64,
    (2, 16): DataType.FP16,
    (2, 32): DataType.FP32,
    (2, 64): DataType.FP64,
    (4, 16): DataType.BF16,
    (6, 8): DataType.BOOL,
}
CODES = {data_type: code for code, data_type in DATA_TYPES.items()}

# Capsules as objects, and as addresses: one that is being deleted is no object any more.
_pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_pointer_at = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_is_valid_at = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", pythonapi))
_new_capsule = PYFUNCTYPE(py_object, c_void_p, c_void_p, c_void_p)(("PyCapsule_New", pythonapi))
_name = ctypes.create_string_buffer(NAME)  # a capsule does not copy its name


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
        return describe(owner)[2]

    @staticmethod
    def from_array(array: np.ndarray[Any, Any]) -> MemoryBuffer:
        """The memory of an array in C order, without a copy."""
        return MemoryBuffer(address_of(array), MemoryType.CPU, 0, array.nbytes, array)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Address of an array's first element."""
    return int(array.__array_interface__["data"][0])


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


class _DefaultAllocator(MemoryAllocator):
    """Memory of a GPU, from CuPy, or ordinary memory, whatever is asked for."""

    def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
        return allocate(size, (MemoryType.GPU, memory_type_id) if self is _gpu else (MemoryType.CPU, 0))


_host, _gpu = _DefaultAllocator(), _DefaultAllocator()

#: Allocators of outputs by the type of memory that a request asks for. They may be replaced or deleted.
default_memory_allocators: dict[MemoryType, MemoryAllocator] = {
    MemoryType.CPU: _host,
    MemoryType.CPU_PINNED: _host,
    MemoryType.GPU: _gpu,
}


def choose_allocator(allocator: MemoryAllocator | None, place: Place | None) -> MemoryAllocator | None:
    """The allocator of a request's outputs; None: C++ allocates ordinary memory.

    Args:
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
    if default is None or (default is _gpu and not has_gpu()):
        raise InvalidArgumentError(
            f"nothing allocates outputs in memory of the kind {memory_type.name}: give an output_memory_allocator, or "
            "add one to default_memory_allocators; for memory of GPUs, install CuPy: pip install 'pytriton[cuda]'"
        )
    return default


# Tensors of other libraries


class DLTensor(ctypes.Structure):
    """DLPack's C structure for a tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def describe(owner: Any) -> tuple[DataType, tuple[int, ...], MemoryBuffer]:
    """Data type, shape and memory of another library's tensor, without a copy.

    Raises:
        InvalidTypeError: It has no ``__dlpack__``.
        InvalidArgumentError: Its library refuses, the server does not support its dtype or device, or it is not in C
            order.
    """
    if not hasattr(owner, "__dlpack__"):
        raise InvalidTypeError(f"{type(owner).__name__} has no __dlpack__; give an array or a Tensor")
    try:
        capsule = owner.__dlpack__()
    except Exception as error:  # each library has its own
        raise InvalidArgumentError(f"{type(owner).__name__} cannot be used by DLPack: {error}") from error
    try:
        tensor = DLTensor.from_address(_pointer_of(capsule, NAME))
    except ValueError as error:
        raise InvalidArgumentError(f"{capsule!r:.200} is no unused capsule of DLPack: {error}") from error
    shape = tuple(tensor.shape[: tensor.rank])
    data_type = DATA_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if data_type is None:
        raise InvalidArgumentError(
            f"the server has no data type for DLPack's code {tensor.code} with {tensor.bits} bits, {tensor.lanes} lanes"
        )
    if tensor.device not in {*DLDeviceType}:
        raise InvalidArgumentError(f"the tensor lies on DLPack's device {tensor.device}; move it to the CPU or a GPU")
    if tensor.strides and prod(shape) and not _in_c_order(shape, tensor.strides[: tensor.rank]):
        raise InvalidArgumentError("the tensor is not in C order; make a contiguous copy of it")
    size = prod(shape) * tensor.bits // 8
    address = (tensor.data or 0) + tensor.byte_offset
    # The capsule of an array refers to the array alone, which owns its memory; others may refer to anything.
    kept = None if isinstance(owner, np.ndarray) else capsule
    memory_type = _DEVICES[DLDeviceType(tensor.device)]
    return data_type, shape, MemoryBuffer(address, memory_type, tensor.device_id, size, owner, kept)


def _in_c_order(shape: tuple[int, ...], strides: list[int]) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


class _Managed(ctypes.Structure):
    """DLPack's C structure for a tensor with an owner."""

    _fields_ = (("tensor", DLTensor), ("context", c_void_p), ("deleter", c_void_p))


_exported: dict[int, tuple[_Managed, Any, Any]] = {}  # by address: the structure, its shape and its owner


def _delete(managed: int) -> None:
    """The library that took the tensor needs it no more. Called on any thread."""
    _exported.pop(managed, None)


def _delete_capsule(capsule: int) -> None:
    """A capsule that was never taken is deleted; a library that takes one renames it."""
    if _is_valid_at(capsule, NAME):
        _exported.pop(_pointer_at(capsule, NAME), None)


_deleter, _destructor = CFUNCTYPE(None, c_void_p)(_delete), CFUNCTYPE(None, c_void_p)(_delete_capsule)


def make_capsule(data_ptr: int, device: tuple[int, int], data_type: DataType, shape: Sequence[int], owner: Any) -> Any:
    """A capsule of memory in C order that is not copied, and whose owner is kept until nothing uses it.

    Args:
        device: DLPack's type and number.
        data_type: One of CODES.
    """
    code, bits = CODES[data_type]
    lengths = (c_int64 * len(shape))(*shape)
    tensor = DLTensor(data_ptr, *device, len(shape), code, bits, 1, lengths)
    managed = _Managed(tensor, None, ctypes.cast(_deleter, c_void_p))
    _exported[addressof(managed)] = managed, lengths, owner
    return _new_capsule(addressof(managed), addressof(_name), ctypes.cast(_destructor, c_void_p))
