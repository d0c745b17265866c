"""What one side packs, the other unpacks."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from pytriton.wire.frames import ERROR, MAX_REQUESTS, NO_REGION, REQUEST, RESPONSE, Frame, pack, unpack
from pytriton.wire.tensors import (
    ALIGN,
    BYTES,
    DTYPES,
    MAX_RANK,
    WHOLE_BATCH,
    FrameError,
    data_bytes,
    decode_bytes,
    dtype_code,
    encode_bytes,
    joined,
    tensor,
)

NUMERIC = list(DTYPES.values())
SHAPES = nps.array_shapes(min_dims=0, max_dims=8, min_side=0, max_side=4)
STRINGS = st.binary(max_size=8) | st.text(max_size=4).map(str.encode) | st.sampled_from([b"", b"\0", b"a\0b\0"])


@st.composite
def string_arrays(draw, shapes=SHAPES):
    shape = draw(shapes.filter(lambda shape: np.prod(shape) <= 32))
    count = int(np.prod(shape))
    strings = np.empty(count, object)
    strings[:] = draw(st.lists(STRINGS, min_size=count, max_size=count))
    return strings.reshape(shape)


ARRAYS = nps.arrays(st.sampled_from(NUMERIC), SHAPES) | string_arrays()


def sent(frame, tensors=()):
    """The frame as the other side gets it."""
    return unpack(memoryview(bytearray(pack(frame, tensors))))


def through(array):
    """One array as the other side gets it."""
    frame = sent(Frame(REQUEST, 1, 1), [tensor(0, array, 0)])
    return frame.array(frame.tensors[0])


def same(first, second):
    """Equal bit by bit, so that NaN equals itself."""
    if first.dtype.hasobject:
        return first.dtype == second.dtype and first.shape == second.shape and first.tolist() == second.tolist()
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
@pytest.mark.parametrize("rank", range(9))
def test_every_dtype_travels_in_every_rank(dtype, rank):
    array = np.arange(2**rank, dtype=np.int8).astype(dtype).reshape((2,) * rank)
    assert same(through(array), array)


@pytest.mark.parametrize("rank", range(9))
def test_bytes_travel_in_every_rank(rank):
    strings = [b"", b"\0", "käse".encode(), b"a\0b\0\0", bytes(range(256)), b"x" * 1000, b"\xff\xfe"]
    array = np.array((strings * 40)[: 2**rank], object).reshape((2,) * rank)
    assert same(through(array), array)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 2**40), (0, 0, 0), (2, 0, 5)])
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(object)], ids=str)
def test_empty_tensors_keep_their_shape(shape, dtype):
    array = np.empty(shape, dtype)
    assert same(through(array), array)


def test_the_largest_rank_travels_and_a_larger_one_is_refused_by_its_sender():
    array = np.ones((1,) * MAX_RANK, np.int8)
    assert same(through(array), array)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(FrameError, match=f"rank {MAX_RANK + 1}"):
            tensor(0, array[None])


@given(st.lists(ARRAYS, max_size=4), st.data())
def test_tensors_of_single_requests_travel(arrays, data):
    requests = data.draw(st.lists(st.integers(0, 4), min_size=len(arrays), max_size=len(arrays)))
    frame = sent(Frame(REQUEST, 7, 5), list(map(tensor, range(len(arrays)), arrays, requests)))
    assert [(item.name, item.request) for item in frame.tensors] == list(enumerate(requests))
    assert all(same(frame.array(item), array) for item, array in zip(frame.tensors, arrays, strict=True))
    assert frame.rows is None


@given(
    rows=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    trailing=nps.array_shapes(min_dims=0, max_dims=7, min_side=0, max_side=3),
    data=st.data(),
)
def test_the_arrays_of_several_requests_arrive_as_one(rows, trailing, data):
    if np.prod(trailing) <= 8 and data.draw(st.booleans()):
        arrays = [data.draw(string_arrays(st.just((count, *trailing)))) for count in rows]
    else:
        dtype = data.draw(st.sampled_from(NUMERIC))
        arrays = [data.draw(nps.arrays(dtype, (count, *trailing))) for count in rows]
    frame = sent(Frame(REQUEST, 7, len(rows), rows), [joined(0, arrays, sum(rows))])
    assert list(frame.rows) == rows
    assert frame.tensors[0].request == WHOLE_BATCH
    assert same(frame.array(frame.tensors[0]), np.concatenate(arrays))


@given(
    kind=st.sampled_from([REQUEST, RESPONSE, ERROR]),
    sequence=st.integers(0, 2**32 - 1),
    requests=st.integers(0, MAX_REQUESTS),
    metadata=st.binary(max_size=100),
    released=st.lists(st.integers(0, 2**64 - 1), max_size=20),
)
def test_everything_beside_the_tensors_travels(kind, sequence, requests, metadata, released):
    frame = sent(Frame(kind, sequence, requests, metadata=metadata, released=released))
    assert (frame.kind, frame.number, frame.requests) == (kind, sequence, requests)
    assert (frame.metadata, list(frame.released), frame.rows) == (metadata, released, None)
    assert frame.tensors == []
    assert frame.region == NO_REGION


@given(st.lists(ARRAYS, max_size=4))
def test_inline_data_is_aligned_and_as_long_as_announced(arrays):
    tensors = [tensor(0, array, 0) for array in arrays]
    message = pack(Frame(REQUEST, 1, 1), tensors)
    frame = unpack(memoryview(message))
    assert all(item.offset % ALIGN == 0 for item in frame.tensors)
    assert (len(message) - len(frame.data)) % ALIGN == 0 or not len(frame.data)
    assert len(frame.data) == data_bytes(tensors)
    assert frame.data_bytes <= len(frame.data)


def test_frames_that_look_alike_keep_their_own_shapes_numbers_and_data():
    arrays = [np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(6, 12, dtype=np.int32).reshape(3, 2)]
    for sequence in range(1, 5):  # of equal lengths and counts, seen before or not
        array = arrays[sequence % 2]
        frame = sent(Frame(REQUEST, sequence, 2, rows=[1, len(array) - 1]), [tensor(0, array)])
        assert (frame.number, list(frame.rows)) == (sequence, [1, len(array) - 1])
        assert same(frame.array(frame.tensors[0]), array)


def test_data_in_a_region_is_described_but_not_included():
    array = np.arange(100_000, dtype=np.float64)
    message = pack(Frame(REQUEST, 1, 1, region=4096), [tensor(0, array, 0)])
    frame = unpack(memoryview(message))
    frame.data = array.view(np.uint8)
    assert len(message) < 200
    assert (frame.region, frame.data_bytes) == (4096, array.nbytes)
    assert np.shares_memory(frame.array(frame.tensors[0]), array)


def test_numeric_tensors_are_writable_views_of_the_message():
    array = np.arange(4)
    message = bytearray(pack(Frame(REQUEST, 1, 1), [tensor(0, array, 0)]))
    frame = unpack(memoryview(message))
    frame.array(frame.tensors[0])[:] = 9
    assert frame.array(frame.tensors[0]).tolist() == [9] * 4
    assert message.endswith(np.full(4, 9).tobytes() + bytes(-32 % ALIGN))


@pytest.mark.parametrize("dtype", [dtype for dtype in NUMERIC if dtype.itemsize > 1], ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)], ids=str)
def test_big_endian_arrays_arrive_with_their_values_and_shape(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)
    assert same(through(array.astype(dtype.newbyteorder(">"))), array)


@pytest.mark.parametrize(
    "cut",
    [
        lambda array: array.T,
        lambda array: array[::2],
        lambda array: array[:, ::-1],
        lambda array: array[..., 1],
        lambda array: np.broadcast_to(array[:1], (5, 4, 3)),
        np.asfortranarray,
    ],
)
@pytest.mark.parametrize("dtype", [np.dtype(np.int32), np.dtype(">f8"), np.dtype(object)], ids=str)
def test_arrays_that_are_not_contiguous_arrive_in_c_order(cut, dtype):
    array = np.arange(60).reshape(5, 4, 3)
    array = array.astype("S").astype(object) if dtype.hasobject else array.astype(dtype)
    assert through(cut(array)).tolist() == cut(array).tolist()
    assert through(cut(array)).shape == cut(array).shape


@pytest.mark.parametrize(
    ("array", "strings"),
    [
        (np.array(["ä", ""]), ["ä".encode(), b""]),
        (np.array([b"a", b"bcd"]), [b"a", b"bcd"]),
        (np.array(["ä", b"\0", np.bytes_(b"x"), np.str_("y")], object), ["ä".encode(), b"\0", b"x", b"y"]),
    ],
)
def test_texts_and_fixed_width_bytes_arrive_as_bytes(array, strings):
    received = through(array)
    assert received.dtype == object
    assert received.tolist() == strings
    assert {type(string) for string in received} == {bytes}


@pytest.mark.parametrize("element", [1, None, 1.5, [b"a"], bytearray(b"a")])
def test_other_objects_cannot_travel(element):
    array = np.empty(2, object)
    array[:] = [b"a", element]
    with pytest.raises(TypeError, match=f"holds {type(element).__name__}; give bytes or str"):
        tensor(0, array)


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", "V3", "i4,f4", "longdouble"])
def test_other_dtypes_cannot_travel(dtype):
    with pytest.raises(FrameError, match="cannot travel"):
        tensor(0, np.zeros(2, dtype))


def test_dtype_codes_are_those_of_the_server():
    # TRITONSERVER_DataType of tritonserver.h
    assert [dtype_code(np.dtype(code)) for code in "?BHILbhilefdO"] == list(range(1, BYTES + 1))
    assert {dtype_code(np.dtype(kind)) for kind in "SUO"} == {BYTES}


@given(string_arrays())
def test_strings_are_decoded_as_encoded(array):
    assert same(decode_bytes(encode_bytes(array), array.shape), array)


def test_lengths_are_little_endian_and_come_before_the_strings():
    assert encode_bytes(np.array([b"ab", b"", b"\0"], object)) == struct.pack("<III", 2, 0, 1) + b"ab\0"
