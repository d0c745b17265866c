"""The bytes of frames, which ``tests/native/golden_frames.cpp`` reads and writes too."""

from pathlib import Path

import numpy as np
import pytest

from pytriton.wire.frames import (
    BYE,
    CANCEL,
    ERROR,
    HEADER,
    LIMIT,
    NO_REGION,
    RELEASE,
    REQUEST,
    RESPONSE,
    Frame,
    pack,
    unpack,
)
from pytriton.wire.layout import layout_of
from pytriton.wire.tensors import tensor

FILE = Path(__file__).parents[2] / "native" / "golden_frames.txt"
X = np.arange(8, dtype=np.float32).reshape(4, 2)
S = np.array([[b"a"], [b"bc"], [b""], [b"d"]], object)
FRAMES = {
    "whole batch": (Frame(REQUEST, 7, 2, (1, 3), b'{"1":{"id":"a"}}', (64,)), [tensor(0, X), tensor(1, S)]),
    "other rows": (Frame(REQUEST, 8, 1, (2,)), [tensor(0, X[:2]), tensor(1, S[:2])]),
    "single requests": (
        Frame(REQUEST, 9, 2, apart=True),
        [tensor(0, np.array(7), 0), tensor(1, np.array([[1, 0, 1]], bool), 1), tensor(2, S, 1)],
    ),
    "a region": (Frame(RESPONSE, 10, 1, (2,), region=4096), [tensor(3, np.zeros((2, 5000)))]),
    "no rows": (Frame(RESPONSE, 11, 1, (0,)), [tensor(0, X[:0])]),
    "an error": (Frame(ERROR, 12, 3, metadata=b'{"message":"no"}'), []),
    "cancelled requests": (Frame(CANCEL, 13, 2, metadata=b'{"requests":[1],"all":false}'), []),
    "releases": (Frame(RELEASE, 14, released=(0, 2**40)), []),
    "goodbye": (Frame(BYE), []),
    "a limit": (Frame(LIMIT, 15), []),
}


def golden():
    lines = (line.rpartition(": ") for line in FILE.read_text().splitlines() if not line.startswith("#"))
    return {name: bytes.fromhex(text) for name, _, text in lines}


def test_the_file_has_each_frame():
    assert list(golden()) == list(FRAMES)


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_written_as_the_file_has_it(name):
    assert pack(*FRAMES[name]).hex() == golden()[name].hex()


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_read_as_it_was_written(name):
    sent, tensors = FRAMES[name]
    frame = unpack(memoryview(bytearray(golden()[name])))
    for field in ("kind", "number", "requests", "rows", "metadata", "released", "region", "more", "apart"):
        assert getattr(frame, field) == getattr(sent, field), field
    assert [(item.name, item.request, item.code, item.shape, item.size) for item in frame.tensors] == [
        tuple(each[:5]) for each in tensors
    ]
    if frame.region == NO_REGION:
        for item, (*_, parts) in zip(frame.tensors, tensors, strict=True):
            assert bytes(frame.data[item.offset : item.offset + item.size]) == b"".join(
                np.asarray(part).tobytes() for part in parts
            )


def test_batches_that_differ_in_requests_and_rows_have_the_same_layout():
    first, second = (golden()[name][HEADER.size : HEADER.size + 32] for name in ("whole batch", "other rows"))
    assert first == second
    assert layout_of(first) is layout_of(second)
