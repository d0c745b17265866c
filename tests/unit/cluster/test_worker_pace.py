"""How many batches a remote worker gets at a time."""

from types import SimpleNamespace

import pytest

zmq = pytest.importorskip("zmq")
from pytriton.cluster import pace as module  # noqa: E402
from pytriton.cluster.pace import MEASURE_S, WorkerPace  # noqa: E402

MS = 1e-3


def after(pace, busy_s, travel_s):
    """The pace after many equal batches."""
    for _ in range(50):
        pace.answered(busy_s, busy_s + travel_s)
    return pace


def test_a_worker_gets_two_batches_unless_its_callable_takes_long_beside_their_travel():
    assert WorkerPace().batches == 2
    assert after(WorkerPace(), 0.05 * MS, 0.4 * MS).batches == 2
    assert after(WorkerPace(), 5 * MS, 2 * MS).batches == 2
    assert after(WorkerPace(), 5 * MS, 0.4 * MS).batches == 1
    assert after(WorkerPace(), 0.0, 0.0).batches == 2, "times that the clock cannot tell apart"


def test_the_number_follows_the_callable_and_stays_where_both_are_right():
    pace = after(WorkerPace(), 5 * MS, 0.5 * MS)
    assert after(pace, 2 * MS, 0.5 * MS).batches == 1
    assert after(pace, 1 * MS, 0.5 * MS).batches == 2
    assert after(pace, 2 * MS, 0.5 * MS).batches == 2
    assert after(pace, 5 * MS, 0.5 * MS).batches == 1


def test_a_change_is_told_once():
    pace = WorkerPace()
    assert pace.answered(5 * MS, 5.1 * MS)
    assert not pace.answered(5 * MS, 5.1 * MS)


def test_travel_is_measured_by_a_batch_that_did_not_wait_for_another_one(monkeypatch):
    now = 100.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    pace = WorkerPace()
    assert pace.is_unsure
    assert not pace.answered(5 * MS, 0.0)
    assert pace.is_unsure
    pace.answered(5 * MS, 5.1 * MS)
    assert not pace.is_unsure
    now += MEASURE_S
    assert pace.is_unsure
