"""Tensors for other libraries which NumPy cannot hand over: bfloat16, and memory of a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import CFUNCTYPE, PYFUNCTYPE, addressof, c_char_p, c_int, c_int64, c_void_p, py_object, pythonapi
from typing import Any

from pytriton.inprocess.dlpack import DATA_TYPES, NAME, DLTensor
from pytriton.inprocess.enums import DataType

__all__ = ["CODES", "lent"]

CODES = {data_type: code for code, data_type in DATA_TYPES.items()}

# A capsule that ends is no object any more, but an address. Its name is not copied.
_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_is_valid = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", pythonapi))
_new = PYFUNCTYPE(py_object, c_void_p, c_void_p, c_void_p)(("PyCapsule_New", pythonapi))
_name = ctypes.create_string_buffer(NAME)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", c_void_p), ("deleter", c_void_p))


_lent: dict[int, tuple[_Managed, Any, Any]] = {}  # what others use: by its address, with shape and owner


def _take_back(managed: int) -> None:
    """Whoever took it has no more use for it. On any thread."""
    _lent.pop(managed, None)


def _end(capsule: int) -> None:
    """Those that were taken have another name now."""
    if _is_valid(capsule, NAME):
        _lent.pop(_pointer(capsule, NAME), None)


_deleter, _destructor = CFUNCTYPE(None, c_void_p)(_take_back), CFUNCTYPE(None, c_void_p)(_end)


def lent(data_ptr: int, device: tuple[int, int], data_type: DataType, shape: Sequence[int], owner: Any) -> Any:
    """A capsule of memory that is not copied.

    Args:
        data_ptr: Its address.
        device: Where it lies, as DLPack has it.
        data_type: One of CODES.
        shape: In C order.
        owner: Kept until nobody uses the memory.
    """
    code, bits = CODES[data_type]
    lengths = (c_int64 * len(shape))(*shape)
    tensor = DLTensor(data_ptr, *device, len(shape), code, bits, 1, lengths)
    managed = _Managed(tensor, None, ctypes.cast(_deleter, c_void_p))
    _lent[addressof(managed)] = managed, lengths, owner
    return _new(addressof(managed), addressof(_name), ctypes.cast(_destructor, c_void_p))
