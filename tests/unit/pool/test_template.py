"""What becomes of workers whose template hangs, dies or cannot be made. There is no server here."""

import atexit
import errno
import os
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytriton.exceptions import PyTritonWorkerError
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.local_worker_supervisor import LocalWorkerSupervisor
from pytriton.pool.resources import WorkerResources
from pytriton.pool.template import Template
from pytriton.pool.worker_main import WorkerSpec
from pytriton.restarts import RestartPolicy
from pytriton.worker.inference import Options
from pytriton.worker.observation import Observation
from tests.server.processes import is_alive, wait_for

DEADLINE_S = 60.0
LIMITS = {"start_timeout_s": 300.0, "stop_timeout_s": 0.1}


def ignoring(requests):
    return []


def hanging():
    threading.Event().wait()


class Forked:
    """A template and its workers, until the end of a test."""

    def __init__(self, folder, factory):
        self.folder, self.all = folder, []
        self.template = self.another(factory)

    def another(self, factory):
        self.factory = factory
        self.all.insert(0, Template("model", self.spec(0), RestartPolicy(), **LIMITS))
        return self.all[0]

    def spec(self, index):
        config, path = TritonModelConfig("model"), f"{self.folder}/socket.{index}"
        return WorkerSpec(
            name=f"model-{index}",
            factory=self.factory,
            takes_device=False,
            resources=WorkerResources(),
            index=index,
            path=path,
            config=config,
            options=Options(),
        )

    def supervise(self, index=0):
        spec, nothing = self.spec(index), lambda: None
        supervisor = LocalWorkerSupervisor(
            spec, RestartPolicy(), Observation(), nothing, nothing, template=self.template, **LIMITS
        )
        self.all.append(supervisor)
        return supervisor

    def worker(self, index=0):
        supervisor = self.supervise(index)
        supervisor.wait_ready(time.monotonic() + DEADLINE_S)
        return supervisor

    def end(self):
        for each in self.all:
            each.stop()
        for each in reversed(self.all):
            each.join()


@pytest.fixture
def forked(tmp_path):
    made = []

    def make(factory=lambda: ignoring):
        made.append(Forked(tmp_path, factory))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_a_worker_is_told_by_its_own_name_in_the_list_of_processes(forked):
    model = forked()
    names = [f"/proc/{model.worker(index).status().pid}/cmdline" for index in range(2)]
    names.append(f"/proc/{model.template.status().pid}/cmdline")
    last = []
    for name in names:
        with open(name, "rb") as file:
            last.append(file.read().rstrip(b"\0").rpartition(b"\0")[2])
    assert last == [b"model-0", b"model-1", b"model-template"]


def test_the_status_has_the_exit_of_a_worker(forked):
    supervisor = forked().worker()
    pid = supervisor.status().pid
    os.kill(pid, signal.SIGUSR1)
    wait_for(lambda: supervisor.status().pid not in (None, pid), "the next worker")
    assert f"process {pid} ended with signal SIGUSR1" in supervisor.status().last_error


def test_what_the_factory_has_made_for_its_process_outlives_workers_and_ends_with_the_template(forked, tmp_path):
    def factory():
        folder = tempfile.TemporaryDirectory(dir=tmp_path, prefix="made-")
        atexit.register((tmp_path / f"template-{os.getpid()}").touch)

        def infer(requests):
            return folder

        def after_fork(worker):
            atexit.register((tmp_path / f"worker-{os.getpid()}").touch)

        infer.after_fork = after_fork
        return infer

    model = forked(factory)
    worker = model.worker()
    template, first = model.template.status().pid, worker.status().pid
    worker.restart()
    wait_for(lambda: worker.status().pid not in (None, first), "the next worker")
    assert (tmp_path / f"worker-{first}").exists()
    assert len([*tmp_path.glob("made-*")]) == 1
    assert not [*tmp_path.glob("template-*")]
    model.end()
    wait_for(lambda: not is_alive(template), "its end")
    assert [path.name for path in tmp_path.glob("template-*")] == [f"template-{template}"]
    assert not [*tmp_path.glob("made-*")]


def test_a_template_that_hangs_holds_up_no_end(forked):
    model = forked()
    worker = model.worker()
    template, first = model.template.status().pid, worker.status().pid
    os.kill(template, signal.SIGSTOP)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: worker.status().pid is None, "the worker's end to be noticed")
    model.end()
    assert not is_alive(template)


def test_a_template_that_forks_nothing_in_time_is_killed_and_followed_by_another(forked):
    model = forked()
    worker = model.worker()
    template, first = model.template.status().pid, worker.status().pid
    model.template._start_timeout_s = 0.1
    os.kill(template, signal.SIGSTOP)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not is_alive(template), "it to be killed")
    model.template._start_timeout_s = DEADLINE_S
    wait_for(lambda: worker.status().state == "ready" and worker.status().pid != first, "the next worker")


def test_a_fork_that_fails_is_tried_again(forked, caplog):
    def factory():
        fork, results = os.fork, ["the trial", "the first worker", None]

        def failing():
            if results and results.pop(0) is None:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            return fork()

        os.fork = failing
        return ignoring

    worker = forked(factory).worker()
    first = worker.status().pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: worker.status().state == "ready" and worker.status().pid != first, "the next worker")
    assert "no process can be started: [Errno 11] Resource temporarily unavailable" in caplog.text


