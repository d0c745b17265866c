"""``pytriton worker --count 4 --share``: processes that a template on the worker's machine forks."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.pool.resources import memory_of
from pytriton.triton import Triton
from pytriton.workers import RemoteWorkers
from tests.server.command import Command
from tests.server.conftest import local_config
from tests.server.ports import reserved_ports
from tests.server.processes import is_alive, is_template, is_worker, wait_for

pytest.importorskip("zmq")
pytestmark = pytest.mark.either_proxy

MODELS = """
import os
import random
import threading
import time
from pathlib import Path

import numpy as np

from pytriton import ModelHandle, batch
from factor import FACTOR


def make_weights():  # answers with the process, the model's factor, a random number and what after_fork was told
    random.seed(1)
    if FACTOR < 0:
        return batch(lambda other: {"y": other})
    weights, told = np.full(12_500_000, FACTOR), []  # 100 MB

    @batch
    def infer(x):
        answer = [os.getpid(), weights.max(), random.random(), told[0].index if told else -1]
        return {"y": np.repeat([answer], len(x), 0)}

    infer.after_fork = told.append
    infer.close = lambda: print("closed")
    return infer


def make_threaded():
    threading.Thread(target=threading.Event().wait, name="refresher", daemon=True).start()
    return make_weights()


def make_on_device(device):
    return make_weights()


def make_slowly():
    folder = Path(__file__).parent
    (folder / f"load-{len([*folder.glob('load-*')])}").mkdir()
    while not (folder / "gate").exists():
        time.sleep(0.01)
    return make_weights()


def make_calling():
    @batch
    def infer(x, doubled: ModelHandle):
        return {"y": doubled(x)["y"] + os.getpid()}

    return infer
"""
X = np.ones((1, 1), np.float32)


def told_to_be(folder, factor):
    (folder / "factor.new").write_text(f"FACTOR = {factor}\n")
    os.replace(folder / "factor.new", folder / "factor.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "models.py").write_text(MODELS)
    told_to_be(folder, 2.0)
    return folder


@pytest.fixture(scope="module")
def triton():
    with local_config() as config, Triton(config=config) as server:
        server.url = f"http://127.0.0.1:{config.http_port}"
        yield server


@pytest.fixture(scope="module")
def address():
    with reserved_ports(1) as (port,):
        yield f"tcp://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def start(folder, address):
    """``start("name=make_weights", "--count=4")`` runs the command; returns it."""
    started = []

    def start(model, *options):
        name, _, factory = model.partition("=")
        common = [f"--connect={address}", f"--app-dir={folder}", "--heartbeat=1.0"]
        started.append(Command(folder, "worker", f"{name}=models:{factory}", *common, *options))
        return started[-1]

    yield start
    for command in started:
        command.kill()


@contextmanager
def bound(triton, name, address, count, inputs="x"):
    remote = RemoteWorkers(address, min_workers=count)
    tensors = [[Tensor((-1,), dtype, name)] for name, dtype in ((inputs, np.float32), ("y", np.float64))]
    triton.bind(name, remote, *tensors, config=ModelConfig(max_batch_size=1))
    try:
        yield name
    finally:
        triton.unbind(name)


@pytest.fixture(scope="module")
def shared(start, triton, address):
    """Four workers of the model ``shared``, and the command that runs them."""
    command = start("shared=make_weights", "--count=4", "--share")
    with bound(triton, "shared", address, 4):
        yield command


def ask(triton, model):
    """The process that answers, its model's factor, a random number, and the number of the worker."""
    with ModelClient(triton.url, model, inference_timeout_s=60) as client:
        return tuple(client.infer_batch(X)["y"][0])


def joined(triton, model="shared"):
    return {status.pid for status in triton.worker_status(model)}


def template_of(command):
    (pid,) = filter(is_template, command.family())
    return pid


def wait_for_four(triton, but=frozenset()):
    wait_for(lambda: len(now := joined(triton)) == 4 and not now & but, "four workers")


def test_four_workers_share_what_the_factory_has_loaded(shared, start, triton, address):
    single = start("single=make_weights")
    with bound(triton, "single", address, 1):
        assert ask(triton, "single")[0] == single.process.pid
        one, _ = memory_of(single.process.pid)
        answers = {ask(triton, "shared") for _ in range(16)}
        assert {pid for pid, *_ in answers} == joined(triton)
        family = [*joined(triton), template_of(shared)]
        ratio = sum(memory_of(pid)[1] for pid in family) / memory_of(single.process.pid)[1]
        assert ratio <= 1.35
        assert one > 100_000_000 > 4 * max(memory_of(pid)[0] for pid in family)
    assert single.end() == 0


