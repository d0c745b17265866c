"""Callables of remote workers that call models of the server, over their own connection, which has keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton import ModelHandle, Pipeline
from pytriton.client import AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import ModelConfig
from pytriton.triton import Triton
from pytriton.worker.origin import current_origin
from pytriton.workers import RemoteWorkers
from tests.server.conftest import local_config
from tests.server.handle_models import COLUMNS, count_up, halve, increase
from tests.server.own_server import address
from tests.server.ports import reserved_ports
from tests.server.processes import wait_for
from tests.server.proxies import HAS_EDGE

pytest.importorskip("zmq")
from pytriton.cluster.keys import make_keys
from tests.server.remote_handles import ARRAYS, STREAMS, WAITING, WAYS, hen, passing, slowly

pytestmark = pytest.mark.either_proxy

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
X = np.arange(3, dtype=np.float32)


class Served:
    """A server, and remote workers whose callables call its models."""

    def __init__(self, triton: Triton, http: str, grpc: str, listen: str, keys: Path) -> None:
        self.triton, self.http, self.grpc = triton, http, grpc
        self._keys, self._listen, self.processes = keys, listen, []

    def work(self, *functions: Any) -> subprocess.Popen[bytes]:
        """Start a worker of models."""
        factories = [f"{each.__name__}=tests.server.remote_handles:make_{each.__name__}" for each in functions]
        keys = [f"--key={self._keys}/worker.key_secret", f"--server-key={self._keys}/server.key"]
        command = [sys.executable, "-m", "pytriton", "worker", *factories, f"--connect={self._listen}", *keys]
        process = subprocess.Popen([*command, f"--app-dir={ROOT}", "--heartbeat=1.0"], cwd=ROOT)
        self.processes.append(process)
        return process

    def bind(self, *functions: Any, tensors: Any = ()) -> None:
        """Bind models with the callables of remote workers."""
        remote = RemoteWorkers(self._listen, key=self._keys / "server.key_secret", worker_keys=self._keys / "allowed")
        config = ModelConfig(max_batch_size=8)

        def bind(function: Any) -> None:
            self.triton.bind(function.__name__, remote, *tensors, config=config)

        with ThreadPoolExecutor(len(functions)) as pool:
            list(pool.map(bind, functions))

    def client(self, name: str) -> ModelClient:
        return ModelClient(self.http, name)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = tmp_path_factory.mktemp("keys")
    (keys / "allowed").mkdir()
    make_keys(keys, "server")
    public, _ = make_keys(keys, "worker")
    public.rename(keys / "allowed" / public.name)
    with reserved_ports(1) as (port,), local_config() as config, Triton(config=config) as triton:
        listen = f"tcp://127.0.0.1:{port}"
        served = Served(triton, address(config, "http"), address(config, "grpc"), listen, keys)
        for function in (halve, count_up):
            triton.bind(function)
        triton.bind("increase", increase, *COLUMNS, config=ModelConfig(max_batch_size=2))
        served.work(passing, hen, slowly, *WAYS, *STREAMS, *ARRAYS)
        served.bind(hen, slowly, *WAYS, *STREAMS)
        served.bind(passing, *ARRAYS, tensors=COLUMNS)
        try:
            yield served
        finally:
            for process in served.processes:
                process.kill()
                process.wait()


@pytest.mark.parametrize("function", WAYS)
def test_remote_callables_call_models_in_all_ways(served, function):
    with served.client(function.__name__) as client:
        assert client.call(6.0) == [3, 3, 1, *[3] * 100, 0, 1, 2]


@pytest.mark.parametrize("function", STREAMS)
def test_remote_callables_pass_streams_on(served, function):
    with DecoupledModelClient(served.grpc, function.__name__) as client:
        assert [*client.call(200)] == [2 * number for number in range(200)]


@pytest.mark.parametrize("function", ARRAYS)
def test_remote_callables_call_models_with_large_arrays_and_several_rows(served, function):
    x = np.tile(np.arange(1 << 18, dtype=np.float32), (3, 1))  # more rows than the called model takes at once
    with served.client(function.__name__) as client:
        np.testing.assert_array_equal(client.infer_batch(x)["y"], x + 1)


def test_errors_keep_their_code_and_name_both_models(served):
    with served.client("in_all_ways") as client, pytest.raises(PyTritonClientInferenceServerError) as caught:
        client.call(-1.0)
    assert "model 'halve', called by 'in_all_ways': ValueError: there is no half of that" in str(caught.value)


def test_id_deadline_priority_and_callers_go_along(served):
    found = []

    def seen(requests: list[Any]) -> list[Any]:
        origin, (request,) = current_origin.get(), requests
        callers = origin.callers(served.triton.triton_context.connector().secret)
        found.append((request.request_id, request.deadline, origin.priority, callers))
        return [{"y": request["x"]}]

    served.triton.bind("seen", seen, *COLUMNS)
    with served.client("passing") as client:
        client.with_options(request_id="mine", server_timeout_s=60.0, priority=2).infer_sample(X)
    ((request_id, deadline, priority, callers),) = found
    assert (request_id, priority, callers) == ("mine", 2 if HAS_EDGE else 0, (1, ["passing"]))
    assert 0 < deadline - time.monotonic() < 60


def test_models_that_would_wait_for_themselves_are_told_the_path(served):
    def egg(number: int, hen: ModelHandle) -> int:
        return hen(number - 1) if number else 0

    with pytest.raises(PyTritonValidationError, match="egg → hen → egg"):
        served.triton.bind("egg", Pipeline("hen"))
    served.triton.bind(egg)
    with served.client("hen") as client, pytest.raises(PyTritonClientInferenceServerError, match="hen → egg → hen"):
        client.call(2)


class Endless:
    """Models that answer when they are cancelled, or the test is over."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    async def endless(self, number: float) -> float:
        self.begun.set()
        try:
            await asyncio.sleep(DEADLINE_S)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return number

    async def endless_stream(self, number: float) -> AsyncIterator[float]:
        self.begun.set()
        try:
            while True:
                await asyncio.sleep(0.01)
                yield number
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise


