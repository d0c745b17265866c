"""Tensors of other libraries, through DLPack: capsules are read, and made where NumPy cannot make them.

Reading leaves a capsule as it is: it keeps the tensor, and releases it when it is deleted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import CFUNCTYPE, PYFUNCTYPE, addressof, c_char_p, c_int, c_int64, c_void_p, py_object, pythonapi
from math import prod
from typing import Any, NamedTuple

from pytriton.inprocess.enums import DataType, DLDeviceType
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError

__all__ = ["CODES", "DLTensor", "Description", "capsule_of", "describe", "make_capsule"]

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


class Description(NamedTuple):
    """The content of a capsule; ``size`` in bytes."""

    data_ptr: int
    device: DLDeviceType
    device_id: int
    data_type: DataType
    shape: tuple[int, ...]
    size: int


def capsule_of(owner: Any) -> Any:
    """The capsule of another library's tensor.

    Raises:
        InvalidTypeError: It has no ``__dlpack__``.
        InvalidArgumentError: Its library refuses.
    """
    if not hasattr(owner, "__dlpack__"):
        raise InvalidTypeError(f"{type(owner).__name__} has no __dlpack__; give an array or a Tensor")
    try:
        return owner.__dlpack__()
    except Exception as error:  # each library has its own
        raise InvalidArgumentError(f"{type(owner).__name__} cannot be used by DLPack: {error}") from error


def describe(capsule: Any) -> Description:
    """The content of a capsule.

    Raises:
        InvalidArgumentError: The server does not support its dtype or device, or it is not in C order.
    """
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
    return Description(address, DLDeviceType(tensor.device), tensor.device_id, data_type, shape, size)


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
    """A capsule of memory that is not copied.

    Args:
        data_ptr: Address of the memory.
        device: DLPack's type and number of the device.
        data_type: One of CODES.
        shape: In C order.
        owner: Kept until nothing uses the memory.
    """
    code, bits = CODES[data_type]
    lengths = (c_int64 * len(shape))(*shape)
    tensor = DLTensor(data_ptr, *device, len(shape), code, bits, 1, lengths)
    managed = _Managed(tensor, None, ctypes.cast(_deleter, c_void_p))
    _exported[addressof(managed)] = managed, lengths, owner
    return _new_capsule(addressof(managed), addressof(_name), ctypes.cast(_destructor, c_void_p))
