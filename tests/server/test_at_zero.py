"""Workers of an idle model end, and start again with the next request, which waits for them."""

import asyncio
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection

import numpy as np
import pytest

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientTimeoutError
from pytriton.decorators import batch
from pytriton.exceptions import (
    ErrorCode,
    PyTritonInvalidOperationError,
    PyTritonValidationError,
    PyTritonWorkerError,
)
from pytriton.model_config import ModelConfig, SequenceBatcher, Tensor
from pytriton.triton import Triton
from pytriton.workers import Autoscaler, Processes
from tests.server.arrays import filled
from tests.server.own_server import server_of
from tests.server.processes import is_alive, is_template, wait_for, workers_of
from tests.server.proxies import HAS_EDGE
from tests.server.test_workers_scale import Sequences, totals
from tests.server.worker_factories import PID, doubling, telling_pid
from tests.unit.generators import count_up, count_up_async

pytestmark = pytest.mark.either_proxy

SHARED = pytest.mark.parametrize(
    "share", [pytest.param(False, id="", marks=pytest.mark.thorough), pytest.param(True, id="share")]
)


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


def answer(traffic, model, value=0):
    return traffic.infer(model, filled(value))["y"][0, 0]


def states(triton, model):
    return [each.state for each in triton.worker_status(model)]


def wait_at_zero(triton, model):
    wait_for(
        lambda: {each.state for each in triton.worker_status(model) if each.kind != "template"} == {"at zero"}, "0"
    )


def counting(folder):
    """A factory that leaves a file for each of its calls."""

    def factory():
        (folder / f"{os.getpid()}").touch()
        return telling_pid()

    return factory


@SHARED
def test_workers_of_an_idle_model_end_and_start_with_the_next_request(bind, traffic, triton, tmp_path, share):
    model = bind(Processes(counting(tmp_path), count=2, share=share, minimum=0, idle_s=0.2), None, PID)
    answered = set()
    for _ in range(3):
        wait_at_zero(triton, model)
        assert workers_of(model) == []
        with ModelClient(traffic.url, model) as client:
            client.wait_for_model(1.0)
        (first, second) = (each for each in triton.worker_status(model) if each.kind == "process")
        assert (first.pid, second.pid) == (None, None)
        assert first.since is not None
        answered.add(answer(traffic, model))
    assert len(answered) == 3
    assert {each.restarts for each in triton.worker_status(model)} == {0}
    assert (len([*tmp_path.iterdir()]) == 1) is share


def test_some_workers_stay(bind, traffic, triton):
    model = bind(Processes(telling_pid, count=3, minimum=1, idle_s=0.2), None, PID)
    wait_for(lambda: states(triton, model) == ["ready", "at zero", "at zero"], "two to end")
    (kept,) = workers_of(model)
    assert answer(traffic, model)
    assert kept in workers_of(model)


def test_a_template_ends_too_and_the_factory_is_called_again(bind, traffic, triton, tmp_path):
    processes = Processes(counting(tmp_path), count=2, share=True, minimum=0, idle_s=0.2, keep_template=False)
    model = bind(processes, None, PID)
    for calls in (1, 2):
        wait_for(lambda: states(triton, model) == ["at zero"] * 3, "all to end")
        assert len([*tmp_path.iterdir()]) == calls
        assert answer(traffic, model)
    with pytest.raises(PyTritonValidationError, match="without share=True there is no template"):
        Processes(telling_pid, keep_template=False)


@SHARED
def test_a_model_is_scaled_to_zero_and_back(bind, traffic, triton, share):
    model = bind(Processes(telling_pid, count=2, share=share), None, PID, max_batch_size=1)
    triton.scale(model, 0)
    wait_at_zero(triton, model)
    assert len([each for each in triton.worker_status(model) if each.kind == "process"]) == 1
    first = answer(traffic, model)
    assert workers_of(model) == [first]
    triton.scale(model, 0)
    wait_at_zero(triton, model)
    triton.scale(model, 2)
    assert len(workers_of(model)) == 1  # the other one starts when it is needed
    seen = set()
    wait_for(lambda: seen.add(answer(traffic, model)) or len(seen) == 2, "both to answer")
    assert seen == set(workers_of(model))


@SHARED
def test_no_request_is_lost_while_workers_end_and_start(bind, traffic, triton, share):
    model = bind(Processes(telling_pid, count=2, share=share), None, PID, max_batch_size=1)
    stop, seen = threading.Event(), set()

    def call():
        while not stop.is_set():
            seen.add(answer(traffic, model))

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        try:
            for _ in range(5):
                before = len(seen)
                # A worker that is only starting is left to the request for which it starts.
                wait_for(lambda: triton.scale(model, 0) or len(seen) > before, "another worker")  # noqa: B023
        finally:
            stop.set()
        assert [each.result() for each in calls] == [None, None]