def test_a_worker_that_waits_for_its_template_can_be_stopped(forked):
    model = forked(hanging)
    waiting = model.supervise()
    wait_for(lambda: waiting._forked_from is model.template and model.template.status().pid, "it to wait")
    waiting.stop()
    waiting.join()
    assert waiting.status().state == "stopped"


def test_an_interrupt_ends_the_wait_for_a_template(forked):
    model = forked(hanging)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(model.template.wait_ready, time.monotonic() + DEADLINE_S)
        model.template.interrupt()
        assert "template of model could not be started: it was stopped" in str(waiting.exception(DEADLINE_S))


def test_without_a_template_a_worker_is_given_up_with_its_reason(forked):
    model = forked(lambda: 1 / 0)
    with pytest.raises(PyTritonWorkerError, match=r"(?s)template of model could not be started.*ZeroDivisionError"):
        model.worker()


def test_a_template_that_leaves_while_a_worker_lives_is_followed_by_another_that_forks(forked):
    model = forked()
    lives, starts = model.worker(0), model.worker(1)
    starts.end_idle()
    wait_for(lambda: starts.status().state == "at zero", "it to end")
    left, pid = model.template.status().pid, lives.status().pid
    model.template.end_idle()  # as where the other worker was at zero a moment ago
    starts.want()
    wait_for(lambda: starts.status().state == "ready", "it to be forked")
    assert model.template.status().pid != left
    assert (lives.status().state, lives.status().pid) == ("ready", pid)


def test_a_wait_for_a_template_that_is_over_is_no_death(forked, caplog):
    model = forked()
    worker = model.worker()
    first, hangs = worker.status().pid, model.another(hanging)
    worker.fork_from(hangs, wait=False)
    worker.restart()
    wait_for(lambda: worker.status().pid is None and worker._forked_from is hangs, "it to wait for the other one")
    worker.fork_from(model.template)
    assert worker.status().state == "ready"
    assert worker.status().pid != first
    assert worker.status().last_error == ""
    assert "died" not in caplog.text


def test_a_worker_that_starts_from_a_template_that_is_given_up_is_replaced(forked):
    def never_ready():
        def infer(requests):
            return []

        infer.after_fork = lambda worker: threading.Event().wait()
        return infer

    model = forked()
    worker = model.worker()
    first, refused = worker.status().pid, model.another(never_ready)
    refused.wait_ready(time.monotonic() + DEADLINE_S)
    worker.fork_from(refused, wait=False)
    worker.restart()
    wait_for(lambda: worker.status().pid not in (None, first), "a process that is never ready")
    worker.fork_from(model.template, wait=False)
    wait_for(lambda: worker.status().state == "ready", "the next one")
    assert worker._forked_from is model.template


def test_a_worker_that_is_asked_something_long_counts_as_busy_meanwhile(forked):
    worker = forked().worker()
    with worker._process._asking, ThreadPoolExecutor(1) as pool:  # as during a rebind
        assert pool.submit(worker.quiet_s).result(DEADLINE_S) == 0.0


def test_the_status_has_the_reason_why_no_process_can_be_started(forked, monkeypatch):
    def failing(*arguments, **options):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    model = forked()
    worker = model.worker()
    monkeypatch.setattr(model.template, "fork", failing)
    os.kill(worker.status().pid, signal.SIGKILL)
    wait_for(lambda: "Cannot allocate memory" in worker.status().last_error, "the reason")


def test_why_a_worker_has_ended_before_anybody_knew_it_is_told(forked, monkeypatch):
    def factory():
        def infer(requests):
            return []

        def after_fork(worker):
            raise ValueError("it does not fit")

        infer.after_fork = after_fork
        return infer

    def gone(pid, flags=0):
        wait_for(lambda: not is_alive(pid), "its end")
        raise ProcessLookupError(errno.ESRCH, "No such process")

    model = forked(factory)
    model.template.wait_ready(time.monotonic() + DEADLINE_S)
    monkeypatch.setattr(os, "pidfd_open", gone)
    with pytest.raises(PyTritonWorkerError, match="it does not fit"):
        model.worker()


def test_forks_leave_no_descriptor_in_the_template_and_in_this_process(forked):
    model = forked()
    worker = model.worker()
    pids = os.getpid(), model.template.status().pid

    def held_after_restart():
        killed = worker.status().pid
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: worker.status().state == "ready" and worker.status().pid != killed, "the next worker")
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]

    before = held_after_restart()
    for _ in range(3):
        after = held_after_restart()
    assert after == before


def test_a_worker_ends_with_the_program_although_its_template_is_gone(forked):
    model = forked()
    worker = model.worker().status().pid
    os.kill(model.template.status().pid, signal.SIGKILL)
    wait_for(lambda: model.template.status().restarts == 1, "another template")
    assert is_alive(worker)
    model.template._ends[1].close()  # as the kernel does when the program ends
    wait_for(lambda: not is_alive(worker), "the worker to be killed")
