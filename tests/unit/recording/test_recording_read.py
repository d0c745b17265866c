"""Files of recordings: in order, cut off, damaged, and while they are written."""

import threading

import pytest

from pytriton.recording import RecordedFiles, RecordingError, read
from pytriton.recording.format import MAGIC
from pytriton.recording.writer import RotatingFile
from tests.unit.recording.records import a_record, block_of, sealed


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


def test_of_no_files_there_is_no_request():
    assert [*read([])] == []
    with RecordedFiles() as files:
        assert len(files) == 0


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
