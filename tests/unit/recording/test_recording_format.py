"""Records: written, read, damaged and hostile."""

import json
import math
import random
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from struct import pack

import numpy as np
import pytest
from safetensors import numpy as safetensors

from pytriton.recording import RecordedFiles, RecordingError, read
from pytriton.recording.format import HEAD, LENGTH, MAGIC, decode, encode, make_block
from pytriton.recording.groups import combined
from pytriton.wire.tensors import SCALAR_TYPES, encode_bytes
from tests.unit.recording.records import (
    SHARED,
    TEXTS,
    a_group,
    a_record,
    arrays,
    block_of,
    sealed,
    together,
    with_header,
)


def test_a_request_is_read_as_it_was_written(path):
    own = {"id": "5", "parameters": {"k": 3, "t": "é"}, "sequence": [7, True, False]}
    path.write_bytes(MAGIC + together(a_group(5, arrays(5), own=own, responses=1)))
    (request,) = read(path)
    assert (request.model, request.version, request.id, request.arrival) == ("m", 2, "5", 1005.0)
    assert (request.duration_s, request.batch, request.parameters) == (0.25, 3, {"k": 3, "t": "é"})
    assert request.sequence == (7, True, False)
    assert request.inputs["x"].tolist() == [[5, 2.5]]
    assert request.inputs["s"].tolist() == TEXTS.tolist()
    assert request.responses[0]["y"].tolist() == [[10, 5]]


