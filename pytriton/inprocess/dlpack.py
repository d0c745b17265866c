"""DLPack's description of a tensor, as other libraries hand it over in a capsule.

The capsule is only looked into: whoever keeps it keeps the tensor, and its end gives the tensor back.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any, NamedTuple

from pytriton.inprocess.enums import DataType, DLDeviceType
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError

__all__ = ["DATA_TYPES", "NAME", "DLTensor", "Description", "capsule_of", "describe"]

NAME = b"dltensor"
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p

# By the type code: signed, unsigned, floating, bfloat, boolean; and the number of bits.
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


class DLTensor(ctypes.Structure):
    """Its description in C."""

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
    """What a capsule holds; ``size`` in bytes."""

    data_ptr: int
    device: DLDeviceType
    device_id: int
    data_type: DataType
    shape: tuple[int, ...]
    size: int


def capsule_of(owner: Any) -> Any:
    """The capsule of a tensor of another library.

    Raises:
        InvalidTypeError: It has no ``__dlpack__``.
        InvalidArgumentError: It gives none.
    """
    if not hasattr(owner, "__dlpack__"):
        raise InvalidTypeError(f"{type(owner).__name__} has no __dlpack__; give an array or a Tensor")
    try:
        return owner.__dlpack__()
    except Exception as error:  # each library has its own
        raise InvalidArgumentError(f"{type(owner).__name__} cannot be used by DLPack: {error}") from error


def describe(capsule: Any) -> Description:
    """What a capsule holds.

    Raises:
        InvalidArgumentError: It has a dtype that the server does not know, lies elsewhere, or not in C order.
    """
    try:
        tensor = DLTensor.from_address(_pointer(capsule, NAME))
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
