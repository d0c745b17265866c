"""The queue and the thread that write a recording, and its options."""

import os
import threading
from functools import partial

import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import Recording
from pytriton.recording import read
from pytriton.recording import writer as writing
from pytriton.recording.format import MAGIC
from pytriton.recording.groups import combined
from pytriton.recording.writer import Outbox, RotatingFile, WriteError
from tests.server.processes import DEADLINE_S, wait_for
from tests.unit.recording.records import SHARED, a_group, a_record, arrays


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
