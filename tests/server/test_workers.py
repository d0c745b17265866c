"""Every kind of callable works in worker processes as it does in threads."""

import asyncio
import logging
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version

import numpy as np
import pytest

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch, triton_context
from pytriton.exceptions import (
    ErrorCode,
    PyTritonInvalidOperationError,
    PyTritonRequestError,
    PyTritonValidationError,
    PyTritonWorkerError,
)
from pytriton.model_config import DynamicBatcher, ModelWarmup, SequenceBatcher, Tensor, WarmupInput
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.counting import of
from tests.server.processes import DEADLINE_S, wait_for, workers_of
from tests.server.worker_factories import PID, doubling, taking_dlpack, telling_pid
from tests.unit.generators import count_up, count_up_async

Y_TEXT = [Tensor(name="y", shape=(1,), dtype=bytes)]


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


def test_a_callable_runs_in_another_process(bind, traffic):
    model = bind(Processes(telling_pid, count=1), None, PID)
    assert traffic.infer(model, filled(3))["y"][0, 0] not in (0, os.getpid())


def test_threads_and_processes_are_told_with_the_batches_that_threads_have(triton, bind, gated, traffic):
    (idle,) = triton.worker_status(gated.model)
    assert (idle.kind, idle.state, idle.pid, idle.batches) == ("thread", "ready", os.getpid(), 0)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(traffic.infer, gated.model, filled(1))
        gated.wait_called()
        assert [each.batches for each in triton.worker_status(gated.model)] == [1]
        gated.gate.open()
        made.result()
    model = bind(Processes(doubling, count=1))
    (worker,) = triton.worker_status(model)
    assert (worker.model, worker.version, worker.kind, worker.state) == (model, 1, "process", "ready")
    assert (worker.host, worker.package) == (socket.gethostname(), version("pytriton"))
    assert [worker.pid] == workers_of(model)
    with pytest.raises(PyTritonInvalidOperationError, match="model 'no' is not bound"):
        triton.worker_status("no")


def test_two_workers_answer_at_the_same_time_without_sharing_an_interpreter(bind, traffic, tmp_path):
    def factory():
        @batch
        def meet(x):
            (tmp_path / str(os.getpid())).touch()
            while len([*tmp_path.iterdir()]) < 2:  # and holds this interpreter's lock most of the time
                pass
            return [x]

        return meet

    model = bind(Processes(factory, count=2), max_batch_size=1)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(partial(traffic.infer, model), [filled(1), filled(2)]))
    assert [answer["y"][0, 0] for answer in answers] == [1, 2]


def test_a_closure_takes_along_what_it_refers_to(bind, traffic):
    weights = np.arange(4, dtype=np.float32)
    model = bind(Processes(lambda: batch(lambda x: [x * weights]), count=1))
    assert np.array_equal(traffic.infer(model, filled(2))["y"], 2 * weights[None])


def test_a_callable_that_was_bound_may_also_go_to_a_process(bind, traffic):
    @batch
    def double(x):
        return {"y": 2 * x}

    assert traffic.infer(bind(double), filled(2))["y"][0, 0] == 4
    assert traffic.infer(bind(Processes(lambda: double, count=1)), filled(3))["y"][0, 0] == 6


@pytest.mark.parametrize("share", [False, True])
def test_large_tensors_go_through_the_arenas_of_worker_and_proxy(bind, traffic, share):
    x = np.random.default_rng(0).random((2, 300_000), np.float32)
    model = bind(Processes(doubling, count=1, share=share))
    for _ in range(3):
        assert np.array_equal(traffic.infer(model, x)["y"], x * 2)


def test_dlpack_takes_large_merged_inputs_from_the_arena_without_a_copy(bind, traffic):
    both = DynamicBatcher(max_queue_delay_microseconds=int(DEADLINE_S * 1e6), preferred_batch_size=[2])
    model = bind(Processes(taking_dlpack, count=1), batcher=both, max_batch_size=2)
    x = np.ones((1, 300_000), np.float32)
    with ThreadPoolExecutor(2) as pool:
        answers = [*pool.map(partial(traffic.infer, model), [x, x])]
    assert [answer["y"].tolist() for answer in answers] == [[[2, True, True, True]]] * 2


@pytest.mark.parametrize("share", [False, True])
def test_an_object_is_told_its_model_and_keeps_its_state(bind, traffic, share):
    class Counting:
        def __init__(self):
            self.calls = 0

        @batch
        @triton_context
        def __call__(self, x, triton_context):
            self.calls += 1
            (config,) = triton_context.model_configs.values()
            return [np.array([[f"{config.model_name} {self.calls}".encode()]] * len(x))]

    model = bind(Processes(Counting, count=1, share=share), None, Y_TEXT)
    for number in (1, 2):
        assert traffic.infer(model, filled(0))["y"][0, 0] == f"{model} {number}".encode()


@pytest.mark.parametrize("share", [False, True])
def test_coroutines_of_one_worker_run_at_the_same_time(bind, traffic, share):
    def factory():
        inside, both = [], asyncio.Event()

        async def infer(requests):
            inside.append(requests)
            if len(inside) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), DEADLINE_S)
            return [{"y": request["x"]} for request in requests]

        return infer

    model = bind(Processes(factory, count=1, share=share), max_batch_size=1)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(partial(traffic.infer, model), [filled(1), filled(2)]))
    assert [answer["y"][0, 0] for answer in answers] == [1, 2]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("function", [count_up, count_up_async])