def test_large_arrays_arrive_before_and_after_zero(bind, traffic, triton):
    model = bind(Processes(doubling, count=1, share=True), max_batch_size=8)
    for value in range(1, 5):
        for rows in (1, 8):
            large = np.full((rows, 100_000), value, np.float32)
            assert np.array_equal(traffic.infer(model, large)["y"], 2 * large)
        triton.scale(model, 0)
        wait_at_zero(triton, model)


def test_a_worker_that_starts_answers_what_waits_for_it_and_is_at_zero_then(tmp_path, bind, traffic, triton):
    def factory():
        wait_for((tmp_path / "may start").exists, "the file")
        return telling_pid()

    (tmp_path / "may start").touch()
    model = bind(Processes(factory, count=1), None, PID)
    triton.scale(model, 0)
    wait_at_zero(triton, model)
    (tmp_path / "may start").unlink()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(answer, traffic, model)
        wait_for(lambda: states(triton, model) == ["starting"], "the worker to start")
        triton.scale(model, 0)
        (tmp_path / "may start").touch()
        first = waiting.result()
    wait_at_zero(triton, model)
    assert answer(traffic, model) != first


def test_a_worker_is_leaving_until_it_has_answered_its_batch(tmp_path, bind, traffic, triton):
    def factory():
        @batch
        def infer(x):
            (tmp_path / "entered").touch()
            wait_for((tmp_path / "open").exists, "the file")
            return [np.full_like(x, os.getpid(), np.float64)]

        return infer

    model = bind(Processes(factory, count=1), None, PID)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(answer, traffic, model)
        wait_for((tmp_path / "entered").exists, "the batch")
        triton.scale(model, 0)
        assert states(triton, model) == ["leaving"]
        (tmp_path / "open").touch()
        assert waiting.result()
    wait_at_zero(triton, model)


def test_coroutines_are_at_zero_and_come_back(bind, traffic, triton):
    def factory():
        @batch
        async def infer(x):
            await asyncio.sleep(0)
            return [np.full_like(x, os.getpid(), np.float64)]

        return infer

    model = bind(Processes(factory, count=1, share=True), None, PID)
    for _ in range(2):
        before = answer(traffic, model)
        triton.scale(model, 0)
        wait_at_zero(triton, model)
        assert answer(traffic, model) != before


@pytest.mark.parametrize("function", [count_up, count_up_async])
def test_a_model_is_not_idle_while_a_stream_is_open(bind, triton, triton_config, function):
    model = bind(Processes(lambda: function, count=1, minimum=0, idle_s=0.2), decoupled=True, batcher=None)
    for _ in range(2):
        wait_at_zero(triton, model)
        with DecoupledModelClient(f"grpc://127.0.0.1:{triton_config.grpc_port}", model) as client:
            answers = client.infer_sample(np.array([50], np.float32))
            first = next(answers)["y"]
            assert len([first, *answers]) == 50


def gated_factory(folder, goes_on=True):
    """Once there is a file ``hold``, calls of the factory wait for a file ``open``, and then end well or raise."""

    def factory():
        if (folder / "hold").exists():
            (folder / f"entered-{os.getpid()}").touch()
            while not (folder / "open").exists():
                threading.Event().wait(0.005)
            if not goes_on:
                raise LookupError("no weights")
        return telling_pid()

    return factory


def starting(folder):
    """The processes that wait in the factory."""
    return [int(path.name.rpartition("-")[2]) for path in folder.glob("entered-*")]


@pytest.fixture
def held(bind, traffic, triton, tmp_path):
    """``held(**options)``: a model at zero whose factory holds its next process up; and a request that waits for it."""
    with ThreadPoolExecutor(1) as pool:

        def start(goes_on=True, **options):
            model = bind(Processes(gated_factory(tmp_path, goes_on), count=1, **options), None, PID)
            triton.scale(model, 0)
            wait_at_zero(triton, model)
            (tmp_path / "hold").touch()
            waiting = pool.submit(answer, traffic, model)
            wait_for(lambda: starting(tmp_path), "a process to start")
            assert states(triton, model) == ["starting"]
            return model, waiting

        yield start
        (tmp_path / "open").touch()


def test_a_process_that_is_killed_while_it_starts_is_followed_by_one_that_answers(held, tmp_path):
    _, waiting = held()
    (killed,) = starting(tmp_path)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: len(starting(tmp_path)) == 2, "the next one")
    (tmp_path / "open").touch()
    (worker,) = set(starting(tmp_path)) - {killed}
    assert waiting.result() == worker


