"""Worker processes that a template forks: their memory, their start, and what becomes of them when it dies."""

import logging
import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.model_config import Tensor
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.processes import Host, descendants, is_alive, is_template, is_worker, wait_for, workers_of
from tests.server.worker_factories import PID, doubling, telling_pid
from tests.unit.generators import count_up_async

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


def answer(traffic, model):
    return traffic.infer(model, filled(0))["y"][0, 0]


def template_of(triton, model):
    (status,) = [each for each in triton.worker_status(model) if each.kind == "template"]
    return status


def test_workers_share_what_the_factory_has_loaded(bind, traffic, triton):
    def factory():
        weights = np.ones(12_500_000)  # 100 MB

        @batch
        def infer(x):
            return [x + weights.sum()]

        return infer

    single = bind(Processes(factory, count=1))
    shared = bind(Processes(factory, count=3, share=True))
    with ThreadPoolExecutor(3) as pool:
        assert {*pool.map(lambda _: answer(traffic, shared), range(12))} == {12_500_000}
    (one,) = triton.worker_status(single)
    workers = triton.worker_status(shared)
    assert sorted(each.kind for each in workers) == ["process"] * 3 + ["template"]
    assert sum(each.pss_bytes for each in workers) <= 1.4 * one.pss_bytes
    assert all(each.private_bytes < 25_000_000 for each in workers)
    assert one.private_bytes > 100_000_000


def test_a_template_forks_the_successor_of_a_dead_worker_and_calls_the_factory_no_more(bind, traffic, tmp_path):
    def factory():
        with (tmp_path / "only once").open("x"):
            return telling_pid()

    model = bind(Processes(factory, count=2, share=True), None, PID, max_batch_size=1)
    for killed in workers_of(model):
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not is_alive(killed), "its end")  # noqa: B023
        assert answer(traffic, model) != killed
    wait_for(lambda: len(workers_of(model)) == 2, "both to be back")


def test_workers_survive_their_template_and_the_next_one_forks_their_successors(bind, traffic, triton, caplog):
    model = bind(Processes(telling_pid, count=2, share=True), None, PID, max_batch_size=1)
    workers, template = workers_of(model), template_of(triton, model)
    os.kill(template.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(template.pid), "its end")
    assert answer(traffic, model) in workers
    for killed in workers:
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not is_alive(killed), "its end")  # noqa: B023
    assert answer(traffic, model) not in workers
    wait_for(lambda: len(workers_of(model)) == 2, "both to be back")
    successor = template_of(triton, model)
    assert (successor.state, successor.restarts) == ("ready", 1)
    assert "ended with signal SIGKILL" in successor.last_error
    assert f"template of {model} died and is started again" in caplog.text


def test_a_worker_that_is_added_when_the_template_has_just_died_waits_for_the_next_one(bind, traffic, triton):
    model = bind(Processes(telling_pid, count=1, share=True), None, PID, max_batch_size=1)
    template = template_of(triton, model)
    os.kill(template.pid, signal.SIGKILL)
    triton.scale(model, 3)
    assert template_of(triton, model).pid != template.pid
    workers = {each.pid for each in triton.worker_status(model) if each.kind == "process"}
    assert len(workers) == 3
    assert answer(traffic, model) in workers


def test_a_template_that_cannot_be_made_again_leaves_its_workers_and_ends_the_model_with_them(
    bind, traffic, triton, tmp_path
):
    def factory():
        with (tmp_path / "only once").open("x"):
            return telling_pid()

    model = bind(Processes(factory, count=1, share=True, max_restarts=0), None, PID)
    os.kill(template_of(triton, model).pid, signal.SIGKILL)
    wait_for(lambda: template_of(triton, model).state == "failed", "the template to be given up")
    (_, worker) = triton.worker_status(model)
    assert answer(traffic, model) == worker.pid
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: {each.state for each in triton.worker_status(model)} == {"failed"}, "the worker to be given up")
    triton.unbind(model)


