"""What makes the Python backend's tensors right under NumPy 2, without the backend's stub."""

import ctypes
import struct
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pytriton.proxy.abi import FLAGS_OFFSET, Descriptor, Tensors, interleave
from pytriton.proxy.tensors import DTYPES

numpy_2 = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="the stub is right under NumPy 1")


class Stub:
    """Stands in for ``triton_python_backend_utils``: its tensors read the item size where NumPy 1 has it."""

    def Tensor(self, name, array):
        if array.dtype.kind == "O":
            array = self.serialize_byte_tensor(array)
        item_size = ctypes.c_int32.from_address(id(array.dtype) + FLAGS_OFFSET).value
        return SimpleNamespace(name=name, shape=array.shape, data=array.tobytes()[: array.size * item_size])

    def serialize_byte_tensor(self, array):
        raise AssertionError("replaced by what knows the descriptors")


@numpy_2
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_descriptor_shows_its_item_size_only_while_it_is_entered(dtype):
    descriptor = Descriptor(dtype)
    flags = ctypes.c_uint32.from_address(id(descriptor.dtype) + FLAGS_OFFSET)
    assert flags.value == dtype.flags == 0
    with descriptor:
        assert flags.value == dtype.itemsize
        assert dtype.flags == 0  # the dtype that everybody shares
    assert flags.value == 0


@numpy_2
def test_a_descriptor_is_a_private_copy_of_its_dtype():
    dtype = np.dtype(np.float32)
    descriptor = Descriptor(dtype)
    assert descriptor.dtype == dtype
    assert descriptor.dtype is not dtype
    assert np.empty(1, np.float32).dtype is not descriptor.dtype


@numpy_2
def test_a_descriptor_of_another_layout_is_refused():
    with pytest.raises(RuntimeError, match=r"cannot be adapted to NumPy \d"):
        Descriptor(np.dtype([("a", "i4"), ("b", object)]))  # its flags do not fit the place


@numpy_2
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3, 1)], ids=str)
def test_numbers_reach_the_stub(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    made = Tensors(Stub())("y", array)
    assert (made.name, made.shape, made.data) == ("y", shape, array.tobytes())


@numpy_2
def test_rows_of_a_larger_array_reach_the_stub():
    array = np.arange(12, dtype=np.int32).reshape(4, 3)
    made = Tensors(Stub())("y", array[1:3])
    assert (made.shape, made.data) == ((2, 3), array[1:3].tobytes())


@numpy_2
def test_a_read_only_array_reaches_the_stub():
    array = np.arange(3)
    array.flags.writeable = False
    assert Tensors(Stub())("y", array).data == array.tobytes()


@numpy_2
@pytest.mark.parametrize("strings", [[b"a", b"", b"\0b"], []])
def test_strings_reach_the_stub_encoded(strings):
    array = np.array(strings, object)
    stub = Stub()
    made = Tensors(stub)("y", array)
    assert made.data == interleave(array)


def test_strings_are_preceded_by_their_lengths():
    strings = np.array([[b"ab", b""], [b"\0", "ä".encode()]], object)
    assert interleave(strings) == struct.pack("<I2sIIcI2s", 2, b"ab", 0, 1, b"\0", 2, "ä".encode())


def test_lent_inputs_are_views_of_the_memory_that_an_array_was_made_of():
    # As pybind11 does it: an array of memory that nobody owns is copied, by the function in the table.
    script = """
import ctypes
import numpy as np
from pytriton.proxy import abi

abi.lend_inputs()
capsule = __import__("numpy.core.multiarray", fromlist=["_ARRAY_API"])._ARRAY_API
table = ctypes.cast(ctypes.pythonapi.PyCapsule_GetPointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
new_copy = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_int)(table[abi.NEW_COPY])
array = np.arange(6)
before = __import__("sys").getrefcount(array)
made = new_copy(array, -1)
print(made is array, __import__("sys").getrefcount(array) - before, array.copy() is array)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True 1 False\n"


# What adapts the process, and calls the function in the table as pybind11 does.
ADAPTED = """
import ctypes
import numpy as np
from pytriton.proxy import abi

class Stub:
    class Tensor: ...

    @staticmethod
    def deserialize_bytes_tensor(encoded):
        return np.array([bytes(encoded)], object)

makes = abi.adapt(Stub)
capsule = __import__("numpy.core.multiarray", fromlist=["_ARRAY_API"])._ARRAY_API
table = ctypes.cast(ctypes.pythonapi.PyCapsule_GetPointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
kinds = [ctypes.py_object] * 2 + [ctypes.c_int] + [ctypes.c_void_p] * 3 + [ctypes.c_int, ctypes.c_void_p]
new_from_descr = ctypes.PYFUNCTYPE(ctypes.py_object, *kinds)(table[abi.NEW_FROM_DESCR])

def new_array(extents, strides=None):
    shape = (ctypes.c_ssize_t * len(extents))(*extents)
    strides = (ctypes.c_ssize_t * len(extents))(*strides) if strides else None
    descr = np.dtype(np.int32)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(descr))  # the function takes over a reference
    return new_from_descr(np.ndarray, descr, len(extents), shape, strides, ctypes.addressof(DATA), 0, None)

DATA = (ctypes.c_int32 * 6)(*range(6))
"""


def adapted(script):
    """What a script prints in a process of its own, whose NumPy is changed."""
    command = [sys.executable, "-W", "error", "-c", ADAPTED + script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@numpy_2
def test_arrays_made_through_the_replaced_table_are_contiguous_whatever_their_strides():
    script = """
assert isinstance(makes, abi.Tensors)
array = new_array((2, 3), (0, 0))  # the strides of an item size of 0
print(array.tolist(), array.strides, np.zeros((2, 2)).T.strides)
"""
    assert adapted(script) == "[[0, 1, 2], [3, 4, 5]] (12, 4) (8, 16)\n"


def test_a_shape_that_numpy_refuses_becomes_an_array_that_says_so():
    script = """
for extents in ((1, 2**61), (0, 2**62), (2**31, 2**31, 2**31), (1, -1)):
    arrays = [new_array(extents) for _ in range(1000)]
    assert all(array.shape == abi.IMPOSSIBLE_SHAPE for array in arrays), extents
print(new_array((2, 3)).tolist())
"""
    assert adapted(script) == "[[0, 1, 2], [3, 4, 5]]\n"


def test_strings_of_a_shape_that_numpy_refuses_become_an_array_that_says_so():
    script = """
strings = Stub.deserialize_bytes_tensor(b"ab")
assert type(strings.reshape((1, 1))) is np.ndarray
print(strings.reshape((1, 1)).tolist(), strings.reshape((2**32, 2**32)).shape == abi.IMPOSSIBLE_SHAPE)
"""
    assert adapted(script) == "[[b'ab']] True\n"