def test_a_factory_that_fails_for_good_fails_the_request(held, tmp_path, triton):
    model, waiting = held(goes_on=False, max_restarts=0)
    (tmp_path / "open").touch()
    assert "process is gone" in str(waiting.exception())
    assert states(triton, model) == ["failed"]
    triton.unbind(model)


def test_an_unbind_waits_for_the_request_that_has_started_a_worker(held, tmp_path, triton):
    model, waiting = held()
    with ThreadPoolExecutor(1) as pool:
        unbinding = pool.submit(triton.unbind, model)
        wait_for(lambda: not triton._models.versions(model)[0].loaded, "the unbind to begin")
        assert not unbinding.done()
        (tmp_path / "open").touch()
        assert waiting.result() in starting(tmp_path)
        unbinding.result()
    assert workers_of(model) == []


def test_a_client_that_does_not_wait_longer_is_answered_late(held, tmp_path, traffic):
    model, waiting = held()
    with (
        ModelClient(traffic.url, model, inference_timeout_s=0.2) as client,
        pytest.raises(PyTritonClientTimeoutError),
    ):
        client.infer_batch(filled(0))
    (tmp_path / "open").touch()
    assert waiting.result() == answer(traffic, model)


BRIEF_S = 0.001  # no worker starts within this time
COLD = pytest.mark.parametrize("options", [{}, {"share": True, "keep_template": False}], ids=["", "template"])


def check_refused(traffic, model, array):
    """Send a request that may wait for a moment only."""
    with ModelClient(traffic.url, model) as client:
        hurried = client.with_options(server_timeout_s=BRIEF_S)
        with pytest.raises(PyTritonClientInferenceServerError, match="no worker is ready before") as refused:
            hurried.infer_batch(array)
    assert refused.value.code == ErrorCode.UNAVAILABLE


@COLD
def test_a_request_that_cannot_wait_for_a_worker_is_refused_and_starts_one(
    bind, traffic, triton, triton_config, tmp_path, options
):
    model = bind(Processes(gated_factory(tmp_path), count=1, **options), None, PID)
    triton.scale(model, 0)
    wait_for(lambda: {*states(triton, model)} == {"at zero"}, "all to end")
    (tmp_path / "hold").touch()
    with closing(HTTPConnection("127.0.0.1", triton_config.http_port)) as connection:
        tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0]}
        body = {"inputs": [tensor], "parameters": {"timeout": int(BRIEF_S * 1e6)}}
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
        response = connection.getresponse()
        assert (response.status, bool(response.headers["Retry-After"])) == (503, HAS_EDGE)
        assert "no worker is ready before the request's deadline" in response.read().decode()
    wait_for(lambda: starting(tmp_path), "a worker to start all the same")
    for _ in range(3):
        check_refused(traffic, model, np.zeros((2, 100_000), np.float32))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(answer, traffic, model)
        (tmp_path / "open").touch()
        assert waiting.result() in workers_of(model)
    with ModelClient(traffic.url, model) as client:
        assert client.with_options(server_timeout_s=BRIEF_S).infer_batch(filled(0))["y"][0, 0] == waiting.result()


def test_a_request_that_can_wait_for_a_worker_waits_among_those_that_are_refused(bind, traffic, triton):
    model = bind(Processes(doubling, count=1), max_batch_size=8)
    for value in range(1, 4):
        triton.scale(model, 0)
        wait_at_zero(triton, model)
        check_refused(traffic, model, np.full((8, 100_000), value, np.float32))
        with ModelClient(traffic.url, model) as client:
            patient = client.with_options(server_timeout_s=600.0)
            large = np.full((8, 100_000), value, np.float32)
            assert np.array_equal(patient.infer_batch(large)["y"], 2 * large)


@pytest.mark.skipif(not HAS_EDGE, reason="Triton keeps the deadline of a call to itself")
def test_a_grpc_call_whose_deadline_comes_before_a_worker_is_refused(bind, triton, triton_config):
    def factory():
        time.sleep(3.0)
        return telling_pid()

    model = bind(Processes(factory, count=1), None, PID)
    triton.scale(model, 0)
    wait_at_zero(triton, model)
    with (
        ModelClient(f"grpc://127.0.0.1:{triton_config.grpc_port}", model, inference_timeout_s=2.5) as client,
        pytest.raises(PyTritonClientInferenceServerError, match="no worker is ready before"),
    ):
        client.infer_batch(filled(0))


