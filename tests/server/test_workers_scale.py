"""A model gets more worker processes, and fewer, while it is served."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonWorkerError
from pytriton.workers import Autoscaler, Processes
from tests.server.arrays import filled
from tests.server.processes import wait_for, workers_of
from tests.server.worker_factories import PID, doubling, telling_pid, wait_for_file

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


@pytest.fixture
def callers(traffic):
    """Starts threads that call a model without a pause; at the end of the test none of their calls has failed."""
    stop, running = threading.Event(), []

    def call(model):
        while not stop.is_set():
            traffic.infer(model, filled(0))

    with ThreadPoolExecutor(2) as pool:
        yield lambda model: running.extend(pool.submit(call, model) for _ in range(2))
        stop.set()
    assert [each.exception() for each in running] == [None, None]


def test_workers_come_and_go_under_load_and_no_request_is_lost(bind, traffic, triton, callers):
    model = bind(Processes(telling_pid, count=1), None, PID, max_batch_size=1)
    (first,) = workers_of(model)
    callers(model)
    triton.scale(model, 3)
    workers = set(workers_of(model))
    assert (len(workers), first in workers) == (3, True)
    seen = set()
    wait_for(lambda: seen.add(int(traffic.infer(model, filled(0))["y"][0, 0])) or seen == workers, "all to answer")
    triton.scale(model, 2)
    assert len(workers_of(model)) == 2
    assert first in workers_of(model)


def test_an_autoscaler_follows_the_load(bind, triton, traffic):
    def factory():
        def infer(requests):
            threading.Event().wait(0.02)  # of work
            return [{"y": request["x"]} for request in requests]

        return infer

    model = bind(Processes(factory, count=2), max_batch_size=1)
    with Autoscaler(triton, model, maximum=2, queue_s=0.01, period_s=0.2, shrink_after=2) as scaler:
        assert len(workers_of(model)) == 1
        with ThreadPoolExecutor(4) as pool:

            def call(_):
                while scaler.workers < 2:
                    traffic.infer(model, filled(0))

            list(pool.map(call, range(4)))
        assert len(workers_of(model)) == 2
        wait_for(lambda: scaler.workers == 1, "a worker to be spared")
    assert len(workers_of(model)) == 1


def test_a_worker_that_cannot_be_started_leaves_all_as_it_was(bind, traffic, triton, tmp_path):
    def factory():
        with (tmp_path / "only once").open("x"):
            return doubling()

    model = bind(Processes(factory, count=1))
    before = workers_of(model)
    with pytest.raises(PyTritonWorkerError, match="FileExistsError"):
        triton.scale(model, 2)
    assert workers_of(model) == before
    assert traffic.infer(model, filled(2))["y"][0, 0] == 4


def test_what_cannot_be_scaled_is_refused(bind, triton):
    with pytest.raises(PyTritonInvalidOperationError, match="cannot be scaled; bind it with"):
        triton.scale(bind(doubling()), 2)
    with pytest.raises(PyTritonBadParameterError, match="count is 0"):
        triton.scale(bind(Processes(doubling, count=1)), 0)
    with pytest.raises(PyTritonInvalidOperationError, match="is not bound"):
        triton.scale("nothing", 2)


def test_a_model_is_served_with_its_first_worker_and_the_others_join_it(bind, traffic, tmp_path, callers):
    def in_turn(device):
        if device != "first":
            wait_for_file(tmp_path / "open")
        return telling_pid()

    devices = ["first", "second", "third"]
    model = bind(Processes(in_turn, devices=devices, wait_for="first"), None, PID, max_batch_size=1)
    callers(model)
    first = int(traffic.infer(model, filled(0))["y"][0, 0])
    (tmp_path / "open").touch()
    seen = {first}
    wait_for(lambda: seen.add(int(traffic.infer(model, filled(0))["y"][0, 0])) or len(seen) == 3, "the others")
    assert seen == set(workers_of(model))


def test_workers_that_cannot_join_the_first_one_are_given_up(bind, traffic, caplog):
    def factory(device):
        if device == "third":
            raise LookupError("no such device")
        return telling_pid()

    devices = ["first", "second", "third"]
    model = bind(Processes(factory, devices=devices, wait_for="first"), None, PID, max_batch_size=1)
    wait_for(lambda: len(workers_of(model)) == 2 and f"model {model} has 2 workers only" in caplog.text, "the other")
    assert "LookupError: no such device" in caplog.text
    seen = set()
    wait_for(lambda: seen.add(int(traffic.infer(model, filled(0))["y"][0, 0])) or len(seen) == 2, "both")
