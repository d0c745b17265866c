"""Records for the tests of recordings."""

import json

import numpy as np

from pytriton.recording.format import CHECKSUM_BYTES, HEAD, LENGTH, Group, checksum
from pytriton.recording.groups import combined
from pytriton.wire.tensors import tensor

SHARED = {"model": "m", "version": 2}
TEXTS = np.array([[b"a"], [b""], [b"\0long\0"]], object)


def a_group(number, arrays, rows=None, own=None, **fields):
    """The requests of a call, of which the first has this number as its id."""
    indices = range(len(rows or [0]))
    made = {name: tensor(0, array) for name, array in arrays.items()}
    return Group(
        **{"arrival": 1000.0 + number, "duration_s": 0.25, "requests": 3, "responses": 0, "error": "", **fields},
        is_cancelled=False,
        indices=indices,
        rows=rows,
        tensors={name: (each.code, each.shape, each.data()) for name, each in made.items()},
        own={place: json.dumps(own or {"id": str(number + place)}) for place in indices},
    )


def arrays(number):
    x = np.array([[number, 2.5]], np.float32)
    return {"inputs/x": x, "inputs/s": TEXTS, "outputs/0/y": x * 2}


def together(*groups):
    (record,) = combined(SHARED, groups)
    return record


def a_record(number=0):
    return together(a_group(number, arrays(number), responses=1))


def block_of(record):
    return record[HEAD.size :]


def sealed(block, arrival=1000.0, length=None, requests=1):
    head = HEAD.pack(len(block) if length is None else length, arrival, requests, 0)[:-CHECKSUM_BYTES]
    return head + checksum(head, block).to_bytes(CHECKSUM_BYTES, "little") + block


def with_header(change, record=None):
    """A block whose header was changed."""
    block = block_of(record or a_record())
    (length,) = LENGTH.unpack_from(block)
    header = json.loads(block[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return LENGTH.pack(len(text)) + text + block[8 + length :]
