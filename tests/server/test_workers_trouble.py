"""Worker processes whose factories hang, flood the log, cannot travel or fork, and what can be done meanwhile."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.exceptions import PyTritonWorkerError
from pytriton.pool.process import MAX_LINE_BYTES
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.processes import Host, command_line, is_alive, is_worker, wait_for, workers_of
from tests.server.worker_factories import PID, POLL_S, doubling, entered, gated, telling_pid

pytestmark = pytest.mark.either_proxy

START_TIMEOUT_S = 10.0  # more than a worker needs on a busy machine


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


def held(folder, value):
    """A callable that answers with a value; its factory waits as long as there is a file ``hold``."""

    def factory():
        (folder / f"made-{os.getpid()}").touch()
        while (folder / "hold").exists():
            threading.Event().wait(POLL_S)
        return batch(lambda x: [np.full_like(x, value)])

    return factory


def test_a_factory_that_cannot_be_pickled_is_an_error_that_says_so(bind):
    lock = threading.Lock()
    with pytest.raises(PyTritonWorkerError, match="the factory cannot be pickled, TypeError: cannot pickle"):
        bind(Processes(lambda: lock, count=1))


def test_a_rebind_to_what_cannot_be_pickled_changes_nothing(bind, traffic, triton):
    model = bind(Processes(telling_pid, count=1), None, PID)
    lock = threading.Lock()
    with pytest.raises(PyTritonWorkerError, match="cannot be pickled"):
        triton.rebind(model, Processes(lambda: lock))
    (worker,) = workers_of(model)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not is_alive(worker), "its end")
    assert traffic.infer(model, filled(0))["y"][0, 0] in workers_of(model)


def test_megabytes_that_a_factory_prints_are_logged_in_pieces_and_bars_of_progress_once(bind, caplog):
    def factory():
        print("x" * 3_000_000)
        for number in range(100_000):
            print(f"\r{number} %", end="")
        print("\rdone\r")
        return doubling()

    caplog.set_level("INFO", "pytriton.workers")
    model = bind(Processes(factory, count=1))
    wait_for(lambda: f"[{model}-0] done" in caplog.messages, "the last line")
    printed = [text for text in caplog.messages if text.startswith(f"[{model}-0] ")]
    assert sum(text.count("x") for text in printed) == 3_000_000
    assert max(map(len, printed)) < MAX_LINE_BYTES + 2**17
    assert not any("50000 %" in text for text in printed)


def test_a_worker_that_hangs_when_it_starts_again_is_killed_and_started_once_more(bind, traffic, tmp_path, caplog):
    model = bind(Processes(held(tmp_path, 1), count=1, start_timeout_s=START_TIMEOUT_S))
    (tmp_path / "hold").touch()
    os.kill(workers_of(model)[0], signal.SIGKILL)
    wait_for(lambda: "took longer than" in caplog.text, "it to be killed")
    (tmp_path / "hold").unlink()
    assert traffic.infer(model, filled(0))["y"][0, 0] == 1


def test_a_worker_that_starts_again_during_a_rebind_serves_the_new_callable(bind, traffic, triton, tmp_path):
    model = bind(Processes(held(tmp_path, 1), count=1))
    (tmp_path / "hold").touch()
    os.kill(workers_of(model)[0], signal.SIGKILL)
    wait_for(lambda: len([*tmp_path.glob("made-*")]) == 2, "the factory to be called again")
    with ThreadPoolExecutor(1) as pool:
        rebinding = pool.submit(triton.rebind, model, Processes(lambda: batch(lambda x: [x + 2])))
        (tmp_path / "hold").unlink()
        rebinding.result()
    assert traffic.infer(model, filled(0))["y"][0, 0] == 2


def test_what_a_killed_worker_has_forked_dies_too_and_its_request_fails_at_once(bind, traffic, tmp_path):
    def factory():
        infer = gated(tmp_path)()

        def forking(requests):
            if not (child := os.fork()):
                signal.pause()  # with the proxy's connection open
            (tmp_path / "child").write_text(str(child))
            return infer(requests)

        return forking

    model = bind(Processes(factory, count=1), None, PID, max_batch_size=1)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(traffic.infer, model, filled(0))
        wait_for(lambda: entered(tmp_path), "the callable to be called")
        os.kill(workers_of(model)[0], signal.SIGKILL)
        assert "process is gone" in str(call.exception())
    wait_for(lambda: not is_alive(int((tmp_path / "child").read_text())), "the child to end")


def test_a_signal_ends_a_host_whose_factories_hang(tmp_path, free_config):
    host = Host(tmp_path, free_config, "hang")
    try:
        wait_for(lambda: any(map(is_worker, host.family)), "the worker")
        assert "serve returned" in host.end(signal.SIGTERM)
        host.assert_nothing_left()
    finally:
        host.kill()


def test_a_worker_that_is_away_is_not_waited_for_when_its_model_gets_fewer(bind, traffic, triton, tmp_path):
    model = bind(Processes(held(tmp_path, 1), count=2, stop_timeout_s=0.2))
    (last,) = [pid for pid in workers_of(model) if f"{model}-1" in command_line(pid)]
    (tmp_path / "hold").touch()
    os.kill(last, signal.SIGKILL)
    wait_for(lambda: len([*tmp_path.glob("made-*")]) == 3, "the factory to be called again")
    triton.scale(model, 1)
    assert len(workers_of(model)) == 1
    assert traffic.infer(model, filled(0))["y"][0, 0] == 1
