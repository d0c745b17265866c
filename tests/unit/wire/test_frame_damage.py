"""Frames that contradict themselves raise FrameError and nothing else, and are never read beyond their end."""

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.wire.frames import HEADER, INLINE, NO_REGION, REQUEST, ROWS, Frame, pack, unpack
from pytriton.wire.layout import ENTRY
from pytriton.wire.tensors import MAX_RANK, WHOLE_BATCH, FrameError, decode_bytes, tensor

HUGE = 2**64 - 1
FLOAT32, STRINGS = 11, 13
VALID = [
    pack(
        Frame(REQUEST, 3, 2, (1, 2), b'{"0":{}}', released=(64, 128)),
        [tensor(0, np.ones((3, 2), np.float32)), tensor(1, np.array([b"a", b"", b"bc"], object))],
    ),
    pack(Frame(REQUEST, 4, 2), [tensor(0, np.array(7, np.int64), 0), tensor(0, np.zeros((0, 3)), 1)]),
    pack(Frame(REQUEST, 5, 1, region=0), [tensor(0, np.zeros(20_000), 0)]),
]


def read(message):
    """Decode a frame and touch everything in it; ends with FrameError, or proves that all lies inside the data."""
    frame = unpack(memoryview(bytearray(message)))
    if frame.region != NO_REGION:  # as the channel does
        if frame.data_bytes > 1 << 18:
            raise FrameError("the region ends beyond the arena")
        frame.data = np.zeros(frame.data_bytes, np.uint8)
    data = np.frombuffer(frame.data, np.uint8)
    for item in frame.tensors:
        array = frame.array(item)
        assert array.shape == item.shape
        if array.size and not array.dtype.hasobject:
            first, end = array.__array_interface__["data"][0], array.__array_interface__["data"][0] + array.nbytes
            assert data.ctypes.data <= first <= end <= data.ctypes.data + data.nbytes
            assert array.flags.c_contiguous
    return frame


def frame_of(*tensors, requests=1, rows=(), region=NO_REGION, flags=None, data=b"", length=None, kind=REQUEST):
    """A message with any numbers in it; each tensor is (name, code, rank, request, extents, and sizes of strings)."""
    flags = ((INLINE if region == NO_REGION else 0) | (ROWS if rows else 0)) if flags is None else flags
    layout = b"".join(
        ENTRY.pack(name, code, rank, request) + struct.pack(f"<{len(extents)}Q", *extents)
        for name, code, rank, request, extents, *_ in tensors
    )
    sizes = [size for tensor in tensors for size in tensor[5:]]
    body = layout + struct.pack(f"<{len(sizes)}Q", *sizes) + struct.pack(f"<{len(rows)}I", *rows)
    start = HEADER.size + len(body)
    body += bytes(-start % 64) + data
    total = HEADER.size + len(body) if length is None else length
    return HEADER.pack(total, kind, flags, 0, 1, requests, len(layout), 0, region) + body


@given(st.sampled_from(VALID), st.data())
def test_a_cut_frame_is_refused(message, data):
    with pytest.raises(FrameError):
        read(message[: data.draw(st.integers(0, len(message) - 1))])


@given(st.sampled_from(VALID), st.data())
def test_a_cut_frame_that_hides_its_length_is_refused_or_harmless(message, data):
    cut = bytearray(message[: data.draw(st.integers(HEADER.size, len(message) - 1))])
    struct.pack_into("<I", cut, 0, len(cut))
    with suppress(FrameError):
        read(cut)


@given(st.sampled_from(VALID), st.data())
def test_changed_bytes_are_refused_or_harmless(message, data):
    message = bytearray(message)
    description = min(len(message), 200)
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(4, description - 1))] = data.draw(st.integers(0, 255))
    with suppress(FrameError):
        read(message)


@given(st.sampled_from(VALID), st.data())
def test_changed_numbers_are_refused_or_harmless(message, data):
    message = bytearray(message)
    at = data.draw(st.integers(4, min(len(message), 200) - 8))
    struct.pack_into("<Q", message, at, data.draw(st.sampled_from([HUGE, 2**63, 2**63 - 1, 2**32, 2**31, 1, 0])))
    with suppress(FrameError):
        read(message)


@given(st.binary(max_size=300))
def test_noise_is_refused(noise):
    with pytest.raises(FrameError):
        read(noise)


@given(st.binary(max_size=200))
def test_noise_behind_a_right_length_is_refused_or_harmless(noise):
    with suppress(FrameError):
        read(struct.pack("<I", len(noise) + 4) + noise)


