"""Tensors that NumPy cannot hand over, lent to other libraries by DLPack: bfloat16, and memory of a GPU."""

from __future__ import annotations

import ctypes
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytriton.inprocess import DataType, InvalidArgumentError, MemoryBuffer, MemoryType, Tensor, UnsupportedError
from pytriton.inprocess.memory import describe

ADDRESS, BYTES = 1 << 40, 64
DELETER = 56  # where it lies in DLPack's structure of a managed tensor
LENT = [(MemoryType.CPU, DataType.BF16), (MemoryType.GPU, DataType.BF16), (MemoryType.GPU, DataType.FP32)]


class Owner:
    """Of memory that is not looked into."""


def lender_of(capsule: Any) -> Any:
    """Another library's tensor."""
    return SimpleNamespace(__dlpack__=lambda: capsule)


class Taken:
    """A capsule's tensor as other libraries take it: from then on they say when they have no more use for it."""

    def __init__(self, capsule: Any) -> None:
        get, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        self._address, self._name = get(capsule, b"dltensor"), b"used_dltensor"
        rename(capsule, self._name)

    def let_go(self) -> None:
        deleter = ctypes.c_void_p.from_address(self._address + DELETER).value
        assert deleter
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(self._address)


def tensor_in(memory_type: MemoryType, data_type: DataType, shape: tuple[int, ...], owner: object = None) -> Tensor:
    return Tensor(data_type, shape, MemoryBuffer(ADDRESS, memory_type, 3, BYTES, owner))


@pytest.mark.parametrize(("memory_type", "data_type"), LENT)
def test_a_capsule_that_nobody_takes_keeps_the_memory(memory_type: MemoryType, data_type: DataType):
    owner = Owner()
    gone = weakref.ref(owner)
    tensor = tensor_in(memory_type, data_type, (2, 4), owner)
    del owner
    capsule = tensor.__dlpack__(stream=1 if memory_type == MemoryType.GPU else None)
    found_type, shape, buffer = describe(lender_of(capsule))
    assert (buffer.data_ptr, found_type, shape) == (ADDRESS, data_type, (2, 4))
    assert (buffer.memory_type, buffer.memory_type_id) == (memory_type, 3)
    del tensor, buffer
    assert gone()
    del capsule
    assert not gone()


@pytest.mark.parametrize(("memory_type", "data_type"), [*LENT, (MemoryType.CPU, DataType.FP32)])
def test_a_capsule_keeps_the_tensor_that_it_came_from(memory_type: MemoryType, data_type: DataType):
    array = np.zeros(8, np.float64)
    tensor = Tensor(data_type, (2, 4), MemoryBuffer(array.ctypes.data, memory_type, 0, BYTES, array))
    gone = weakref.ref(tensor)
    capsule = tensor.__dlpack__()
    del tensor
    assert gone()
    del capsule
    assert not gone()


def test_an_array_and_a_tensor_keep_the_tensor_that_they_came_from():
    tensor = Tensor.from_dlpack(np.arange(8, dtype=np.int32))
    gone = weakref.ref(tensor)
    array, second = np.from_dlpack(tensor), Tensor.from_dlpack(tensor)
    assert second.memory_buffer.owner is tensor
    del tensor
    assert gone()
    del second
    assert gone()
    assert array.tolist() == [*range(8)]
    del array
    assert not gone()


def test_what_another_library_took_stays_until_it_lets_go():
    owner = Owner()
    gone = weakref.ref(owner)
    capsule = tensor_in(MemoryType.GPU, DataType.INT8, (BYTES,), owner).__dlpack__()
    del owner
    taken = Taken(capsule)
    del capsule
    assert gone()
    taken.let_go()
    assert not gone()


def test_what_is_lent_has_to_be_there_and_is_not_copied():
    with pytest.raises(InvalidArgumentError, match="takes 66 bytes, the memory has 64"):
        tensor_in(MemoryType.CPU, DataType.BF16, (33,)).__dlpack__()
    with pytest.raises(UnsupportedError, match="FP32 in GPU memory"):
        tensor_in(MemoryType.GPU, DataType.FP32, (2,)).__dlpack__(copy=True)
    with pytest.raises(InvalidArgumentError, match="DLPack has no tensors of BYTES"):
        tensor_in(MemoryType.CPU, DataType.BYTES, (2,)).__dlpack__()


def test_an_output_of_bfloat16_is_another_tensors_input():
    tensor = tensor_in(MemoryType.CPU, DataType.BF16, (2, 4))
    again = Tensor.from_dlpack(tensor)
    assert (again.data_ptr, again.data_type, again.shape) == (ADDRESS, DataType.BF16, (2, 4))
