"""Files of recordings: written, rotated, cut off, damaged and hostile."""

import json
import math
import os
import random
import threading
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from functools import partial
from struct import pack

import numpy as np
import pytest
from safetensors import numpy as safetensors

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import Recording
from pytriton.recording import RecordedFiles, RecordingError, read
from pytriton.recording import writer as writing
from pytriton.recording.format import CHECKSUM_BYTES, HEAD, LENGTH, MAGIC, Group, checksum, decode, encode, make_block
from pytriton.recording.groups import combined
from pytriton.recording.writer import Outbox, RotatingFile, WriteError
from pytriton.wire.tensors import SCALAR_TYPES, encode_bytes, tensor
from tests.server.processes import DEADLINE_S, wait_for

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


@pytest.fixture
def path(tmp_path):
    return tmp_path / "day.ptr"


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


def test_a_file_that_ends_anywhere_has_the_requests_before(path):
    records = [a_record(number) for number in range(3)]
    whole = MAGIC + b"".join(records)
    ends = [len(MAGIC)]
    for record in records:
        ends.append(ends[-1] + len(record))
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        with RecordedFiles(path) as files:
            assert [request.id for request in files] == [str(n) for n in range(sum(end <= size for end in ends) - 1)]
            assert bool(files.notes) == (size not in ends)


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    for name, number in (("a.ptr", 2), ("a.ptr.1", 1)):
        (tmp_path / name).write_bytes(MAGIC + a_record(number))
    assert [each.id for each in read([tmp_path / "a.ptr", tmp_path / "a.ptr.1"])] == ["1", "2"]


def test_a_file_that_is_damaged_anywhere_has_the_requests_before(path):
    records = [a_record(number) for number in range(2)]
    whole = MAGIC + b"".join(records)
    for at in range(len(MAGIC), len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with RecordedFiles(path) as files:
            assert len([*files]) == (at >= len(MAGIC) + len(records[0]))
            assert len(files.notes) == 1


def test_requests_of_several_files_come_by_their_arrival(tmp_path):
    for name, numbers in (("a.ptr", [3, 1]), ("a.ptr.1", [2]), ("b.ptr", [0])):
        (tmp_path / name).write_bytes(MAGIC + b"".join(map(a_record, numbers)))
    assert [each.id for each in read([tmp_path / "a.ptr", tmp_path / "b.ptr"])] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("content", [b"Q", b"PK\3\4", MAGIC[:-1] + b"\1", MAGIC[1:]])
def test_another_file_is_no_recording(path, content):
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="no recording"):
        RecordedFiles(path)
    with pytest.raises(FileNotFoundError):
        RecordedFiles(path.with_name("none"))


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 10**6])
def test_a_length_beyond_the_file_ends_it(path, length):
    path.write_bytes(MAGIC + a_record() + sealed(block_of(a_record()), length=length))
    with RecordedFiles(path) as files:
        assert len([*files]) == 1
        assert "ends within a record" in files.notes[0]


def test_a_time_that_is_no_number_ends_a_file(path):
    path.write_bytes(MAGIC + sealed(block_of(a_record()), arrival=float("nan")))
    with RecordedFiles(path) as files:
        assert len(files) == 0


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
            assert tracemalloc.get_traced_memory()[1] < 2**26
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


def test_a_recording_that_goes_on_is_read_without_repetitions(path):
    files, is_over = RotatingFile(path, 2**16, 8), threading.Event()

    def write():
        number = 0
        while not is_over.wait(0.01):  # a new file every 30 ms or so
            files.write([a_record(number + each) for each in range(50)])
            number += 50

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(30):
            ids = [each.id for each in read(path)]
            assert len(ids) == len({*ids})
    finally:
        is_over.set()
        thread.join()
        files.close()


def test_files_take_turns_and_the_oldest_is_deleted(path):
    record = a_record()
    files = RotatingFile(path, len(MAGIC) + 2 * len(record), 3)
    files.write([a_record(number) for number in range(9)])
    files.close()
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["day.ptr", "day.ptr.1", "day.ptr.2"]
    assert [each.id for each in read(path)] == ["4", "5", "6", "7", "8"]
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
    assert max(each.stat().st_size for each in path.parent.iterdir()) <= len(MAGIC) + 2 * len(record)


