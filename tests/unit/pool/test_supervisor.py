"""When a worker process is restarted, and what ends the wait for one that hangs. There is no server here."""

import errno
import os
import queue
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytriton.exceptions import PyTritonWorkerError
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.local_worker_supervisor import LocalWorkerSupervisor
from pytriton.pool.resources import WorkerResources
from pytriton.pool.worker_main import WorkerSpec
from pytriton.recording.format import HEAD
from pytriton.restarts import RestartPolicy
from pytriton.wire.control import DRAIN, MAX_REQUESTS, READY, RECORD, RECORDED
from pytriton.worker.inference import Options
from pytriton.worker.observation import Observation
from tests.server.processes import is_alive, wait_for

DEADLINE_S = 60.0
CONFIG = TritonModelConfig("model")


def ignoring(requests):
    return []


def hanging():
    threading.Event().wait()


class ScriptedProcess:
    """A worker process that reports what it is told to, and keeps what it is sent."""

    pid = 1

    def __init__(self, spec):
        self.spec, self.sent, self._reports = spec, [], queue.SimpleQueue()

    def report(self, *report):
        self._reports.put(report)

    def reports(self, start_timeout_s):
        return iter(self._reports.get, None)

    def send(self, *command):
        self.sent.append(command)

    def ask(self, question, *_):
        self.sent.append((question,))

    def stop(self):
        self._reports.put(None)

    kill = stop

    def wait(self):
        return "exit status 0"

    def recordings(self):
        """What it was told to record, from its start until it was last told to drain, which is waited for."""
        drains = [command for command in self.sent if command == (DRAIN,)]
        self.report(MAX_REQUESTS)
        wait_for(lambda: self.sent.count((DRAIN,)) > len(drains), "all reports to be handled")
        return [self.spec.recording, *(command[1] for command in self.sent if command[0] == RECORD)]


class ScriptedSupervisor(LocalWorkerSupervisor):
    """Starts no process."""

    def __init__(self, *args, **options):
        self.started = queue.SimpleQueue()
        super().__init__(*args, **options)

    def _launch(self, spec, descriptors=()):
        process = ScriptedProcess(spec)
        self.started.put(process)
        return process


@pytest.fixture
def supervise(tmp_path):
    """Supervises a worker whose factory is given, until the end of the test."""
    supervisors = []

    def start(factory, start_timeout_s=300.0, stop_timeout_s=0.1, kind=LocalWorkerSupervisor, observation=None):
        config, path = CONFIG, str(tmp_path / "socket")
        spec = WorkerSpec(
            name="model-0",
            factory=factory,
            takes_device=False,
            resources=WorkerResources(),
            path=path,
            config=config,
            options=Options(),
        )
        limits = {"start_timeout_s": start_timeout_s, "stop_timeout_s": stop_timeout_s}
        supervisors.append(
            kind(spec, RestartPolicy(), observation or Observation(), lambda: None, lambda: None, **limits),
        )
        return supervisors[-1]

    yield start
    for supervisor in supervisors:
        supervisor.stop()
        supervisor.join()


def test_a_process_that_cannot_be_followed_is_killed_and_followed_by_another(supervise, monkeypatch, caplog):
    supervisor = supervise(lambda: ignoring)
    supervisor.wait_ready(time.monotonic() + DEADLINE_S)
    first, refused, open_pidfd = supervisor.status().pid, [], os.pidfd_open

    def out_of_descriptors(pid, *flags):
        if not refused:
            refused.append(pid)
            raise OSError(errno.EMFILE, "Too many open files")
        return open_pidfd(pid, *flags)

    monkeypatch.setattr(os, "pidfd_open", out_of_descriptors)
    os.kill(first, signal.SIGKILL)
    wait_for(
        lambda: supervisor.status().state == "ready" and supervisor.status().pid not in (first, *refused), "another"
    )
    assert not is_alive(refused[0])
    assert "cannot be followed, and is killed" in caplog.text
    assert supervisor.is_alive()


def test_a_rebind_whose_factory_hangs_fails_at_its_deadline(supervise):
    supervisor = supervise(lambda: ignoring)
    supervisor.wait_ready(time.monotonic() + DEADLINE_S)
    supervisor._start_timeout_s = 0.1
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


def test_a_stop_does_not_wait_for_a_factory(supervise, tmp_path):
    def factory():
        (tmp_path / "pid").write_text(str(os.getpid()))
        hanging()

    supervisor = supervise(factory, stop_timeout_s=1e6)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the factory to be called")
    supervisor.stop()
    supervisor.join()
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert supervisor.status().state == "stopped"


@pytest.fixture
def scripted(supervise, tmp_path):
    """An observation that records to a file, and a scripted process that was started meanwhile."""
    observation = Observation()
    observation.start_recording(CONFIG, Recording(tmp_path / "m.ptr", without=["x"]))
    supervisor = supervise(None, kind=ScriptedSupervisor, observation=observation)
    process = supervisor.started.get(timeout=DEADLINE_S)
    wait_for(lambda: supervisor.status().pid is not None, "the process to be followed")
    yield observation, process
    observation.stop_recording(CONFIG)


def record_anew(observation, path, without):
    observation.stop_recording(CONFIG)
    observation.start_recording(CONFIG, Recording(path, without=without))
    return observation.recording(CONFIG)


def test_a_process_that_starts_meanwhile_is_told_of_the_recording_that_follows_another(scripted, tmp_path):
    observation, process = scripted
    last = record_anew(observation, tmp_path / "m.ptr", ["secret"])
    process.report(READY, False)
    first, *told = process.recordings()
    assert (first.recording.without, told) == (["x"], [last])


def test_a_process_is_told_of_each_change_of_what_is_recorded_once(scripted, tmp_path):
    observation, process = scripted
    process.report(READY, False)
    first, *told = process.recordings()
    assert told == []
    last = record_anew(observation, tmp_path / "m.ptr", ["secret"])
    observation.metrics = None  # its followers are told, and nothing has changed
    assert process.recordings() == [first, None, last]


def test_records_that_a_process_has_made_for_another_recording_are_dropped(scripted, tmp_path):
    observation, process = scripted
    process.report(READY, False)
    (first,) = process.recordings()
    last = record_anew(observation, tmp_path / "m.ptr", ["secret"])
    process.report(RECORDED, first.number, [HEAD.pack(0, 0.0, 1, 0) + b"with a secret"], 0, 0)
    process.report(RECORDED, last.number, [HEAD.pack(0, 0.0, 1, 0) + b"without it"], 0, 0)
    process.recordings()
    status = observation.stop_recording(CONFIG)
    assert (status.recorded, status.dropped) == (1, 1)
    assert (tmp_path / "m.ptr").read_bytes().endswith(b"without it")