@pytest.fixture
def endless(served):
    models = Endless()
    served.triton.bind("endless", models.endless)
    served.triton.bind("endless_stream", models.endless_stream)
    yield models
    for name in ("endless", "endless_stream"):
        served.triton.unbind(name)


def test_clients_that_go_away_and_workers_that_die_cancel_the_whole_tree(served, endless):
    process = served.work(*WAITING)
    served.bind(*WAITING)
    names = [each.__name__ for each in WAITING]

    async def leave(name: str) -> None:
        async with AsyncioModelClient(served.grpc, name) as client:
            call = asyncio.ensure_future(client.call(1.0))
            while not endless.begun.is_set():
                await asyncio.sleep(0.01)
            call.cancel()

    for name in names:
        asyncio.run(leave(name))
        wait_for(endless.cancelled.is_set, f"the cancellation of what {name} calls")
        endless.begun.clear()
        endless.cancelled.clear()
    for name in names[:2]:
        with served.client(name) as client, pytest.raises(PyTritonClientInferenceServerError, match="called by 'waits"):
            client.with_options(server_timeout_s=0.5).call(1.0)
        endless.begun.clear()
        endless.cancelled.clear()
    with served.client("waits") as client, ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.call, 1.0)
        assert endless.begun.wait(DEADLINE_S)
        process.kill()
        with pytest.raises(PyTritonClientInferenceServerError, match="was lost while it answered"):
            call.result()
    wait_for(endless.cancelled.is_set, "the cancellation of what the worker has called")
    for name in names:
        served.triton.unbind(name)


def test_a_callable_calls_a_model_while_it_takes_a_long_stream_of_another(served):
    def counted(count: int) -> Iterator[int]:
        yield from range(count)

    served.triton.bind(counted)
    with DecoupledModelClient(served.grpc, "slowly") as client:
        assert [*client.call(300)] == [*range(300)]
