"""What the server has accepted is answered, however long that takes, when it stops or a model goes."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from queue import SimpleQueue

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.server.drain import open_connections
from pytriton.triton import Triton
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.conftest import LOCALHOST
from tests.server.multipliers import IN, OUT, is_served, times
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tritonclients import Api
from tests.server.worker_factories import wait_for_file

LARGE = 3_000_000  # numbers, which take the server seconds to write as JSON
INPUT_BYTES = 256 << 20


@pytest.fixture
def triton(free_config):
    """A server of the test's own."""
    with Triton(config=free_config) as triton:
        yield triton


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


def post(port, model, body, **headers):
    """Send a request; returns what gets the answer's output."""
    connection = HTTPConnection(LOCALHOST, port, timeout=DEADLINE_S)
    connection.request("POST", f"/v2/models/{model}/infer", body, headers)

    def answer():
        with closing(connection):
            response = connection.getresponse()
            text = response.read()
        assert response.status == 200, text
        return json.loads(text)["outputs"][0]

    return answer


def post_large(port, model):
    head = {
        "inputs": [
            {
                "name": "x",
                "shape": [INPUT_BYTES // 8],
                "datatype": "FP64",
                "parameters": {"binary_data_size": INPUT_BYTES},
            }
        ]
    }
    text = json.dumps(head).encode()
    return post(port, model, text + bytes(INPUT_BYTES), **{"Inference-Header-Content-Length": str(len(text))})


def bind_sizes(triton):
    """A model that tells how many numbers it got."""

    def infer(requests):
        return [{"y": np.array([request["x"].size])} for request in requests]

    x, y = Tensor(name="x", shape=(-1,), dtype=np.float64), Tensor(name="y", shape=(1,), dtype=np.int64)
    triton.bind("sizes", infer, [x], [y], config=ModelConfig(batching=False))


def test_a_stop_waits_until_a_large_answer_is_written_and_read(triton, free_config, pool):
    returned = threading.Event()

    def infer(requests):
        returned.set()
        return [{"y": np.arange(request["n"][0], dtype=np.float64)} for request in requests]

    n, y = Tensor(name="n", shape=(1,), dtype=np.int64), Tensor(name="y", shape=(-1,), dtype=np.float64)
    triton.bind("large", infer, [n], [y], config=ModelConfig(batching=False))
    body = {"inputs": [{"name": "n", "shape": [1], "datatype": "INT64", "data": [LARGE]}]}
    answer = pool.submit(post(free_config.http_port, "large", json.dumps(body)))
    assert returned.wait(DEADLINE_S)
    triton.stop()
    assert answer.result(DEADLINE_S)["shape"] == [LARGE]


def test_a_stop_waits_for_a_large_request_that_the_server_copies(triton, free_config, pool):
    bind_sizes(triton)
    answer = pool.submit(post_large(free_config.http_port, "sizes"))
    triton.stop()
    assert answer.result(DEADLINE_S)["data"] == [INPUT_BYTES // 8]


def test_an_unbind_waits_for_a_large_request_that_is_being_received(triton, free_config, pool):
    bind_sizes(triton)
    port = free_config.http_port
    sent = pool.submit(post_large, port, "sizes")
    wait_for(lambda: any(each.received_bytes > INPUT_BYTES // 8 for each in open_connections([port])), "some of it")
    triton.unbind("sizes")
    assert sent.result(DEADLINE_S)()["data"] == [INPUT_BYTES // 8]


@pytest.mark.parametrize(
    "protocols",
    [
        pytest.param((), id="alone"),
        pytest.param(("http", "grpc"), id="beside_other_clients", marks=pytest.mark.either_proxy),
    ],
)
def test_idle_streams_hold_neither_an_unbind_nor_a_stop_up(triton, free_config, pool, caplog, protocols):
    stopped = threading.Event()

    def infer(requests):
        for _ in range(2):
            yield [{"y": request["x"]} for request in requests]

    def call_on(protocol):
        port = free_config.http_port if protocol == "http" else free_config.grpc_port
        with Api(protocol, f"{LOCALHOST}:{port}") as api:
            while not stopped.wait(0.02):  # so that the connection is never silent
                with suppress(Exception):  # each library has its own errors for a server that ends
                    api.infer("other", {"x": filled(1)})

    for name in ("one", "two"):
        triton.bind(name, infer, IN, OUT, config=ModelConfig(batching=False, decoupled=True))
    triton.bind("other", times(2), IN, OUT)
    held_back = DynamicBatcher(max_queue_delay_microseconds=60_000_000)
    triton.bind("without_requests", times(2), IN, OUT, config=ModelConfig(batcher=held_back))
    callers = [pool.submit(call_on, protocol) for protocol in protocols]
    responses = SimpleQueue()
    x = InferInput("x", [3], "FP32")
    x.set_data_from_numpy(np.zeros(3, np.float32))
    with ExitStack() as streams:
        for name in ("one", "two"):
            client = streams.enter_context(InferenceServerClient(f"{LOCALHOST}:{free_config.grpc_port}"))
            client.start_stream(lambda result, error: responses.put(error))
            client.async_stream_infer(name, [x])
        assert [responses.get(timeout=DEADLINE_S) for _ in range(4)] == [None] * 4
        try:
            triton.unbind("one")
            triton.stop()
        finally:
            stopped.set()
    for caller in callers:
        caller.result(DEADLINE_S)
    assert "were ended after" not in caplog.text


def test_a_stop_waits_for_requests_behind_a_worker_that_is_started_again(triton, free_config, pool, tmp_path):
    def factory():
        if (tmp_path / "died").exists():
            wait_for_file(tmp_path / "open")

        def infer(requests):
            if not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os._exit(1)
            return [{"y": request["x"] * 2} for request in requests]

        return infer

    def call():
        with ModelClient(f"http://{LOCALHOST}:{free_config.http_port}", "fragile") as client:
            return client.infer_batch(filled(1))["y"][0, 0]

    triton.bind("fragile", Processes(factory, count=1), IN, OUT, config=ModelConfig(max_batch_size=1))
    with pytest.raises(PyTritonClientError, match="process is gone"):
        call()
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]})
    answers = [pool.submit(post(free_config.http_port, "fragile", body)) for _ in range(2)]
    wait_for(lambda: triton._server.pending(["fragile"]), "a request to wait")
    stopped = pool.submit(triton.stop)
    wait_for(lambda: not is_served(f"http://{LOCALHOST}:{free_config.http_port}", "fragile"), "it to refuse requests")
    assert not stopped.done()
    (tmp_path / "open").touch()
    assert [answer.result(DEADLINE_S)["data"] for answer in answers] == [[2] * 4] * 2
    stopped.result(DEADLINE_S)
