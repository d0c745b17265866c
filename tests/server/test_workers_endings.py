"""Worker processes that die, are replaced, cannot start, and end with what launched them."""

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonWorkerError
from pytriton.model_config import Tensor
from pytriton.triton import Triton, TritonSecurityConfig
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.own_server import server_of
from tests.server.processes import DEADLINE_S, Host, descendants, is_alive, is_worker, wait_for, workers_of
from tests.server.proxies import native_proxy_only
from tests.server.traffic import Traffic
from tests.server.worker_factories import PID, POLL_S, entered, gated, telling_pid, wait_for_file


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


@pytest.fixture(params=[False, True], ids=["", "shared"])
def share(request):
    """Whether workers are forked from a template."""
    return request.param


def pid_of(traffic, model):
    """The process that answers a request."""
    return int(traffic.infer(model, filled(0))["y"][0, 0])


def call_until_replaced(traffic, model, workers, columns=1):
    """Three clients call a model until so many workers have answered; none of their calls may fail."""
    seen, end = set(), time.monotonic() + DEADLINE_S

    def call(_):
        while len(seen) < workers:
            assert time.monotonic() < end
            seen.add(int(traffic.infer(model, np.zeros((1, columns), np.float32))["y"][0, 0]))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(call, range(3)))


def failing(call):
    """The text of the error that a call ends with."""
    with pytest.raises(PyTritonClientInferenceServerError) as error:
        call()
    return str(error.value)


def test_a_killed_worker_fails_its_own_requests_and_comes_back(bind, traffic, tmp_path, caplog, share):
    model = bind(Processes(gated(tmp_path), count=2, share=share), None, PID, max_batch_size=1)
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(pid_of, traffic, model) for _ in range(2)]
        wait_for(lambda: len(entered(tmp_path)) == 2, "both workers to be busy")
        calls += [pool.submit(pid_of, traffic, model) for _ in range(4)]
        killed, other = entered(tmp_path)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(entered(tmp_path)) == 3, "a new worker to take the next request")
        (tmp_path / "open").touch()
        errors = [call.exception() for call in calls]
        answers = {call.result() for call in calls if not call.exception()}
    (lost,) = [error for error in errors if error]
    assert "process is gone" in str(lost)
    assert killed not in answers
    assert answers == {other, *entered(tmp_path)} - {killed}
    assert f"process {killed} ended with signal SIGKILL" in caplog.text


@native_proxy_only
def test_while_a_worker_is_away_no_request_waits_for_it(bind, traffic, tmp_path):
    def factory():
        while (tmp_path / "hold").exists():
            threading.Event().wait(POLL_S)
        return gated(tmp_path)()

    model = bind(Processes(factory, count=2), None, PID, max_batch_size=1)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(pid_of, traffic, model) for _ in range(2)]
        wait_for(lambda: len(entered(tmp_path)) == 2, "both workers to be busy")
        (tmp_path / "hold").touch()
        killed, other = entered(tmp_path)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: any(call.done() for call in calls), "its request to fail")
        (tmp_path / "open").touch()
    assert {pid_of(traffic, model) for _ in range(8)} == {other}
    (tmp_path / "hold").unlink()
    wait_for(lambda: pid_of(traffic, model) != other, "the new worker")


@native_proxy_only
def test_while_a_worker_that_died_idle_is_away_no_request_waits_for_it(bind, traffic, tmp_path):
    def factory():
        while (tmp_path / "hold").exists():
            threading.Event().wait(POLL_S)
        return telling_pid()

    model = bind(Processes(factory, count=2), None, PID, max_batch_size=1)
    pids = {pid_of(traffic, model) for _ in range(4)}
    assert len(pids) == 2
    for killed in pids:
        (tmp_path / "hold").touch()
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{killed}").exists(), "the worker to end")  # noqa: B023
        assert len({pid_of(traffic, model) for _ in range(8)}) == 1
        (tmp_path / "hold").unlink()
        wait_for(lambda: len({pid_of(traffic, model) for _ in range(4)}) == 2, "the new worker")


LAST = 20


