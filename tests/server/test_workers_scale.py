"""A model gets more worker processes, and fewer, while it is served."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from pytriton.decorators import PerSequence
from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonWorkerError
from pytriton.model_config import DirectStrategy, ModelConfig, OldestStrategy, SequenceBatcher, Tensor
from pytriton.triton import Triton
from pytriton.workers import Autoscaler, Processes
from tests.server.arrays import filled
from tests.server.own_server import server_of
from tests.server.processes import is_alive, wait_for, workers_of
from tests.server.proxies import native_proxy_only
from tests.server.worker_factories import PID, doubling, telling_pid

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


@pytest.fixture
def callers(traffic):
    """Starts threads that call a model without a pause; at the end of the test none of their calls has failed."""
    stop, running = threading.Event(), []

    def call(model):
        while not stop.is_set():
            traffic.infer(model, filled(0))

    with ThreadPoolExecutor(2) as pool:
        yield lambda model: running.extend(pool.submit(call, model) for _ in range(2))
        stop.set()
    assert [each.exception() for each in running] == [None, None]


def test_workers_come_and_go_under_load_and_no_request_is_lost(bind, traffic, triton, callers):
    model = bind(Processes(telling_pid, count=1), None, PID, max_batch_size=1)
    (first,) = workers_of(model)
    callers(model)
    triton.scale(model, 3)
    workers = set(workers_of(model))
    assert (len(workers), first in workers) == (3, True)
    seen = set()
    wait_for(lambda: seen.add(int(traffic.infer(model, filled(0))["y"][0, 0])) or seen == workers, "all to answer")
    triton.scale(model, 2)
    assert len(workers_of(model)) == 2
    assert first in workers_of(model)


def test_an_autoscaler_follows_the_load(bind, triton, traffic):
    def factory():
        def infer(requests):
            threading.Event().wait(0.02)  # of work
            return [{"y": request["x"]} for request in requests]

        return infer

    model = bind(Processes(factory, count=2), max_batch_size=1)
    with Autoscaler(triton, model, maximum=2, queue_s=0.01, period_s=0.2, shrink_after=2) as scaler:
        assert len(workers_of(model)) == 1
        with ThreadPoolExecutor(4) as pool:

            def call(_):
                while scaler.workers < 2:
                    traffic.infer(model, filled(0))

            list(pool.map(call, range(4)))
        assert len(workers_of(model)) == 2
        wait_for(lambda: scaler.workers == 1, "a worker to be spared")
    assert len(workers_of(model)) == 1


def test_a_worker_that_cannot_be_started_leaves_all_as_it_was(bind, traffic, triton, tmp_path):
    def factory():
        with (tmp_path / "only once").open("x"):
            return doubling()

    model = bind(Processes(factory, count=1))
    before = workers_of(model)
    with pytest.raises(PyTritonWorkerError, match="FileExistsError"):
        triton.scale(model, 2)
    assert workers_of(model) == before
    assert traffic.infer(model, filled(2))["y"][0, 0] == 4


def test_what_cannot_be_scaled_is_refused(bind, triton):
    with pytest.raises(PyTritonInvalidOperationError, match="cannot be scaled; bind it with"):
        triton.scale(bind(doubling()), 2)
    with pytest.raises(PyTritonBadParameterError, match="count must be an integer from 1 to 1024"):
        triton.scale(bind(Processes(doubling, count=1)), 1025)
    with pytest.raises(PyTritonInvalidOperationError, match="is not bound"):
        triton.scale("nothing", 2)
    with pytest.raises(PyTritonBadParameterError, match="count must be an integer from 1 to 1024"):
        triton.scale(bind(Processes(doubling, count=1)), False)


def totals():
    """The sum of what a sequence has sent, and the worker's process id."""

    class Total:
        def __init__(self):
            self.sum = 0.0

        def __call__(self, x):
            self.sum += float(x.sum())
            return {"y": np.array([[self.sum, os.getpid()]])}

    return PerSequence(Total)