def test_one_file_starts_again_and_a_record_that_is_larger_than_a_file_has_its_own(path):
    files = RotatingFile(path, 16, 1)
    files.write([a_record(1), a_record(2)])
    files.close()
    assert [each.id for each in read(path)] == ["2"]
    assert [each.name for each in path.parent.iterdir()] == ["day.ptr"]


def test_a_file_that_is_there_is_kept_as_an_older_one(path):
    path.write_bytes(MAGIC + a_record(1))
    files = RotatingFile(path, 2**20, 2)
    files.write([a_record(2)])
    files.close()
    assert [each.id for each in read(path)] == ["1", "2"]


@pytest.mark.parametrize("earlier", [7, 2, 1, 0])
@pytest.mark.parametrize("files", [1, 2, 3])
def test_files_of_an_earlier_recording_that_may_have_more_are_removed(path, earlier, files):
    for number in range(earlier + 1):
        name = f"day.ptr.{number}" if number else "day.ptr"
        path.with_name(name).write_bytes(MAGIC + a_record(100 - number))
    others = [path.with_name(name) for name in ("day.ptr.99", "day.ptr.old", "day.ptr.02")]
    for other in others:
        other.write_bytes(b"of somebody else")
    recording = RotatingFile(path, len(MAGIC) + len(a_record()), files)
    recording.write([a_record(200)])
    recording.close()
    kept = min(earlier + 1, files - 1)
    expected = ["day.ptr", *(f"day.ptr.{number + 1}" for number in range(kept))]
    assert {each.name for each in path.parent.iterdir()} == {*expected, *(other.name for other in others)}
    assert [each.id for each in read(path)] == [*(str(100 - number) for number in reversed(range(kept))), "200"]


def test_a_recording_that_cannot_begin_removes_no_file(path, full_disk):
    path.write_bytes(MAGIC + a_record(2))
    for number in (1, 2):
        path.with_name(f"day.ptr.{number}").write_bytes(MAGIC)
    full_disk(True)
    with pytest.raises(OSError, match="No space"):
        RotatingFile(path, 2**20, 2)
    assert path.with_name("day.ptr.2").exists()


def test_a_folder_behind_the_files_of_a_recording_is_not_read(path):
    path.write_bytes(MAGIC + a_record(1))
    path.with_name("day.ptr.1").mkdir()
    assert [each.id for each in read(path)] == ["1"]


@pytest.mark.parametrize("name", ["day.ptr", "day.ptr.1", "day.ptr.3"])
def test_a_folder_in_the_place_of_a_file_is_refused_and_stays(path, name):
    folder = path.with_name(name)
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        RotatingFile(path, 2**20, 4)
    assert [each.name for each in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["day.ptr.4", "day.ptr.01", "day.ptr.1.old", "dayxptr"])
def test_a_folder_of_another_name_is_no_hindrance(path, name):
    path.with_name(name).mkdir()
    RotatingFile(path, 2**20, 4).close()
    assert [*read(path)] == []
    assert path.with_name(name).is_dir()


def test_a_folder_that_comes_meanwhile_costs_no_older_files(path):
    files = RotatingFile(path, len(MAGIC) + len(a_record()), 3)
    files.write([a_record(number) for number in range(2)])
    folder = path.with_name("day.ptr.2")
    folder.mkdir()
    for _ in range(3):
        with pytest.raises(WriteError, match="Is a directory"):
            files.write([a_record(7)])
    folder.rmdir()
    files.write([a_record(8)])
    files.close()
    assert [each.id for each in read(path)] == ["0", "1", "8"]


@pytest.mark.parametrize("name", ["day.ptr", "day.ptr.1"])
@pytest.mark.parametrize("content", [b"as it was", MAGIC[:-1] + b"\1"])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_recording_does_not_begin_where_something_else_is(path, name, content, is_link):
    path.write_bytes(MAGIC + a_record())
    victim = path.with_name("victim" if is_link else name)
    victim.write_bytes(content)
    if is_link:
        path.with_name(name).unlink(missing_ok=True)
        path.with_name(name).symlink_to(victim)
    before = sorted(path.parent.iterdir())
    with pytest.raises(FileExistsError, match="move it away"):
        RotatingFile(path, 2**20, 4)
    assert (victim.read_bytes(), sorted(path.parent.iterdir())) == (content, before)