def test_decoupled_models_stream(bind, grpc_url, function, share):
    model = bind(Processes(lambda: function, count=1, share=share), decoupled=True, max_batch_size=8, batcher=None)
    with DecoupledModelClient(grpc_url, model) as client:
        responses = [response["y"].tolist() for response in client.infer_batch(of(100, rows=2))]
    assert responses == [[[number] * 2] * 2 for number in range(100)]


def test_a_model_without_batching_gets_single_samples(bind, traffic):
    def factory():
        return lambda requests: [{"y": request["x"].sum(keepdims=True)} for request in requests]

    model = bind(Processes(factory, count=1), batching=False)
    assert traffic.infer(model, np.array([1, 2], np.float32), sample=True)["y"].tolist() == [3]


@pytest.mark.parametrize("api", ["http"], indirect=True)
def test_a_sequence_stays_with_its_worker(bind, api):
    model = bind(Processes(telling_pid, count=2), None, PID, batcher=SequenceBatcher(), max_batch_size=4)
    for sequence in (1, 2, 3):
        flags = [{"sequence_start": number == 0, "sequence_end": number == 4} for number in range(5)]
        answers = [
            api.submit("infer", model, api.inputs({"x": filled(0)}), sequence_id=sequence, **each).result(DEADLINE_S)
            for each in flags
        ]
        assert len({answer.as_numpy("y")[0, 0] for answer in answers}) == 1


@pytest.mark.parametrize("share", [False, True])
def test_errors_reach_the_client_and_the_log_with_the_workers_name(bind, traffic, caplog, share):
    def factory():
        def infer(requests):
            raise PyTritonRequestError("no such user", ErrorCode.NOT_FOUND)

        return infer

    caplog.set_level(logging.INFO, "pytriton.worker")
    model = bind(Processes(factory, count=1, share=share))
    with pytest.raises(PyTritonClientInferenceServerError, match="no such user"):
        traffic.infer(model, filled(0))
    wait_for(lambda: f"[{model}-0] model {model}: the inference call failed, NOT_FOUND" in caplog.text, "the record")


def test_what_a_worker_logs_and_prints_is_in_the_log_with_its_name(bind, caplog):
    def factory():
        print("printed")
        print("to standard error", file=sys.stderr)
        logging.getLogger("mine").info("logged %s", threading.main_thread())
        logging.getLogger("mine").debug("too detailed")
        return doubling()

    caplog.set_level(logging.INFO)
    model = bind(Processes(factory, count=1))
    texts = {f"[{model}-0] printed", f"[{model}-0] to standard error"}
    wait_for(lambda: texts <= {record.getMessage() for record in caplog.records}, "the lines")
    (record,) = [record for record in caplog.records if record.name == "mine"]
    assert record.getMessage().startswith(f"[{model}-0] logged <_MainThread")
    assert (record.levelno, record.processName) == (logging.INFO, f"{model}-0")


@pytest.mark.parametrize("share", [False, True])
def test_each_worker_is_warm_before_it_serves(bind, traffic, share):
    def factory():
        shapes = []

        def infer(requests):
            shapes.extend(request["x"].shape for request in requests)
            return [{"y": np.array([[len(shapes)]] * len(request["x"]), np.float32)} for request in requests]

        return infer

    zeros = WarmupInput(np.float32, (3,), zero_data=True)
    model = bind(Processes(factory, count=1, share=share), model_warmup=[ModelWarmup("zeros", 2, {"x": zeros}, 2)])
    assert traffic.infer(model, filled(0))["y"][0, 0] == 3


def test_workers_know_their_devices_and_their_share_of_threads(bind, traffic):
    def factory(device):
        names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
        text = " ".join([device, *(os.environ[name] for name in names)])
        return batch(lambda x: [np.array([[text.encode()]] * len(x))])

    gpus = Processes(factory, devices=["cuda:0", "cuda:3"], threads=3)
    model = bind(gpus, None, Y_TEXT, max_batch_size=1)
    with ThreadPoolExecutor(8) as pool:
        answers = {answer["y"][0, 0] for answer in pool.map(partial(traffic.infer, model), [filled(0)] * 64)}
    assert answers <= {f"cuda:0 {gpu} 3".encode() for gpu in (0, 3)}
    assert answers


def test_a_rebind_changes_the_callable_and_keeps_the_workers(bind, traffic, triton):
    model = bind(Processes(telling_pid, count=1), None, PID)
    worker = int(traffic.infer(model, filled(0))["y"][0, 0])
    triton.rebind(model, Processes(lambda: batch(lambda x: [x * 0.0 - os.getpid()])))
    assert int(traffic.infer(model, filled(0))["y"][0, 0]) == -worker
    with pytest.raises(PyTritonWorkerError, match="a coroutine function cannot take the place of a plain one"):
        triton.rebind(model, Processes(lambda: count_up_async))
    with pytest.raises(PyTritonValidationError, match=r"was bound with pytriton.workers.Processes"):
        triton.rebind(model, doubling())
    assert int(traffic.infer(model, filled(0))["y"][0, 0]) == -worker


def test_a_model_of_threads_cannot_be_rebound_to_processes(bind, triton):
    model = bind(doubling())
    with pytest.raises(PyTritonValidationError, match="was bound with callables of this process, not with Processes"):
        triton.rebind(model, Processes(doubling, count=1))


def test_a_model_with_workers_can_be_unbound_and_bound_again(bind, traffic, triton, triton_config):
    model = bind(Processes(doubling, count=1))
    triton.unbind(model)
    x, y = (Tensor(name=name, shape=(-1,), dtype=np.float32) for name in "xy")
    triton.bind(model, Processes(doubling, count=1), [x], [y])
    with ModelClient(traffic.url, model) as client:
        assert client.infer_batch(filled(2))["y"][0, 0] == 4
