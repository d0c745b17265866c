"""When a worker process is restarted, and what ends the wait for one that hangs. There is no server here."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pytriton.exceptions import PyTritonWorkerError
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.messages import WorkerSpec
from pytriton.pool.processes import Processes, WorkerResources
from pytriton.pool.supervisor import MAX_BACKOFF_S, RestartPolicy, Supervisor
from pytriton.worker.inference import Options
from pytriton.worker.observation import Observation
from tests.server.processes import is_alive, wait_for

DEADLINE_S = 60.0


def ignoring(requests):
    return []


def hanging():
    threading.Event().wait()


def test_restarts_wait_longer_with_each_death_up_to_a_limit():
    policy = RestartPolicy(max_restarts=2000, period_s=60.0)
    backoffs = [policy.record_death(now=0.0) for _ in range(2000)]
    assert backoffs[:4] == [0.0, 0.5, 1.0, 2.0]
    assert backoffs == sorted(backoffs)
    assert backoffs[-1] == MAX_BACKOFF_S


def test_a_worker_that_dies_too_often_in_a_period_is_not_restarted():
    policy = RestartPolicy(max_restarts=2, period_s=10.0)
    assert [policy.record_death(now) for now in (0.0, 6.0, 12.0)] == [0.0, 0.5, 0.5]
    assert policy.deaths == 2
    assert policy.record_death(now=13.0) is None
    assert RestartPolicy(max_restarts=0, period_s=10.0).record_death(now=0.0) is None


@pytest.fixture
def supervise(tmp_path):
    """Supervises a worker whose factory is given, until the end of the test."""
    supervisors = []

    def start(factory, **options):
        processes = Processes(factory, stop_timeout_s=0.1, **options)
        config, path = TritonModelConfig("model"), str(tmp_path / "socket")
        spec = WorkerSpec("model-0", factory, False, WorkerResources(), path, config, Options(), None, None)
        supervisors.append(Supervisor(spec, processes, Observation(), lambda: None, lambda: None))
        return supervisors[-1]

    yield start
    for supervisor in supervisors:
        supervisor.stop()
        supervisor.join()


def test_a_rebind_whose_factory_hangs_fails_at_its_deadline(supervise):
    supervisor = supervise(lambda: ignoring)
    supervisor.wait_ready(time.monotonic() + DEADLINE_S)
    supervisor._processes = replace(supervisor._processes, start_timeout_s=0.1)
    with pytest.raises(PyTritonWorkerError, match="could not replace its callable: it did not answer"):
        supervisor.rebind(hanging, False)
    assert supervisor.is_alive()


def test_an_interrupt_ends_a_rebind_whose_factory_hangs(supervise, tmp_path):
    entered = tmp_path / "entered"

    def factory():
        entered.touch()
        hanging()

    supervisor = supervise(lambda: ignoring)
    supervisor.wait_ready(time.monotonic() + DEADLINE_S)
    with ThreadPoolExecutor(1) as pool:
        rebinding = pool.submit(supervisor.rebind, factory, False)
        wait_for(entered.exists, "the new factory to be called")
        supervisor.interrupt()
        assert "it did not answer" in str(rebinding.exception(DEADLINE_S))


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_rebind_of_a_worker_that_reads_nothing_can_be_ended(supervise, tmp_path, interrupted):
    def factory():
        (tmp_path / "pid").write_text(str(os.getpid()))
        return ignoring

    large = bytes(10_000_000)  # more than a pipe takes
    supervisor = supervise(factory)
    supervisor.wait_ready(time.monotonic() + DEADLINE_S)
    worker = int((tmp_path / "pid").read_text())
    os.kill(worker, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        rebinding = pool.submit(supervisor.rebind, lambda: large and ignoring, False)
        wait_for(rebinding.running, "the rebind to begin")
        if interrupted:
            supervisor.interrupt()
            rebinding.exception(DEADLINE_S)  # waits for its end, whatever that is
        supervisor.stop()
        supervisor.join()
        rebinding.exception(DEADLINE_S)
    assert not is_alive(worker)


def test_an_interrupt_ends_the_wait_for_a_first_start(supervise):
    supervisor = supervise(hanging)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(supervisor.wait_ready, time.monotonic() + DEADLINE_S)
        supervisor.interrupt()
        assert "it was stopped" in str(waiting.exception(DEADLINE_S))
