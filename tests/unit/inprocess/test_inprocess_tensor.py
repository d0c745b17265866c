"""Tensors of a server in this process: what they are made of and into, and whose memory they use."""

from __future__ import annotations

import sys
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.inprocess import (
    DataType,
    DLDeviceType,
    InvalidArgumentError,
    InvalidTypeError,
    MemoryBuffer,
    MemoryType,
    Tensor,
    UnsupportedError,
)
from pytriton.inprocess.memory import place_of
from pytriton.inprocess.tensor import DATA_TYPES, DTYPES, tensor_of

OTHER_ORDER = ">" if sys.byteorder == "little" else "<"


class Foreign:
    """A tensor of another library."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


def test_an_array_is_not_copied():
    array = np.arange(6).reshape(2, 3)
    tensor = tensor_of(array)
    assert tensor.data_ptr == array.ctypes.data
    assert (tensor.size, tensor.shape, tensor.data_type) == (48, (2, 3), DataType.INT64)
    assert (tensor.memory_type, tensor.memory_type_id) == (MemoryType.CPU, 0)


def test_an_array_in_another_order_is_copied():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    for other in (array.T, array[:, ::2], array.astype(f"{OTHER_ORDER}i4")):
        assert np.from_dlpack(tensor_of(other)).tolist() == other.tolist()


@pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=lambda data_type: data_type.name)
def test_other_libraries_and_back_share_one_memory(data_type: DataType):
    array = np.ones((2, 3), DTYPES[data_type])
    tensor = Tensor.from_dlpack(Foreign(array))
    assert (tensor.data_type, tensor.shape, tensor.size) == (data_type, (2, 3), array.nbytes)
    back = np.from_dlpack(tensor)
    assert tensor.data_ptr == array.ctypes.data == back.ctypes.data
    assert back.dtype == array.dtype
    assert back.shape == array.shape


def test_a_tensor_of_another_library_lives_as_long_as_ours():
    tensor = Tensor.from_dlpack(Foreign(np.full(1000, 7)))
    assert np.from_dlpack(tensor).sum() == 7000


def test_what_another_library_made_for_a_tensor_lives_as_long_as_ours():
    class Maker:
        def __dlpack__(self) -> Any:
            array = np.full(1000, 7)
            made.append(weakref.ref(array))
            return array.__dlpack__()

    made: list[weakref.ref[Any]] = []
    tensor: Any = Tensor.from_dlpack(Maker())
    assert made[0]() is not None
    assert np.from_dlpack(tensor).sum() == 7000
    del tensor
    assert made[0]() is None


def test_memory_of_another_library_is_used_as_it_is():
    array = np.zeros(5, np.int16)
    buffer = MemoryBuffer.from_dlpack(array)
    assert buffer.owner is array
    assert (buffer.data_ptr, buffer.size, buffer.memory_type) == (array.ctypes.data, 10, MemoryType.CPU)


@pytest.mark.parametrize(
    "wrong", [3, Foreign(np.arange(6).reshape(2, 3).T), Foreign(np.arange(6)[::2]), Foreign(np.ones(2, np.complex64))]
)
def test_what_dlpack_or_the_server_cannot_take_is_refused(wrong: Any):
    with pytest.raises(InvalidArgumentError):
        Tensor.from_dlpack(wrong)
    with pytest.raises(InvalidArgumentError):
        MemoryBuffer.from_dlpack(wrong)


@given(st.lists(st.one_of(st.binary(), st.text().map(str.encode)), max_size=20))
def test_byte_strings_come_back(elements: list[bytes]):
    tensor = Tensor.from_bytes_array(elements)
    assert tensor.shape == (len(elements),)
    assert tensor.to_bytes_array().tolist() == elements


@pytest.mark.parametrize(
    "given",
    [[[b"ab\0", b"\0\0"]], [["ab\0", "\0\0"]], [[b"ab\0", "\0\0"]], np.array([[b"ab\0", b"\0\0"]], object)],
    ids=["bytes", "texts", "both", "objects"],
)
def test_nuls_at_the_end_of_texts_and_bytes_are_kept(given: Any):
    assert tensor_of(given).to_bytes_array().tolist() == [[b"ab\0", b"\0\0"]]


def test_nuls_at_the_end_of_a_scalar_are_kept():
    for scalar in (np.bytes_(b"a\0"), np.str_("a\0")):
        assert tensor_of(scalar).to_bytes_array().item() == b"a\0"


def test_texts_and_numbers_make_no_tensor():
    with pytest.raises(InvalidTypeError, match="an element is 1; give texts or bytes"):
        tensor_of(["a", 1])


def test_bytes_that_are_no_text_are_refused_as_one():
    with pytest.raises(InvalidArgumentError, match="no text in UTF-8"):
        Tensor.from_bytes_array([b"\xff"]).to_string_array()


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 has no StringDType")
def test_arrays_of_numpys_strings_of_any_length_are_taken():
    array = np.array([["a", "ä\0"], ["", "long " * 100]], np.dtypes.StringDType())
    assert tensor_of(array).to_string_array().tolist() == [["a", "ä"], ["", "long " * 100]]
    assert Tensor.from_string_array(array).to_bytes_array().tolist()[0] == [b"a", "ä\0".encode()]


def test_byte_strings_have_the_names_of_the_specification():
    assert Tensor.from_bytes_array(bytes_array=[b"a"]).to_bytes_array().tolist() == [b"a"]
    assert Tensor.from_string_array(string_array=["a"]).to_string_array().tolist() == ["a"]


@pytest.mark.parametrize("take", [Tensor.from_dlpack, MemoryBuffer.from_dlpack])
def test_an_array_of_another_owner_is_referred_to_once(take: Any):
    array = np.ones(3)
    before = sys.getrefcount(array)
    taken = take(array)
    assert sys.getrefcount(array) == before + 1
    del taken
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize("data_type", [99, -1, "FP32", None])
def test_a_tensor_of_no_data_type_is_refused(data_type: Any):
    tensor = Tensor(data_type, (2,), MemoryBuffer.from_array(np.ones(2)))
    with pytest.raises(InvalidTypeError, match="give a DataType"):
        tensor.__dlpack__()


def test_a_capsule_of_something_else_is_refused():
    class Other:
        def __dlpack__(self) -> Any:
            return 3

    with pytest.raises(InvalidArgumentError, match="no unused capsule of DLPack"):
        Tensor.from_dlpack(Other())


def test_texts_come_back_in_their_shape():
    texts = np.array([["a", "ü"], ["", "日本"]])
    tensor = Tensor.from_string_array(texts)
    assert tensor.to_string_array().tolist() == texts.tolist()
    assert tensor.to_string_array().dtype.kind == "U"
    assert tensor.to_bytes_array()[0, 1] == "ü".encode()


@pytest.mark.parametrize("wrong", [np.ones(2), "text", [3], [["a"], ["b", "c"]], (b"x",)])
def test_other_things_are_no_byte_strings(wrong: Any):
    with pytest.raises(InvalidArgumentError):
        Tensor.from_bytes_array(wrong)


@pytest.mark.parametrize("memory", [b"\0\0", b"\3\0\0\0ab", b"\1\0\0\0ab"])
def test_memory_that_holds_no_byte_string_is_refused(memory: bytes):
    tensor = Tensor(DataType.BYTES, (1,), MemoryBuffer.from_array(np.frombuffer(memory, np.uint8)))
    with pytest.raises(InvalidArgumentError):
        tensor.to_bytes_array()


def test_numbers_are_no_byte_strings_and_the_other_way_round():
    with pytest.raises(InvalidArgumentError, match="FP64"):
        tensor_of(np.ones(2)).to_bytes_array()
    with pytest.raises(InvalidArgumentError, match="BYTES"):
        Tensor.from_bytes_array(["a"]).__dlpack__()


def test_a_shape_that_the_memory_is_too_small_for_is_refused():
    with pytest.raises(InvalidArgumentError, match="takes 24 bytes, the memory has 16"):
        np.from_dlpack(Tensor(DataType.FP64, (3,), MemoryBuffer.from_array(np.ones(2))))


def test_a_list_whose_rows_differ_in_length_is_refused():
    with pytest.raises(InvalidArgumentError, match="makes no array"):
        tensor_of([[1.0], [2.0, 3.0]])


def test_a_tensor_stays_where_it_is_when_handed_over():
    tensor = tensor_of(np.ones(2))
    with pytest.raises(UnsupportedError, match="as a copy alone"):
        tensor.__dlpack__(dl_device=(DLDeviceType.kDLCUDA, 0), copy=False)
    with pytest.raises(InvalidArgumentError, match=r"\(8, 0\) is no kind of memory"):
        tensor.__dlpack__(dl_device=(8, 0))
    there = tensor.__dlpack__(dl_device=(DLDeviceType.kDLCPU, 0))
    assert MemoryBuffer.from_dlpack(SimpleNamespace(__dlpack__=lambda: there)).data_ptr == tensor.data_ptr


def test_a_tensor_of_the_cpu_knows_no_stream_but_makes_copies():
    array = np.ones(2)
    with pytest.raises(UnsupportedError, match="stream is 3"):
        tensor_of(array).__dlpack__(stream=3)
    assert Tensor.from_dlpack(tensor_of(array)).data_ptr == array.ctypes.data
    copied = tensor_of(array).__dlpack__(stream=0, max_version=(1, 0), copy=True)
    assert MemoryBuffer.from_dlpack(SimpleNamespace(__dlpack__=lambda: copied)).data_ptr != array.ctypes.data


@pytest.mark.parametrize(
    ("device", "place"),
    [
        (MemoryType.GPU, (MemoryType.GPU, 0)),
        ((MemoryType.GPU, 2), (MemoryType.GPU, 2)),
        ((DLDeviceType.kDLCUDA, 1), (MemoryType.GPU, 1)),
        ((DLDeviceType.kDLCUDAHost, 0), (MemoryType.CPU_PINNED, 0)),
        ("cpu", (MemoryType.CPU, 0)),
        ("CPU_pinned", (MemoryType.CPU_PINNED, 0)),
        ("gpu:12", (MemoryType.GPU, 12)),
    ],
)
def test_places_have_several_names(device: Any, place: Any):
    assert place_of(device) == place


@pytest.mark.parametrize("wrong", ["tpu", "gpu:", "gpu:x", "gpu:0:1", "gpu:-1", 2, (2, 0), (MemoryType.GPU, "0"), None])
def test_other_names_of_places_are_refused(wrong: Any):
    with pytest.raises(InvalidArgumentError, match="no kind of memory"):
        place_of(wrong)


def test_what_lies_there_already_is_not_copied():
    tensor = tensor_of(np.ones(2))
    assert tensor.to_host() is tensor
    assert tensor.to_device("cpu:0") is tensor
    pinned = Tensor(DataType.FP64, (2,), MemoryBuffer(tensor.data_ptr, MemoryType.CPU_PINNED, 0, 16, tensor))
    assert pinned.to_host() is pinned