@pytest.mark.parametrize("name", SCALAR_TYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("count", [1, 3])
def test_each_dtype_and_shape_returns(name, shape, count):
    array = np.full(shape, b"\0text", object) if name == "BYTES" else np.ones(shape, SCALAR_TYPES[name])
    record = together(*(a_group(number, {"inputs/a/b": array}) for number in range(count)))
    requests = decode(1000.0, count, block_of(record))
    assert [each.id for each in requests] == [str(number) for number in range(count)]
    for each in requests:
        found = each.inputs["a/b"]
        assert (found.dtype, found.shape, found.tolist()) == (array.dtype, shape, array.tolist())


def test_small_requests_of_one_form_share_a_record():
    alike = [a_group(number, arrays(number), responses=1) for number in (2, 1)]
    failed = a_group(3, {"inputs/x": np.ones(2)}, error="no")
    large = [a_group(number, {"inputs/x": np.full(5000, number, float)}) for number in (4, 5)]
    found = [*combined(SHARED, [alike[0], failed, *large, alike[1]])]
    assert [HEAD.unpack_from(each)[1:3] for each in found] == [(1001.0, 2), (1003.0, 1), (1004.0, 1), (1005.0, 1)]
    assert [each.id for each in decode(1001.0, 2, block_of(found[0]))] == ["2", "1"]


def test_requests_of_several_records_come_by_their_arrival(path):
    first = together(*(a_group(number, arrays(number), responses=1) for number in (9, 1, 4)))
    second = together(*(a_group(number, arrays(number), responses=1) for number in (3, 3, 2, 12)))
    path.write_bytes(MAGIC + first + second)
    with RecordedFiles(path) as files:
        assert [each.id for each in files] == ["1", "2", "3", "3", "4", "9", "12"]
        assert len(files) == 7


def test_safetensors_reads_a_block():
    found = safetensors.load(block_of(a_record(1)))
    assert found["inputs/x"].tolist() == [[[1, 2.5]]]
    assert found["calls/arrival"].tolist() == [1001]
    assert bytes(found["inputs/s"]) == encode_bytes(TEXTS)


def _told(**details):
    return with_header(
        lambda header: header["__metadata__"].update(requests=json.dumps({**SHARED, "responses": 1, **details}))
    )


def _own(**fields):
    return _told(own={"0": fields})


def _set(key, value):
    return lambda header: header["inputs/x"].__setitem__(key, value)


HOSTILE = {
    "no bytes": b"",
    "a header that is longer than the record": LENGTH.pack(2**63) + b"{}",
    "no JSON": LENGTH.pack(3) + b"{]}",
    "a list": LENGTH.pack(2) + b"[]",
    "no metadata": LENGTH.pack(2) + b"{}",
    "deep JSON": LENGTH.pack(10**5) + b"[" * 10**5,
    "metadata that are no JSON": with_header(lambda header: header["__metadata__"].update(requests="{")),
    "details of no request": with_header(lambda header: header["__metadata__"].update(requests="{}")),
    "unknown details": _told(other=1),
    "a model that is no text": _told(model=1),
    "a version that is no number": _told(version="2"),
    "an id that is no text": _own(id=["7"]),
    "an error that is no text": _told(error=7),
    "parameters that are a list": _own(parameters=[]),
    "a parameter that is a list": _own(parameters={"k": []}),
    "own fields that are a list": _told(own=[]),
    "own fields of a request that are a list": _told(own={"0": [1]}),
    "own fields that all share": _own(model="m"),
    "fields that only one may have": _told(id="7"),
    "a sequence that is no list": _own(sequence="abc"),
    "a sequence with a list as its id": _own(sequence=[[], True, False]),
    "texts that are a list": _told(texts=[1]),
    "too many responses": _told(responses=2**40),
    "responses that are no number": _told(responses=True),
    "responses below 0": _told(responses=-1),
    "offsets beyond the data": with_header(_set("data_offsets", [0, 2**40])),
    "offsets below 0": with_header(_set("data_offsets", [-8, 0])),
    "offsets that are swapped": with_header(_set("data_offsets", [8, 0])),
    "offsets that are no integers": with_header(_set("data_offsets", [0.0, 8.0])),
    "three offsets": with_header(_set("data_offsets", [0, 4, 8])),
    "a shape of other bytes": with_header(_set("shape", [1, 3])),
    "a huge shape": with_header(_set("shape", [2**62, 2**62])),
    "a huge shape without bytes": with_header(
        lambda header: header["inputs/x"].update(shape=[0, 2**62, 2**62], data_offsets=[0, 0])
    ),
    "a negative shape": with_header(_set("shape", [-1, -2])),
    "a shape of truths": with_header(_set("shape", [True, 2])),
    "another dtype": with_header(_set("dtype", "F8_E4M3")),
    "no dtype": with_header(lambda header: header["inputs/x"].pop("dtype")),
    "a response that is not there": with_header(lambda header: header.update({"outputs/7/y": header["inputs/x"]})),
    "a response without a number": with_header(lambda header: header.update({"outputs/y": header["inputs/x"]})),
    "texts that are cut": with_header(lambda header: header["inputs/s"].update(data_offsets=[8, 20])),
    "a huge shape of texts": _told(texts={"inputs/s": [2**40, 2**20]}),
    "no arrivals": with_header(lambda header: header.pop("calls/arrival")),
    "more calls than durations": with_header(
        lambda header: header["calls/duration_s"].update(shape=[0], data_offsets=[0, 0])
    ),
    "calls that are texts": _told(texts={"calls/batch": [1]}),
    "calls without an axis": with_header(
        lambda header: [each.update(shape=[]) for name, each in header.items() if name.startswith("calls/")]
    ),
    "times of another dtype": with_header(lambda header: header["calls/arrival"].update(dtype="I64")),
    "an arrival that is no number": block_of(a_record()).replace(pack("<d", 1000.0), pack("<d", math.nan)),
    "a duration without an end": block_of(a_record()).replace(pack("<d", 0.25), pack("<d", math.inf)),
    "a duration below 0": block_of(a_record()).replace(pack("<d", 0.25), pack("<d", -0.25)),
    "rows of another dtype": with_header(
        lambda header: header["rows"].update(dtype="I32"), record=together(a_group(0, arrays(0), [1], responses=1))
    ),
    "rows of more requests": with_header(
        lambda header: header.update(rows={"dtype": "U32", "shape": [2], "data_offsets": [0, 8]})
    ),
    "rows that the tensors do not have": with_header(
        lambda header: header.update(rows={"dtype": "U32", "shape": [1], "data_offsets": [0, 4]})
    ),
    "a tensor without an axis": with_header(_set("shape", [])),
    "tensors that overlap": with_header(lambda header: header.update({"inputs/z": header["inputs/x"]})),
    "a response before the first": with_header(
        lambda header: header.update({"outputs/-1/y": header.pop("outputs/0/y")})
    ),
    "a tensor of another side": with_header(lambda header: header.update({"others/0/y": header.pop("outputs/0/y")})),
    "an arrival that its head does not have": block_of(a_record(1)),
}


@pytest.mark.parametrize("requests", [0, 2, 2**32 - 1])
def test_a_record_with_another_number_of_requests_is_an_error(path, requests):
    path.write_bytes(MAGIC + sealed(block_of(a_record()), requests=requests))
    with pytest.raises(RecordingError, match="a record"):
        [*read(path)]


def a_block(requests, tensors=(), **told):
    """A block of many requests in few bytes."""
    columns = {
        "calls/arrival": ("F64", [1], pack("<d", 1000.0)),
        "calls/duration_s": ("F64", [1], pack("<d", 0.0)),
        "calls/batch": ("U32", [1], pack("<I", 1)),
        "calls/requests": ("U32", [1], pack("<I", requests)),
        **{name: ("F32", [requests, 0], b"") for name in tensors},
    }
    return make_block(json.dumps({**SHARED, **told}), {**columns, "index": ("U32", [1], pack("<I", 0))})


@pytest.mark.parametrize("requests", [2**20, 2**30, 2**32 - 1])
def test_few_bytes_do_not_become_many_requests(path, requests):
    path.write_bytes(MAGIC + sealed(a_block(requests), requests=requests))
    with pytest.raises(RecordingError, match="a record"):
        [*read(path)]


def test_few_bytes_do_not_become_many_arrays():
    columns = {f"inputs/{number}": ("F32", [2000, 0], b"") for number in range(1500)}
    with pytest.raises(RecordingError, match="tensors"):
        decode(1000.0, 2000, a_block(2000, columns))


def test_requests_that_pretend_to_arrive_late_do_not_all_wait(path):
    group = replace(a_group(0, {}, responses=2**18), own={})
    record = sealed(block_of(encode(SHARED, [group, replace(group, arrival=1e9)])), requests=2)
    path.write_bytes(MAGIC + record * 20)
    with RecordedFiles(path) as files:
        tracemalloc.start()
        try:
            assert sum(1 for _ in files) == 40
            assert tracemalloc.get_traced_memory()[1] < 2**25
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_record_is_an_error(path, what):
    path.write_bytes(MAGIC + sealed(HOSTILE[what]))
    with pytest.raises(RecordingError, match="a record"):
        [*read(path)]


def test_random_damage_to_blocks_is_an_error_or_a_request():
    block, chance = block_of(a_record()), random.Random(1)
    for _ in range(3000):
        changed = bytearray(block)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        with suppress(RecordingError):
            decode(1000.0, 1, bytes(changed[: chance.randint(0, len(changed))] if chance.random() < 0.3 else changed))