@pytest.mark.parametrize(
    "damaged",
    [
        frame_of((0, FLOAT32, 1, 0, (17,)), data=bytes(64)),
        frame_of((0, FLOAT32, 1, 0, (16,)), (1, FLOAT32, 1, 0, (1,)), data=bytes(64)),
        frame_of((0, FLOAT32, 2, 0, (2**62, 4)), data=bytes(64)),  # the size overflows 64 bits to 0
        frame_of((0, FLOAT32, 2, 0, (2**32, 2**32)), data=bytes(64)),
        frame_of((0, FLOAT32, 2, 0, (HUGE, 0)), data=bytes(64)),
        frame_of((0, FLOAT32, 2, 0, (2**63, 0)), data=bytes(64)),
        frame_of((0, FLOAT32, 3, 0, (2**62, 0, 2**62)), data=bytes(64)),
        frame_of((0, STRINGS, 2, 0, (HUGE, 0), 0), data=bytes(64)),
        frame_of((0, STRINGS, 1, 0, (2**62,), 64), data=bytes(64)),
        frame_of((0, STRINGS, 1, 0, (1,), 3), data=bytes(64)),
        frame_of((0, STRINGS, 1, 0, (1,), 5), data=bytes(64)),
        frame_of((0, STRINGS, 1, 0, (1,), 5), data=b"\xff\xff\xff\xff" + bytes(60)),
        frame_of((0, STRINGS, 1, 0, (1,), HUGE), data=bytes(64)),
        frame_of((0, STRINGS, 1, 0, (1,), 65), data=bytes(64)),
        frame_of((0, STRINGS, 1, 0, (1,))),  # no size
        frame_of((0, 0, 1, 0, (1,)), data=bytes(64)),
        frame_of((0, 14, 1, 0, (1,)), data=bytes(64)),
        frame_of((0, FLOAT32, MAX_RANK + 1, 0, (1,) * (MAX_RANK + 1)), data=bytes(64)),
        frame_of((0, FLOAT32, 255, 0, (1,) * 255), data=bytes(64)),
        frame_of((0, FLOAT32, 2, 0, (4,)), data=bytes(64)),  # an extent is missing
        frame_of((0, FLOAT32, 0, 0, (4,)), data=bytes(64)),  # half an entry follows
        frame_of((0, FLOAT32, 1, 1, (4,)), data=bytes(64)),  # request 1 of 1
        frame_of((0, FLOAT32, 1, WHOLE_BATCH - 1, (4,)), data=bytes(64)),
        frame_of((0, FLOAT32, 2, WHOLE_BATCH, (4,)), data=bytes(64)),  # no rows
        frame_of((0, FLOAT32, 2, WHOLE_BATCH, (4,)), data=bytes(64), rows=(5,)),
        frame_of((0, FLOAT32, 2, WHOLE_BATCH, (2**62,)), data=bytes(64), rows=(4,)),
        frame_of((0, FLOAT32, 0, WHOLE_BATCH, ()), data=bytes(64), rows=(1,)),
        frame_of((0, FLOAT32, 1, 0, (4,)), data=bytes(64), rows=(4,)),  # rows, but of one request
        frame_of((0, FLOAT32, 1, WHOLE_BATCH, ()), (0, FLOAT32, 1, 0, (1,)), data=bytes(128), rows=(1,)),
        frame_of(data=bytes(64), rows=(1, 2), requests=2**30),
        frame_of((0, FLOAT32, 1, 0, (4,)), data=bytes(64), flags=0),  # neither inline nor in a region
        frame_of((0, FLOAT32, 1, 0, (4,)), data=bytes(64), region=0, flags=INLINE),  # both
        frame_of(length=31),
        frame_of(length=33),
        frame_of(kind=0),
        frame_of(kind=11),
        HEADER.pack(HEADER.size, REQUEST, INLINE, 2**16 - 1, 1, 1, 0, 0, NO_REGION),
        HEADER.pack(HEADER.size, REQUEST, INLINE, 0, 1, 1, 2**32 - 1, 0, NO_REGION),
        HEADER.pack(HEADER.size, REQUEST, INLINE, 0, 1, 1, 0, 2**32 - 1, NO_REGION),
        HEADER.pack(HEADER.size, REQUEST, INLINE | ROWS, 0, 1, 2**32 - 1, 0, 0, NO_REGION),
        b"",
    ],
)
def test_contradictions_are_refused(damaged):
    with pytest.raises(FrameError):
        read(damaged)


def test_a_read_only_message_gives_read_only_views():
    frame = unpack(memoryview(VALID[0]))
    assert not frame.array(frame.tensors[0]).flags.writeable


def test_lengths_that_end_early_or_late_are_refused():
    assert decode_bytes(struct.pack("<II", 1, 2) + b"abc", (2,)).tolist() == [b"a", b"bc"]
    for strings in (b"ab", b"abcd"):
        with pytest.raises(FrameError, match="strings end at byte 11 of"):
            decode_bytes(struct.pack("<II", 1, 2) + strings, (2,))


def test_a_frame_of_more_requests_than_memory_can_hold_is_refused():
    with pytest.raises(FrameError, match="4294967295 requests; there may be"):
        read(frame_of(requests=2**32 - 1))
