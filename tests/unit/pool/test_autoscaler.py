"""When an autoscaler changes the number of workers."""

from types import SimpleNamespace

import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.pool.autoscaler import Autoscaler, Load
from tests.unit.children import in_child


class Scripted:
    """Remembers what it was told in the place of a Triton object."""

    def __init__(self):
        self.counts = []
        self.is_ready = False

    def scale(self, model_name, count):
        assert model_name == "m"
        self.counts.append(count)

    def worker_status(self, model_name):
        state = "ready" if self.is_ready else "at zero"
        return [SimpleNamespace(kind="template", state="ready"), SimpleNamespace(kind="process", state=state)]

    def statistics(self, model_name=None):
        raise AssertionError("decisions are made from what they are given")


@pytest.fixture
def triton():
    return Scripted()


def make(triton, **options):
    return Autoscaler(triton, "m", **{"maximum": 3, "queue_s": 0.1, "shrink_after": 2, **options})


def run(scaler, periods):
    """Decide after each period of 1 s, of which requests, their mean wait and the busy seconds are given."""
    load = Load()
    for requests, wait_s, busy_s in periods:
        load = Load(load.requests + requests, load.queued_s + requests * wait_s, load.busy_s + busy_s)
        scaler.decide(load, 1.0)


def test_workers_are_added_one_by_one_while_requests_wait(triton):
    run(make(triton), [(10, 0.05, 1.0), (10, 0.2, 1.0), (10, 0.3, 2.0), (10, 0.3, 3.0)])
    assert triton.counts == [2, 3]


def test_a_worker_is_spared_only_after_several_idle_periods_in_a_row(triton):
    scaler = make(triton, minimum=2)
    scaler.workers = 3
    idle, busy = (10, 0.0, 1.3), (10, 0.0, 1.5)  # of the 2 s that two workers have
    run(scaler, [idle, busy, idle, busy, idle, idle, idle, idle, idle])
    assert triton.counts == [2]


def test_nothing_to_do_is_idle_too(triton):
    scaler = make(triton)
    scaler.workers = 2
    run(scaler, [(0, 0.0, 0.0)] * 2)
    assert triton.counts == [1]


def test_the_last_worker_is_spared_after_periods_without_requests_and_comes_back_by_itself(triton):
    scaler = make(triton, minimum=0)
    assert scaler.workers == 1
    run(scaler, [(1, 0.0, 0.0), (0, 0.0, 0.0), (0, 0.0, 0.1), (0, 0.0, 0.0)])
    assert triton.counts == []
    scaler.decide(scaler._before, 1.0)
    assert (triton.counts, scaler.workers) == ([0], 0)
    for _ in range(3):
        scaler.decide(scaler._before, 1.0)
    run(scaler, [(5, 9.0, 0.5)])  # which waited for the worker
    assert (triton.counts, scaler.workers) == ([0], 1)


def test_a_worker_that_a_refused_request_or_a_rebind_has_started_is_spared_again(triton):
    scaler = make(triton, minimum=0)
    run(scaler, [(0, 0.0, 0.0)] * 2)
    assert (triton.counts, scaler.workers) == ([0], 0)
    triton.is_ready = True
    run(scaler, [(0, 0.0, 0.0)] * 3)
    assert (triton.counts, scaler.workers) == ([0, 0], 0)


def test_the_last_worker_stays_by_default(triton):
    scaler = make(triton)
    run(scaler, [(0, 0.0, 0.0)] * 5)
    assert (triton.counts, scaler.workers) == ([], 1)


def test_counters_that_begin_anew_with_a_load_are_understood(triton):
    scaler = make(triton)
    scaler.decide(Load(100, 1.0, 50.0), 1.0)
    scaler.decide(Load(10, 5.0, 1.0), 1.0)
    assert triton.counts == [2]


@pytest.mark.parametrize("options", [{"minimum": -1}, {"minimum": 4}, {"maximum": 0}, {"queue_s": 0}, {"period_s": -1}])
def test_limits_that_cannot_be_are_refused(triton, options):
    with pytest.raises(PyTritonBadParameterError):
        make(triton, **options)


def test_a_forked_child_may_leave_the_block(triton):
    with make(triton, period_s=60.0) as autoscaler:
        in_child(autoscaler.stop)