def test_a_coroutine_function_gets_requests_that_can_wait_for_its_worker(bind, traffic, triton, tmp_path):
    def factory():
        while (tmp_path / "hold").exists():
            threading.Event().wait(0.005)

        @batch
        async def infer(x):
            return [2 * x]

        return infer

    model = bind(Processes(factory, count=1), max_batch_size=1)
    triton.scale(model, 0)
    wait_at_zero(triton, model)
    (tmp_path / "hold").touch()
    check_refused(traffic, model, filled(0))
    check_refused(traffic, model, filled(0))
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(traffic.infer, model, filled(value)) for value in range(4)]
        (tmp_path / "hold").unlink()
        assert [each.result()["y"][0, 0] for each in waiting] == [0, 2, 4, 6]


@SHARED
def test_a_model_at_zero_is_unbound_and_bound_again(bind, triton, share):
    model = bind(Processes(telling_pid, count=2, share=share), None, PID)
    triton.scale(model, 0)
    wait_at_zero(triton, model)
    triton.unbind(model)
    assert workers_of(model) == []


@SHARED
def test_a_rebind_at_zero_starts_workers_of_the_new_callable(bind, traffic, triton, share):
    model = bind(Processes(telling_pid, count=1, share=share, minimum=0, idle_s=0.5), None, PID)
    wait_at_zero(triton, model)
    with pytest.raises(PyTritonWorkerError, match="ZeroDivisionError"):
        triton.rebind(model, Processes(lambda: 1 / 0))
    triton.rebind(model, Processes(lambda: batch(lambda x: [x * 0.0 - os.getpid()])))
    assert answer(traffic, model) < 0
    wait_at_zero(triton, model)
    assert answer(traffic, model) < 0


def test_a_template_that_dies_while_its_model_is_at_zero_is_made_again(bind, traffic, triton):
    model = bind(Processes(telling_pid, count=1, share=True), None, PID)
    triton.scale(model, 0)
    wait_at_zero(triton, model)
    (template, _) = triton.worker_status(model)
    assert is_template(template.pid)
    os.kill(template.pid, signal.SIGKILL)
    assert answer(traffic, model) in workers_of(model)


LONG_US = 600_000_000


def test_a_model_with_open_sequences_is_not_idle(bind, triton, triton_config):
    batcher = SequenceBatcher(max_sequence_idle_microseconds=LONG_US)
    model = bind(Processes(totals, count=1, minimum=0, idle_s=0.1), None, PID, batcher=batcher, max_batch_size=32)
    opened = Sequences(f"127.0.0.1:{triton_config.http_port}", model)
    opened.send(1)
    with pytest.raises(PyTritonInvalidOperationError, match="may have open sequences, because its last request came"):
        triton.scale(model, 0)
    other = bind(Processes(telling_pid, count=1, minimum=0, idle_s=0.1), None, PID)
    wait_at_zero(triton, other)
    assert states(triton, model) == ["ready"]
    opened.send(1)
    opened.end_all()


def test_a_model_whose_sequences_have_ended_is_at_zero_and_can_be_scaled(bind, triton, triton_config):
    batcher = SequenceBatcher(max_sequence_idle_microseconds=100_000)
    model = bind(Processes(totals, count=3, minimum=0, idle_s=0.1), None, PID, batcher=batcher, max_batch_size=32)
    address = f"127.0.0.1:{triton_config.http_port}"
    Sequences(address, model).send(1)
    wait_at_zero(triton, model)
    for count in (1, 3, 2):
        triton.scale(model, count)
        Sequences(address, model).send(2, end=True)
        wait_at_zero(triton, model)
    assert len(states(triton, model)) == 2


def test_an_autoscaler_ends_the_last_worker_and_a_request_starts_it(bind, triton, traffic):
    model = bind(Processes(telling_pid, count=2), None, PID)
    with Autoscaler(triton, model, minimum=0, maximum=2, period_s=0.1, shrink_after=2) as scaler:
        for _ in range(2):
            wait_for(lambda: scaler.workers == 0, "all workers to be spared")
            wait_at_zero(triton, model)
            assert answer(traffic, model)
            wait_for(lambda: scaler.workers == 1, "it to be noticed")


def test_a_server_that_dies_finds_its_models_at_zero_and_starts_their_workers(free_config):
    with Triton(config=free_config) as triton:
        tensors = [Tensor(name="x", shape=(-1,), dtype=np.float32)], PID
        triton.bind("m", Processes(telling_pid, count=1, share=True), *tensors, config=ModelConfig())
        triton.scale("m", 0)
        wait_at_zero(triton, "m")
        server = server_of(free_config)
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: not is_alive(server), "the server to die")
        triton.wait_for_ready()
        assert states(triton, "m") == ["ready", "at zero"]
        with ModelClient(f"http://127.0.0.1:{free_config.http_port}", "m") as client:
            assert client.infer_sample(np.zeros(1, np.float32))["y"][0] in workers_of("m")
        triton.scale("m", 0)
        wait_at_zero(triton, "m")
    assert workers_of("m") == []
