"""What makes the Python backend's tensors right under NumPy 2, without the backend's stub."""

import ctypes
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MethodType

import numpy as np
import pytest

from pytriton.python_proxy import abi
from pytriton.python_proxy.abi import DTYPES, FLAGS_OFFSET, Descriptor, adapt, check_layout, interleave

numpy_2 = pytest.mark.skipif(not abi.IS_NUMPY_2, reason="the stub is right under NumPy 1")
numpy_1 = pytest.mark.skipif(abi.IS_NUMPY_2, reason="NumPy 2 has a table for the stub alone")


class Utilities:
    """Stands in for ``triton_python_backend_utils``."""

    def __init__(self):
        self.Tensor = type("Tensor", (), {"__init__": StubConstructor(self), "from_dlpack": staticmethod(take_capsule)})

    @staticmethod
    def deserialize_bytes_tensor(encoded):
        return np.array([bytes(encoded)], object)

    @staticmethod
    def serialize_byte_tensor(array):
        return interleave(np.array([str(element).encode() for element in array.ravel()], object))


def take_capsule(name, capsule):
    """Stands in for the stub's ``Tensor.from_dlpack``: what it takes, it gives a name that NumPy does not know."""
    if name == "refused":
        raise ValueError(name)
    set_name = ctypes.pythonapi.PyCapsule_SetName
    set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
    set_name(capsule, STUBS_NAME)
    return name, capsule


STUBS_NAME = b"used_dlpack"


class StubConstructor:
    """Stands in for the constructor of the stub's tensors: it reads the item size where NumPy 1 has it."""

    def __init__(self, utilities):
        self.utilities = utilities

    def __get__(self, instance, owner):
        return self if instance is None else MethodType(self, instance)

    def __call__(self, tensor, name, array):
        tensor.name, tensor.shape = name, array.shape
        if array.dtype.kind in "OS":
            array = self.utilities.serialize_byte_tensor(array)
        item_size = ctypes.c_int32.from_address(id(array.dtype) + FLAGS_OFFSET).value
        tensor.array, tensor.data = array, array.tobytes()[: array.size * item_size]


@pytest.fixture
def utilities(monkeypatch):
    monkeypatch.setattr(abi, "_make_arrays_safe", lambda: None)  # else this process' NumPy would be changed
    utilities = Utilities()
    adapt(utilities, utilities.Tensor)
    return utilities


@numpy_2
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_descriptor_shows_its_item_size_only_while_it_is_entered(dtype):
    descriptor = Descriptor(dtype)
    assert descriptor.flags.value == dtype.flags == 0
    with descriptor:
        assert descriptor.flags.value == dtype.itemsize
        assert dtype.flags == 0  # the dtype that everybody shares
    assert descriptor.flags.value == 0


@numpy_2
def test_a_descriptor_is_a_private_copy_of_its_dtype():
    dtype = np.dtype(np.float32)
    descriptor = Descriptor(dtype)
    assert descriptor.dtype == dtype
    assert descriptor.dtype is not dtype
    assert np.empty(1, np.float32).dtype is not descriptor.dtype


@numpy_2
def test_a_numpy_of_another_layout_is_refused_with_what_to_do(monkeypatch):
    check_layout()
    monkeypatch.setattr(abi, "ITEM_SIZE_OFFSET", FLAGS_OFFSET)
    utilities = Utilities()
    with pytest.raises(RuntimeError, match=r"cannot be adapted to NumPy \d.* Install numpy<2"):
        adapt(utilities, utilities.Tensor)