def test_a_link_to_nothing_is_not_followed(path):
    path.symlink_to(path.with_name("victim"))
    files = RotatingFile(path, 2**20, 2)
    files.write([a_record(2)])
    files.close()
    assert not path.with_name("victim").exists()
    assert not path.is_symlink()


def test_a_record_that_could_not_be_written_whole_is_taken_back(path, monkeypatch):
    files, real = RotatingFile(path, 2**20, 2), os.write
    files.write([a_record(1)])

    def half(descriptor, data):
        monkeypatch.setattr(os, "write", full)
        return real(descriptor, data[: len(data) // 2])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        files.write([a_record(2)])
    monkeypatch.setattr(os, "write", real)
    files.write([a_record(3)])
    files.close()
    assert [each.id for each in read(path)] == ["1", "3"]


@pytest.fixture
def full_disk(monkeypatch):
    """Makes the disk full, or no longer."""
    real = os.write

    def full(*_):
        raise OSError(28, "No space left on device")

    return lambda is_full: monkeypatch.setattr(os, "write", full if is_full else real)


def test_a_disk_that_is_full_at_the_beginning_of_a_file_costs_no_older_ones(path, full_disk):
    files = RotatingFile(path, len(MAGIC) + len(a_record()), 3)
    files.write([a_record(number) for number in range(3)])
    full_disk(True)
    for _ in range(5):
        with pytest.raises(OSError, match="No space"):
            files.write([a_record(7)])
    full_disk(False)
    files.write([a_record(8)])
    files.close()
    assert [each.id for each in read(path)] == ["1", "2", "8"]


def test_a_folder_that_takes_no_files_for_a_while_keeps_the_older_ones(path, monkeypatch):
    files = RotatingFile(path, len(MAGIC) + len(a_record()), 3)
    files.write([a_record(number) for number in range(3)])

    def refuse(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        for _ in range(5):
            with pytest.raises(OSError, match="Too many"):
                files.write([a_record(7)])
    files.write([a_record(8)])
    files.close()
    assert [each.id for each in read(path)] == ["1", "2", "8"]


def test_a_recording_that_cannot_begin_leaves_no_file(path, full_disk):
    full_disk(True)
    with pytest.raises(OSError, match="No space"):
        RotatingFile(path, 2**20, 2)
    full_disk(False)
    assert not path.exists()


def test_any_number_of_files_may_be_wanted(path):
    path.write_bytes(MAGIC + a_record(1))
    files = RotatingFile(path, 2**20, 2**62)
    files.close()
    assert [each.id for each in read(path)] == ["1"]


def test_records_that_were_written_before_a_rotation_failed_are_told_and_counted(path, monkeypatch):
    made = [a_record(number) for number in range(5)]
    files = RotatingFile(path, len(MAGIC) + 2 * len(made[0]), 9)
    real, opened = os.open, []

    def once(*args):
        opened.append(args)
        if len(opened) > 1:
            raise OSError(24, "Too many open files")
        return real(*args)

    outbox = outbox_to(lambda records, *_: files.write(records))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", once)
        with pytest.raises(WriteError, match="Too many") as raised:
            files.write(made)
        assert raised.value.written == 4
        opened.clear()
        outbox.put(lambda: made, len(made), 1)
        outbox.close()
    files.write([a_record(9)])
    files.close()
    assert outbox.counts() == {"recorded": 2, "bytes": 2 * len(made[0]), "dropped": 3}
    assert [each.id for each in read(path)] == ["0", "0", "1", "1", "2", "3", "9"]


TOO_MANY_BYTES, TOO_MANY, LATE = 7, 8, 9


class Written:
    """What an outbox has written; it waits for the gate at each time."""

    def __init__(self):
        self.begun, self.gate, self.closed = threading.Event(), threading.Event(), threading.Event()
        self.records, self.lost = [], []

    def write(self, records, dropped, too_large):
        if records:
            self.begun.set()
            assert self.gate.wait(DEADLINE_S)
        assert not records or not self.closed.is_set()
        self.records += records
        self.lost.append((dropped, too_large))


def outbox_to(write, on_close=lambda: None):
    return Outbox(partial(combined, SHARED), write, "test", on_close)


def put(outbox, number, size=1):
    outbox.put(lambda: [a_record(number)], 1, size)


def test_a_queue_takes_no_more_than_it_may_and_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(writing, "MOST_WAITING", 3)
    monkeypatch.setattr(writing, "MOST_WAITING_BYTES", 100)
    written = Written()
    outbox = outbox_to(written.write, written.closed.set)
    put(outbox, 0, 10)
    assert written.begun.wait(DEADLINE_S)
    for number, size in ((1, 40), (2, 40), (TOO_MANY_BYTES, 40), (3, 1), (TOO_MANY, 1)):
        put(outbox, number, size)
    assert outbox.counts()["dropped"] == 2
    written.gate.set()
    outbox.close()
    assert written.records == [*map(a_record, range(4))]
    assert written.closed.is_set()
    put(outbox, LATE)
    assert outbox.counts() == {"recorded": 4, "dropped": 3, "bytes": sum(map(len, written.records))}


def test_a_writer_that_is_slow_at_the_end_is_left_to_itself(monkeypatch):
    monkeypatch.setattr(writing, "FLUSH_S", 0.0)
    written = Written()
    outbox = outbox_to(written.write, written.closed.set)
    put(outbox, 0)
    assert written.begun.wait(DEADLINE_S)
    put(outbox, 1)
    outbox.close()
    assert (outbox.counts(), written.lost) == ({"dropped": 1}, [(1, 0)])
    assert not written.closed.is_set()
    written.gate.set()
    assert written.closed.wait(DEADLINE_S)
    assert written.records == [a_record(0)]


def test_a_writer_that_fails_gets_the_next_records(caplog):
    got, done = [], threading.Event()

    def write(records, *_):
        got.extend(records)
        done.set()
        if records:
            raise OSError("the disk is full")

    outbox = outbox_to(write)
    for number in (0, 1):
        done.clear()
        put(outbox, number)
        assert done.wait(DEADLINE_S)
    outbox.close()
    assert got == [a_record(0), a_record(1)]
    assert outbox.counts() == {"dropped": 2}
    assert caplog.text.count("a recording loses requests") == 1


def test_requests_of_which_no_record_can_be_made_are_lost_alone():
    written = Written()
    written.gate.set()
    outbox = outbox_to(written.write)
    outbox.put(lambda: [1 // 0], 3, 1)
    put(outbox, 1)
    outbox.count(too_large=2)
    outbox.close()
    assert written.records == [a_record(1)]
    assert (sum(dropped for dropped, _ in written.lost), sum(large for _, large in written.lost)) == (3, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": ""},
        {"path": 3},
        {"share": 0},
        {"share": 1.5},
        {"share": True},
        {"share": "1"},
        {"share": float("nan")},
        {"without": "text"},
        {"without": [1]},
        {"files": 0},
        {"file_bytes": 100},
        {"record_bytes": 2.5},
    ],
)
def test_options_of_a_recording_are_checked(wrong):
    with pytest.raises(PyTritonBadParameterError, match=next(iter(wrong))):
        Recording(**{"path": "day.ptr", **wrong})


@pytest.mark.parametrize("made", [0, 1])
def test_groups_that_cannot_be_combined_are_lost_and_the_next_ones_are_written(made):
    written, failures = Written(), [1]
    written.gate.set()

    def combine(groups):
        yield from [a_record()] * made
        if failures and groups:
            raise MemoryError(failures.pop())
        yield from combined(SHARED, groups)

    outbox = Outbox(combine, written.write, "test", written.closed.set)
    outbox.put(lambda: [a_group(0, arrays(0), responses=1), a_group(1, arrays(1), responses=1)], 2, 1)
    wait_for(lambda: outbox.counts().get("dropped"), "groups to be lost")
    outbox.put(lambda: [a_group(2, arrays(2), responses=1)], 1, 1)
    outbox.close()
    assert (outbox.counts()["recorded"], outbox.counts()["dropped"]) == (1 + 2 * made, 2 - made)
    assert written.closed.is_set()
