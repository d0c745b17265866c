"""Several model instances in one worker process: its threads call the callable at once, over one copy of a model."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError, PyTritonWorkerError
from pytriton.model_config import SequenceBatcher
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.processes import is_alive, wait_for, workers_of
from tests.server.test_workers_scale import Sequences, totals
from tests.server.worker_factories import PID, telling_pid
from tests.unit.generators import count_up, count_up_async

pytestmark = pytest.mark.either_proxy

DEADLINE_S = 60.0
SHARED = pytest.mark.parametrize("share", [False, True], ids=["", "share"])


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


def meeting(parties):
    """Each call waits until so many run at once in this process, and answers with its process id."""

    def factory():
        barrier = threading.Barrier(parties)

        @batch
        def infer(x):
            barrier.wait(DEADLINE_S)
            return [np.full_like(x, os.getpid(), np.float64)]

        return infer

    return factory


def answers(traffic, model, count):
    with ThreadPoolExecutor(count) as pool:
        return [*pool.map(lambda _: traffic.infer(model, filled(0))["y"][0, 0], range(count))]


@SHARED
def test_a_worker_makes_several_calls_at_once(bind, traffic, triton, share):
    processes = Processes(meeting(3), count=1, instances_per_worker=3, share=share)
    model = bind(processes, None, PID, max_batch_size=1)
    (worker,) = workers_of(model)
    assert answers(traffic, model, 6) == [worker] * 6
    (status,) = [each for each in triton.worker_status(model) if each.kind == "process"]
    assert (status.pid, status.instances) == (worker, 3)


@SHARED
def test_a_model_of_several_instances_per_worker_is_scaled_also_to_zero_and_back(bind, traffic, triton, share):
    processes = Processes(meeting(2), count=2, instances_per_worker=2, share=share)
    model = bind(processes, None, PID, max_batch_size=1)
    triton.scale(model, 1)
    before = workers_of(model)
    assert answers(traffic, model, 2) == before * 2
    triton.scale(model, 0)
    wait_for(lambda: "at zero" in [each.state for each in triton.worker_status(model)], "the end of the worker")
    after = answers(traffic, model, 4)
    assert after == workers_of(model) * 4
    assert after != before * 4
    triton.scale(model, 3)
    assert len(workers_of(model)) == 3


def test_the_successor_of_a_dead_worker_makes_as_many_calls_at_once(bind, traffic):
    model = bind(Processes(meeting(2), count=1, instances_per_worker=2), None, PID, max_batch_size=1)
    (killed,) = workers_of(model)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: not is_alive(killed), "its end")
    first, second = answers(traffic, model, 2)
    assert first == second != killed


@SHARED
def test_a_rebind_changes_all_instances(bind, traffic, triton, share):
    model = bind(Processes(telling_pid, count=1, instances_per_worker=2, share=share), None, PID, max_batch_size=1)
    triton.rebind(model, Processes(meeting(2)))
    assert answers(traffic, model, 4) == workers_of(model) * 4


def test_sequences_keep_their_states_on_several_threads_of_a_worker(bind, triton, triton_config):
    batcher = SequenceBatcher(max_sequence_idle_microseconds=600_000_000)
    model = bind(Processes(totals, count=1, instances_per_worker=2), None, PID, batcher=batcher, max_batch_size=32)
    opened = Sequences(f"127.0.0.1:{triton_config.http_port}", model)
    for _ in range(3):
        for number in range(1, 13):
            opened.send(number)
    opened.end_all()
    for count in (2, 1):
        triton.scale(model, count)
        assert opened.used_workers() <= set(workers_of(model))


@SHARED
def test_coroutines_and_streams_are_refused(bind, share):
    async def infer(requests):
        return requests

    with pytest.raises(PyTritonWorkerError, match="a coroutine function, which answers several batches at once on one"):
        bind(Processes(lambda: infer, count=1, instances_per_worker=2, share=share))
    for function in (count_up, count_up_async):
        with pytest.raises(PyTritonValidationError, match="is decoupled, and its worker answers several requests at"):
            bind(
                Processes(lambda: function, count=1, instances_per_worker=2, share=share),  # noqa: B023
                decoupled=True,
                batcher=None,
            )
    with pytest.raises(PyTritonBadParameterError, match="instances_per_worker must be an integer from 1 to 64"):
        Processes(telling_pid, instances_per_worker=0)