class Sequences:
    """Sequences of a model, and what each has sent."""

    def __init__(self, address, model):
        self.client = InferenceServerClient(address)
        self.model, self.sums, self.workers = model, {}, {}

    def send(self, number, end=False):
        """One request, whose answer has to come from the sequence's worker, with its state."""
        start = number not in self.sums
        self.sums[number] = self.sums.get(number, 0) + number
        x = InferInput("x", (1, 1), "FP32")
        x.set_data_from_numpy(np.full((1, 1), number, np.float32))
        marks = {"sequence_id": number, "sequence_start": start, "sequence_end": end}
        total, worker = self.client.infer(self.model, [x], **marks).as_numpy("y")[0]
        assert (total, worker) == (self.sums[number], self.workers.setdefault(number, worker))

    def end_all(self):
        for number in [*self.sums]:
            self.send(number, end=True)
            del self.sums[number], self.workers[number]

    def used_workers(self):
        """The workers of new sequences, one after the other."""
        for number in range(1001, 1021):
            self.send(number)
        used = {self.workers[number] for number in range(1001, 1021)}
        for number in range(1001, 1021):
            self.send(number, end=True)
            del self.sums[number], self.workers[number]
        return used


LONG_US = 600_000_000
STRATEGIES = [DirectStrategy(), OldestStrategy(max_candidate_sequences=32)]


@pytest.fixture
def sequences(bind, triton_config):
    """``sequences(count, strategy)``: a model whose workers keep the state of each sequence."""

    def start(count, strategy):
        batcher = SequenceBatcher(strategy=strategy, max_sequence_idle_microseconds=LONG_US)
        model = bind(Processes(totals, count=count), None, PID, batcher=batcher, max_batch_size=32)
        return Sequences(f"127.0.0.1:{triton_config.http_port}", model)

    return start


@native_proxy_only
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["direct", "oldest"])
def test_open_sequences_keep_their_workers_while_a_model_gets_more(sequences, triton, strategy):
    opened = sequences(1, strategy)
    for number in range(1, 7):
        opened.send(number)
    for count in (2, 4):
        triton.scale(opened.model, count)
        for number in range(1, 13):
            opened.send(number)
    assert len(workers_of(opened.model)) == 4
    opened.end_all()
    triton.scale(opened.model, 2)
    triton.scale(opened.model, 3)
    assert opened.used_workers() == set(workers_of(opened.model))


@native_proxy_only
def test_open_sequences_keep_their_workers_while_a_model_gets_fewer(sequences, triton):
    opened = sequences(3, DirectStrategy())
    for number in range(1, 13):
        opened.send(number)
    with ThreadPoolExecutor(1) as pool:
        scaled = pool.submit(triton.scale, opened.model, 1)
        for _ in range(3):
            for number in range(1, 13):
                opened.send(number)
        assert not scaled.done()
        assert len(workers_of(opened.model)) == 3
        opened.end_all()
        scaled.result()
    (left,) = workers_of(opened.model)
    assert opened.used_workers() == {left}
    triton.scale(opened.model, 2)
    assert opened.used_workers() == set(workers_of(opened.model))
    assert len(workers_of(opened.model)) == 2


@native_proxy_only
def test_a_server_that_died_after_scaling_finds_the_workers_that_are_left(free_config):
    with Triton(config=free_config) as triton:
        batcher = SequenceBatcher(max_sequence_idle_microseconds=LONG_US)
        tensors = [Tensor(name="x", shape=(-1,), dtype=np.float32)], PID
        config = ModelConfig(batcher=batcher, max_batch_size=32)
        triton.bind("m", Processes(totals, count=3), *tensors, config=config)
        triton.scale("m", 1)
        server = server_of(free_config)
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: not is_alive(server), "the server to die")
        triton.wait_for_ready()
        opened = Sequences(f"127.0.0.1:{free_config.http_port}", "m")
        assert opened.used_workers() == set(workers_of("m"))
        triton.scale("m", 3)
        assert opened.used_workers() == set(workers_of("m"))
        assert len(workers_of("m")) == 3