def test_a_template_that_dies_while_workers_wait_for_it_ends_with_its_model(bind, triton, tmp_path):
    def factory():
        while (tmp_path / "hold").exists():
            threading.Event().wait(0.01)
        return telling_pid()

    model = bind(Processes(factory, count=1, share=True, stop_timeout_s=0.2), None, PID)
    (tmp_path / "hold").touch()
    template = template_of(triton, model).pid
    for pid in (template, *workers_of(model)):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: template_of(triton, model).pid not in (None, template), "another template")
    triton.unbind(model)
    assert workers_of(model) == []


def test_workers_are_forked_and_end_under_load_and_no_request_is_lost(bind, traffic, triton):
    model = bind(Processes(telling_pid, count=1, share=True), None, PID, max_batch_size=1)
    (first,) = workers_of(model)
    stop, seen = threading.Event(), set()

    def call():
        while not stop.is_set():
            seen.add(answer(traffic, model))

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        try:
            triton.scale(model, 3)
            workers = set(workers_of(model))
            assert (len(workers), first in workers) == (3, True)
            wait_for(lambda: seen == workers, "all to answer")
            triton.scale(model, 1)
            assert workers_of(model) == [first]
            triton.rebind(model, Processes(lambda: batch(lambda x: [x * 0.0 - os.getpid()])))
            (worker,) = workers_of(model)
            assert worker != first
            wait_for(lambda: -worker in seen, "the new callable to answer")
        finally:
            stop.set()
        assert [each.result() for each in calls] == [None, None]


def test_a_rebind_that_fails_leaves_workers_and_template(bind, traffic, triton):
    model = bind(Processes(telling_pid, count=2, share=True), None, PID)
    before, template = sorted(workers_of(model)), template_of(triton, model).pid
    with pytest.raises(PyTritonWorkerError, match=r"(?s)template of .* could not be started.*ZeroDivisionError"):
        triton.rebind(model, Processes(lambda: 1 / 0))
    with pytest.raises(PyTritonWorkerError, match="a coroutine function cannot take the place of a plain one"):
        triton.rebind(model, Processes(lambda: count_up_async))
    with pytest.raises(PyTritonValidationError, match="with share=True it is called once for all workers"):
        triton.rebind(model, Processes(lambda device: doubling()))
    assert (sorted(workers_of(model)), template_of(triton, model).pid) == (before, template)
    assert answer(traffic, model) in before


def test_a_rebind_whose_workers_cannot_start_brings_the_old_callable_back(bind, traffic, triton):
    def refusing():
        infer = telling_pid()

        def after_fork(worker):
            raise LookupError(f"no {worker.name}")

        infer.after_fork = after_fork
        return infer

    model = bind(Processes(telling_pid, count=2, share=True), None, PID, max_batch_size=1)
    template = template_of(triton, model).pid
    with pytest.raises(PyTritonWorkerError, match=f"LookupError: no {model}-0"):
        triton.rebind(model, Processes(refusing))
    wait_for(lambda: {each.state for each in triton.worker_status(model)} == {"ready"}, "all to be back")
    assert template_of(triton, model).pid == template
    assert answer(traffic, model) in workers_of(model)


def test_a_restart_forks_each_worker_again(bind, traffic, triton):
    model = bind(Processes(telling_pid, count=2, share=True), None, PID)
    before = {*workers_of(model)}
    (bound,) = triton._models.versions(model)
    bound.restart_workers()
    wait_for(lambda: len({*workers_of(model)} - before) == 2, "new workers")
    assert answer(traffic, model) in {*workers_of(model)} - before


