"""Files of recordings: they take turns, on disks that are full and in folders with other things."""

import os

import pytest

from pytriton.recording import read
from pytriton.recording.format import MAGIC
from pytriton.recording.writer import RotatingFile, WriteError
from tests.unit.recording.records import a_record


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


@pytest.mark.parametrize(
    ("there", "files", "is_refused"), [([1], 8, True), ([3], 8, True), ([1, 2, 3], 1, True), ([3], 2, False)]
)
def test_something_else_is_found_behind_a_gap(path, there, files, is_refused):
    for number in there:
        content = b"else" if number == there[-1] else MAGIC
        path.with_name(f"day.ptr.{number}").write_bytes(content)
    if is_refused:
        with pytest.raises(FileExistsError, match="move it away"):
            RotatingFile(path, 2**20, files)
    else:
        RotatingFile(path, 2**20, files).close()
    assert path.with_name(f"day.ptr.{there[-1]}").read_bytes() == b"else"


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