@numpy_2
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3, 1)], ids=str)
def test_numbers_reach_the_stub(utilities, dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    made = utilities.Tensor("y", array)
    assert (made.name, made.shape, made.data) == ("y", shape, array.tobytes())
    assert made.array.dtype == dtype
    assert made.array.dtype.flags == 0


@numpy_2
def test_rows_of_a_larger_array_reach_the_stub(utilities):
    array = np.arange(12, dtype=np.int32).reshape(4, 3)
    made = utilities.Tensor("y", array[1:3])
    assert (made.shape, made.data) == ((2, 3), array[1:3].tobytes())


@numpy_2
def test_arrays_in_any_order_reach_the_stub(utilities):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    made = utilities.Tensor("y", array.T)
    assert (made.shape, made.data) == ((3, 2), array.T.tobytes())


@numpy_2
def test_a_read_only_array_reaches_the_stub(utilities):
    array = np.arange(3)
    array.flags.writeable = False
    assert utilities.Tensor("y", array).data == array.tobytes()


@numpy_2
@pytest.mark.parametrize("strings", [[b"a", b"", b"\0b"], []])
def test_strings_reach_the_stub_encoded(utilities, strings):
    array = np.array(strings, object)
    assert utilities.Tensor("y", array).data == interleave(array)


@numpy_2
def test_texts_reach_the_stub_encoded_by_the_module_of_the_server(utilities):
    assert utilities.Tensor("y", np.array(["a", "bc"], object)).data == interleave(np.array([b"a", b"bc"], object))


@numpy_2
def test_bytes_of_a_fixed_width_reach_the_stub_encoded(utilities):
    array = np.array([[b"a", b"bc"], [b"", b"d"]])
    assert utilities.Tensor("y", array.T).data == interleave(array.T)
    assert utilities.Tensor("y", np.empty(0, "S3")).data == b""


@numpy_2
def test_a_model_may_serialize_strings_itself(utilities):
    encoded = utilities.serialize_byte_tensor(np.array([b"a"], object))
    assert encoded == Utilities.serialize_byte_tensor(np.array([b"a"], object))


@numpy_2
def test_what_is_no_tensor_is_left_to_the_stub(utilities):
    array = np.array(["2020-01-01"], "datetime64[D]")
    assert utilities.Tensor("y", array).array is array


@numpy_2
def test_threads_make_tensors_at_the_same_time(utilities):
    arrays = [np.arange(number % 5, dtype=np.int64) for number in range(200)]
    strings = [np.array([b"a" * number], object) for number in range(200)]
    with ThreadPoolExecutor(4) as pool:
        for given, made in zip(arrays, pool.map(partial(utilities.Tensor, "y"), arrays), strict=True):
            assert made.data == given.tobytes()
        for given, made in zip(strings, pool.map(partial(utilities.Tensor, "y"), strings), strict=True):
            assert made.data == interleave(given)


@numpy_2
def test_a_stub_is_adapted_once(utilities):
    adapted = utilities.Tensor.__init__
    adapt(utilities, utilities.Tensor)
    assert utilities.Tensor.__init__ is adapted


def test_strings_are_preceded_by_their_lengths():
    strings = np.array([[b"ab", b""], [b"\0", "ä".encode()]], object)
    assert interleave(strings) == struct.pack("<I2sIIcI2s", 2, b"ab", 0, 1, b"\0", 2, "ä".encode())


@pytest.mark.parametrize("lend", [lambda array: array, lambda array: array.__dlpack__()], ids=["array", "capsule"])
def test_a_capsule_of_numpy_is_named_as_taken(utilities, lend):
    name, capsule = utilities.Tensor.from_dlpack("y", lend(np.arange(6).reshape(2, 3).T))
    assert name == "y"
    assert "used_dltensor" in repr(capsule)


@numpy_2
def test_an_array_in_c_order_is_lent_without_a_capsule(utilities):
    for array in (np.arange(3), np.empty((3, 0)), np.arange(8)[::4][:1], np.broadcast_to(np.ones(2), (1, 2))):
        assert utilities.Tensor.from_dlpack("y", array).data == array.tobytes()


def test_a_capsule_that_is_not_taken_stays_as_it_is(utilities):
    capsule = np.arange(3).__dlpack__()
    with pytest.raises(ValueError, match="refused"):
        utilities.Tensor.from_dlpack("refused", capsule)
    assert '"dltensor"' in repr(capsule)


def test_tensors_made_with_numpy_1_need_nothing(monkeypatch):
    monkeypatch.setattr(abi, "IS_NUMPY_2", False)
    monkeypatch.setattr(abi, "_make_arrays_safe", lambda: None)
    utilities = Utilities()
    before = utilities.Tensor.__init__
    adapt(utilities, utilities.Tensor)
    assert utilities.Tensor.__init__ is before


def test_lent_inputs_are_views_of_the_memory_that_an_array_was_made_of():
    # As pybind11 does it: an array of memory that nobody owns is copied, by the function in the table.
    script = """
import ctypes
import numpy as np
from pytriton.python_proxy import abi

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
from pytriton.python_proxy import abi

class Utilities:
    serialize_byte_tensor = None

    @staticmethod
    def deserialize_bytes_tensor(encoded):
        return np.array([bytes(encoded)], object)

class Tensor:
    from_dlpack = None

abi.adapt(Utilities, Tensor)
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
array = new_array((2, 3), (0, 0))  # the strides of an item size of 0
print(array.tolist(), array.strides, np.zeros((2, 2)).T.strides)
"""
    assert adapted(script) == "[[0, 1, 2], [3, 4, 5]] (12, 4) (8, 16)\n"


@numpy_1
def test_other_extensions_get_the_strides_that_they_ask_for():
    script = """
array = new_array((3, 2), (4, 12))  # as libraries of linear algebra have their matrices
print(array.tolist(), array.strides)
"""
    assert adapted(script) == "[[0, 3], [1, 4], [2, 5]] (4, 12)\n"


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
strings = Utilities.deserialize_bytes_tensor(b"ab")
assert type(strings.reshape((1, 1))) is np.ndarray
print(strings.reshape((1, 1)).tolist(), strings.reshape((2**32, 2**32)).shape == abi.IMPOSSIBLE_SHAPE)
"""
    assert adapted(script) == "[[b'ab']] True\n"