@native_proxy_only
def test_no_request_waits_for_the_successor_of_a_worker_that_is_replaced_under_load(bind, traffic, tmp_path):
    """It is told to leave while it works, so that the batch that is sent next finds nobody who reads it."""

    def factory():
        wait_for_file(tmp_path / "start")
        requests = count(1)

        @batch
        def infer(x):
            if next(requests) == LAST:
                time.sleep(0.3)  # meanwhile it is told
            if x.any():
                (tmp_path / "entered").touch()
                wait_for_file(tmp_path / "open")
            return [np.full_like(x, os.getpid(), np.float64)]

        return infer

    (tmp_path / "start").touch()
    model = bind(Processes(factory, count=2, max_requests=LAST), None, PID, max_batch_size=1)
    with ThreadPoolExecutor(5) as pool:
        held = pool.submit(traffic.infer, model, filled(1))
        wait_for((tmp_path / "entered").exists, "a worker to be busy")
        (tmp_path / "start").unlink()
        calls = [pool.submit(pid_of, traffic, model) for _ in range(LAST + LAST // 2)]
        replaced = calls[0].result(DEADLINE_S)
        wait_for(lambda: not Path(f"/proc/{replaced}").exists(), "the other one to be replaced")
        (tmp_path / "open").touch()
        other = int(held.result(DEADLINE_S)["y"][0, 0])
        assert {call.result(DEADLINE_S) for call in calls} == {replaced, other}
        (tmp_path / "start").touch()


def states(pid: int) -> list[str]:
    """The letters of a process's threads."""
    texts = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile
            texts.append(path.read_text())
    return [text.rpartition(")")[2].split()[0] for text in texts]


def test_a_worker_that_dies_while_it_is_idle_loses_no_request(bind, traffic, share):
    model = bind(Processes(telling_pid, count=1, share=share), None, PID)
    killed = pid_of(traffic, model)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{killed}").exists(), "the worker to end")
    assert pid_of(traffic, model) != killed


def test_a_batch_that_a_dying_worker_has_not_read_goes_to_the_next_one(bind, traffic, pending):
    model = bind(Processes(telling_pid, count=1), None, PID, max_batch_size=1)
    stopped = pid_of(traffic, model)
    os.kill(stopped, signal.SIGSTOP)
    wait_for(lambda: set(states(stopped)) == {"T"}, "its threads to stop: one that has not yet would read the batch")
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(pid_of, traffic, model) for _ in range(2)]
        wait_for(lambda: pending(model) == 1, "the other one to be sent to the worker")
        os.kill(stopped, signal.SIGKILL)
        assert all(call.result() != stopped for call in calls)


def test_a_worker_that_keeps_dying_is_given_up_and_the_model_is_no_longer_alive(free_config, caplog, share):
    def factory():
        return lambda requests: os._exit(7)

    with Triton(config=free_config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
        x, y = (Tensor(name=name, shape=(-1,), dtype=np.float32) for name in "xy")
        triton.bind("dying", Processes(factory, count=1, max_restarts=1, share=share), [x], [y])
        traffic = Traffic(f"http://127.0.0.1:{free_config.http_port}", "")
        for _ in range(2):
            assert "process is gone" in failing(partial(traffic.infer, "dying", filled(0)))
        wait_for(lambda: not triton.is_alive(), "the worker to be given up")
        assert "process is gone" in failing(partial(traffic.infer, "dying", filled(0)))
    assert "worker dying-0 died 2 times; giving up: process" in caplog.text
    assert "exit status 7" in caplog.text


@pytest.mark.either_proxy
def test_restarts_leave_nothing_in_this_process_and_in_the_server(bind, traffic, triton_config, share):
    model = bind(Processes(telling_pid, count=1, share=share), None, PID)
    pids = os.getpid(), server_of(triton_config)

    def held_after_restart():
        killed = pid_of(traffic, model)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not is_alive(killed), "its end")
        assert pid_of(traffic, model) != killed
        return [len(os.listdir(f"/proc/{pid}/{what}")) for pid in pids for what in ("fd", "task")]

    *_, before = [held_after_restart() for _ in range(2)]
    *_, after = [held_after_restart() for _ in range(6)]
    assert all(now < then + 6 for now, then in zip(after, before, strict=True))  # the server's connections come and go


def test_a_worker_is_replaced_after_its_requests_and_loses_none(bind, traffic, share):
    model = bind(Processes(telling_pid, count=2, max_requests=3, share=share), None, PID, max_batch_size=1)
    call_until_replaced(traffic, model, workers=4)


@pytest.mark.parametrize("columns", [1, 50_000], ids=["small", "large"])
def test_a_worker_with_a_coroutine_function_is_replaced_and_loses_no_request(bind, traffic, columns, share):
    def factory():
        numbers = count()

        async def infer(requests):
            await asyncio.sleep(0.005 * (next(numbers) % 3))  # so that the worker has several when it is to end
            return [{"y": np.full_like(request["x"], os.getpid(), np.float64)} for request in requests]

        return infer

    model = bind(Processes(factory, count=1, max_requests=6, share=share), None, PID, max_batch_size=1)
    call_until_replaced(traffic, model, workers=4, columns=columns)


def test_what_the_factory_raises_is_raised_by_bind_with_its_traceback(bind, share):
    def factory():
        raise LookupError("no such weights")

    with pytest.raises(
        PyTritonWorkerError, match=r"(?s)could not be started: .*in factory.*LookupError: no such weights"
    ):
        bind(Processes(factory, count=2, share=share))


def test_a_worker_that_dies_in_its_factory_tells_its_last_words(bind, share):
    def factory():
        print("about to die")
        os.abort()

    with pytest.raises(PyTritonWorkerError, match=r"(?s)signal SIGABRT; its last lines:.*about to die"):
        bind(Processes(factory, count=1, share=share))


def test_a_factory_must_return_what_can_be_called(bind, share):
    with pytest.raises(PyTritonWorkerError, match="the factory returned 3, which cannot be called"):
        bind(Processes(lambda: 3, count=1, share=share))


def test_a_factory_that_takes_too_long_is_not_waited_for(bind, tmp_path, share):
    before = {pid for pid in descendants(os.getpid()) if is_worker(pid)}
    slow = partial(wait_for_file, tmp_path / "never")
    with pytest.raises(PyTritonWorkerError, match="it took too long"):
        bind(Processes(slow, count=1, start_timeout_s=0.5, stop_timeout_s=0.1, share=share))
    assert {pid for pid in descendants(os.getpid()) if is_worker(pid)} <= before


def test_a_callable_that_does_not_return_is_killed_with_its_worker(bind, traffic, triton, tmp_path, share):
    model = bind(Processes(gated(tmp_path), count=1, stop_timeout_s=0.2, share=share), None, PID)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(pid_of, traffic, model)
        wait_for(lambda: entered(tmp_path), "the worker to be busy")
        (worker,) = workers_of(model)
        os.kill(worker, signal.SIGSTOP)
        (bound,) = triton._models.versions(model, None)
        bound.disconnect()
        bound.join()
        assert not is_alive(worker)
        assert "process is gone" in str(call.exception())


def test_unbinding_ends_the_workers_after_they_have_closed_their_callables(bind, triton, tmp_path, share):
    class Model:
        def __call__(self, requests):
            return [{"y": request["x"]} for request in requests]

        def close(self):
            (tmp_path / f"closed-{os.getpid()}").touch()

    model = bind(Processes(Model, count=2, share=share))
    workers = workers_of(model)
    assert len(workers) == 2
    triton.unbind(model)
    assert workers_of(model) == []
    assert all((tmp_path / f"closed-{pid}").exists() for pid in workers)


@pytest.fixture
def host(tmp_path, free_config, share):
    host = Host(tmp_path, free_config, "workers", *(["shared"] if share else []))
    yield host
    host.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_what_launched_them(host, number):
    assert np.array_equal(Traffic(host.url, "").infer("double", filled(2))["y"], filled(4))
    assert sum(is_worker(pid) for pid in host.family) == 4
    output = host.end(number)
    assert "Traceback" not in output
    host.assert_nothing_left()


def test_an_unrecoverable_error_in_a_worker_ends_the_server(host):
    failing(partial(Traffic(host.url, "").infer, "fatal", filled(1)))
    output = host.output()
    assert "[fatal-0] model fatal: unrecoverable error" in output
    assert "serve returned" in output
    host.assert_nothing_left()