def test_forked_workers_call_models_of_the_server(start, triton, address):
    start("calling=make_calling", "--count=2", "--share")
    tensors = [[Tensor((-1,), dtype, name)] for name, dtype in (("x", np.float32), ("y", np.float64))]
    triton.bind("doubled", batch(lambda x: {"y": 2.0 * x}), *tensors)
    try:
        with bound(triton, "calling", address, 2):
            wait_for(lambda: {ask(triton, "calling")[0] - 2 for _ in range(8)} == joined(triton, "calling"), "both")
    finally:
        triton.unbind("doubled")


def test_each_worker_runs_after_fork_and_draws_other_random_numbers(shared, triton):
    answers = {ask(triton, "shared") for _ in range(32)}
    assert {index for *_, index in answers} == {0, 1, 2, 3}
    firsts = {pid: [number for each, _, number, _ in answers if each == pid] for pid in joined(triton)}
    assert len({number for numbers in firsts.values() for number in numbers}) == len(answers)


def test_a_killed_worker_is_forked_again_also_by_the_successor_of_a_killed_template(shared, triton):
    for victim in (None, template_of(shared)):
        if victim:
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: not is_alive(victim), "its end")  # noqa: B023
        before = joined(triton)
        assert int(ask(triton, "shared")[0]) in before
        killed = before.pop()
        os.kill(killed, signal.SIGKILL)
        wait_for_four(triton, but={killed})
        assert before < joined(triton)
        assert {int(ask(triton, "shared")[0]) for _ in range(16)} == joined(triton)
    assert template_of(shared) != victim


def test_sighup_loads_the_model_again_while_it_serves_and_no_request_fails(shared, triton, folder):
    stop, factors = threading.Event(), set()

    def call():
        while not stop.is_set():
            factors.add(ask(triton, "shared")[1])

    before, template = joined(triton), template_of(shared)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        try:
            for times, (wrong, why) in enumerate({"'no number'": "TypeError", "-1": "other"}.items(), start=1):
                told_to_be(folder, wrong)
                shared.process.send_signal(signal.SIGHUP)
                shared.wait_for("could not be loaded again, and goes on as it was", times)
                assert why in shared.output.rpartition("goes on as it was")[2]
                assert (template_of(shared), factors) == (template, {2})
                wait_for_four(triton)
                before = joined(triton)
            told_to_be(folder, 3.0)
            shared.process.send_signal(signal.SIGHUP)
            shared.wait_for("model shared is loaded again")
            wait_for_four(triton, but=before)
            wait_for(lambda: 3 in factors, "the new model to answer")
        finally:
            stop.set()
        assert [each.result() for each in calls] == [None, None]
    assert {ask(triton, "shared")[1] for _ in range(8)} == {3}


def test_signals_that_come_while_the_factory_runs_are_one_reload(start, triton, address, folder):
    command = start("slow=make_slowly", "--count=1", "--share")
    wait_for((folder / "load-0").exists, "the factory to be called")
    for _ in range(3):
        command.process.send_signal(signal.SIGHUP)
    (folder / "gate").mkdir()
    with bound(triton, "slow", address, 1):
        command.wait_for("model slow is loaded again")
        (folder / "gate").rmdir()
        for _ in range(3):
            command.process.send_signal(signal.SIGHUP)
            wait_for((folder / "load-2").exists, "the factory to be called again")
        assert command.end() == 0
    assert command.output.count("is loaded again") == 1
    assert "could not be loaded again" not in command.output
    assert not (folder / "load-3").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_and_template_end_with_the_command(start, triton, address, number):
    command = start("ending=make_weights", "--count=2", "--share")
    with bound(triton, "ending", address, 2):
        family = command.family()
        assert len([*filter(is_worker, family)]) == 2
        if number == signal.SIGKILL:
            os.kill(template_of(command), signal.SIGKILL)  # its workers do not end with it
        assert command.end(number) == (0 if number == signal.SIGTERM else -number)
        wait_for(lambda: not any(map(is_alive, family)), "all to end")
        assert command.output.count("closed") == (2 if number == signal.SIGTERM else 0)


def test_what_cannot_be_shared_is_refused_as_for_local_workers(start):
    refusals = {
        "make_threaded": "share=True cannot fork workers from a process in which\n- the factory has started the thread "
        "'refresher': start it in the callable's method after_fork(worker), or use share=False",
        "make_on_device": "has a parameter device, but with share=True it is called once for all workers; choose the "
        "device in the callable's method after_fork(worker)",
    }
    commands = {start(f"m={factory}", "--share"): reason for factory, reason in refusals.items()}
    for command, reason in commands.items():
        assert command.wait() == 1
        assert reason in command.output
        assert "pytriton: template of m could not be started: " in command.output


def test_workers_that_share_nothing_are_started_again_and_one_that_does_not_fit_ends_the_command(
    start, triton, address
):
    command = start("two=make_weights", "--count=2")
    with bound(triton, "two", address, 2):
        killed = joined(triton, "two").pop()
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(joined(triton, "two") - {killed}) == 2, "both to be there")
        assert ask(triton, "two")[3] == -1
    with bound(triton, "two", address, 0, inputs="other"):
        assert command.wait() == 1
        assert "other" in command.output