def test_a_worker_runs_after_fork_and_has_its_device_its_name_and_its_own_log(bind, traffic, caplog):
    def factory():
        made_by, told = os.getpid(), []

        @batch
        def infer(x):
            (worker,) = told
            logging.getLogger("mine").warning("answering")
            values = (
                worker.name,
                worker.index,
                worker.device,
                os.environ["CUDA_VISIBLE_DEVICES"],
                made_by != os.getpid(),
            )
            return [np.array([[" ".join(map(str, values)).encode()]] * len(x))]

        infer.after_fork = told.append
        print("made")
        return infer

    caplog.set_level(logging.INFO)
    text = [Tensor(name="y", shape=(1,), dtype=bytes)]
    model = bind(Processes(factory, devices=["cuda:3"], share=True), None, text)
    assert answer(traffic, model) == f"{model}-0 0 cuda:0 3 True".encode()
    wait_for(lambda: f"[{model}-0] answering" in caplog.messages, "the record")
    assert sum("answering" in message for message in caplog.messages) == 1
    wait_for(lambda: f"[{model}-template] made" in caplog.messages, "what the template has printed")


@pytest.mark.parametrize("generator", ["random", "numpy"])
def test_workers_draw_other_random_numbers(bind, traffic, tmp_path, generator):
    def factory():
        np.random.seed(1)
        random.seed(1)

        @batch
        def infer(x):
            (tmp_path / str(os.getpid())).touch()
            while len([*tmp_path.iterdir()]) < 2:  # until both workers have a request
                threading.Event().wait(0.005)
            number = random.random() if generator == "random" else np.random.random()
            return [np.full_like(x, number, np.float64)]

        return infer

    model = bind(Processes(factory, count=2, share=True), None, PID, max_batch_size=1)
    with ThreadPoolExecutor(2) as pool:
        numbers = {*pool.map(lambda _: answer(traffic, model), range(2))}
    assert len(numbers) == 2


def test_a_factory_that_starts_a_thread_is_refused_with_the_threads_name(bind):
    def factory():
        threading.Thread(target=threading.Event().wait, name="refresher", daemon=True).start()
        return doubling()

    with pytest.raises(PyTritonWorkerError, match=r"the thread 'refresher'.*after_fork.*share=False"):
        bind(Processes(factory, count=2, share=True))


def templates():
    """The templates that this process has started, and that have not ended."""
    return {pid for pid in descendants(os.getpid()) if is_template(pid) and is_alive(pid)}


@pytest.mark.parametrize(("limit_s", "reason"), [(0.5, "it took too long"), (300.0, "no weights")])
def test_a_template_that_does_not_get_ready_is_ended(bind, limit_s, reason):
    def factory():
        if limit_s > 1:
            raise LookupError("no weights")
        threading.Event().wait()

    before = templates()
    with pytest.raises(PyTritonWorkerError, match=f"(?s)template of .* could not be started: .*{reason}"):
        bind(Processes(factory, count=1, share=True, start_timeout_s=limit_s, stop_timeout_s=0.1))
    assert templates() <= before


def test_numpy_may_compute_in_the_factory_and_in_the_workers(bind, traffic):
    def factory():
        matrix = np.random.default_rng(0).random((600, 600))
        norm = np.linalg.norm(matrix @ matrix)

        @batch
        def infer(x):
            return [x + (np.linalg.norm(matrix @ matrix) == norm)]

        return infer

    model = bind(Processes(factory, count=2, share=True, threads=4))
    assert {answer(traffic, model) for _ in range(4)} == {1}


def test_workers_whose_templates_have_died_end_with_their_host(tmp_path, free_config):
    host = Host(tmp_path, free_config, "workers", "shared")
    try:
        killed = [*filter(is_template, host.family)]
        assert len(killed) == 3
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(is_alive, killed)), "them to end")
        assert sum(map(is_worker, host.family)) == 4
        host.family += descendants(host.process.pid)
        host.end(signal.SIGKILL)
        host.assert_nothing_left()
    finally:
        host.kill()


def test_a_template_is_no_worker(bind, triton):
    model = bind(Processes(telling_pid, count=1, share=True), None, PID)
    assert not is_worker(template_of(triton, model).pid)
    assert len(workers_of(model)) == 1
