"""Callables of this process as models of a server that shares no folder with it: proxies connect back over ZeroMQ."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch
from pytriton.exceptions import (
    PyTritonBadParameterError,
    PyTritonModelControlError,
    PyTritonValidationError,
    PyTritonWorkerError,
)
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import RemoteTriton
from pytriton.workers import Processes, RemoteWorkers
from tests.server.arrays import filled, strings
from tests.server.other_server import PROTOCOLS, TOKEN, RemoteProcess, answer, models_of
from tests.server.own_server import TENSORS, address, double
from tests.server.ports import reserved_ports
from tests.server.processes import command_line, descendants, wait_for, workers_of

pytest.importorskip("zmq")
from pytriton.cluster.keys import make_keys

pytestmark = pytest.mark.either_proxy

LOOPBACK = "tcp://127.0.0.1:0"
STREAM = ModelConfig(decoupled=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("program", "proxy", "stranger"):
        make_keys(folder / name, name)
    return folder


def keyed(keys, proxy="proxy"):
    return {
        "listen": LOOPBACK,
        "key": keys / "program" / "program.key_secret",
        "proxy_keys": keys / "proxy",
        "proxy_key": keys / proxy / f"{proxy}.key_secret",
        "heartbeat_s": 2.0,
    }


@pytest.fixture(scope="module")
def remote(server, keys):
    """Binds models of different names for the tests of this module."""
    with RemoteTriton(address(server, "http"), access_token=TOKEN, **keyed(keys)) as remote:
        yield remote
    assert models_of(server, TOKEN) == set()


def maps_of_proxies():
    """The memory of the Python backend's processes, one text each."""
    stubs = [pid for pid in descendants(os.getpid()) if "triton_python_backend_stub" in command_line(pid)[0]]
    return [Path(f"/proc/{pid}/maps").read_text() for pid in stubs]


def test_no_memory_is_shared_with_this_process(server, remote):
    remote.bind("unshared", double, *TENSORS)
    assert answer(server, "unshared") == 2
    assert {"memfd:" in maps for maps in maps_of_proxies()} == {False}
    with RemoteTriton(address(server, "http"), access_token=TOKEN) as beside:
        beside.bind("beside", double, *TENSORS)
        assert ["memfd:" in maps for maps in maps_of_proxies()].count(True) == 1


def test_callables_of_every_kind_are_served(server, remote):
    @batch
    async def infer(x):
        return [x * 5]

    def count(requests):
        for number in range(100):
            yield [{"y": request["x"] + number} for request in requests]

    remote.bind("async", infer, *TENSORS)
    remote.bind("stream", count, *TENSORS, config=STREAM)
    texts = [[Tensor(name=name, shape=(-1,), dtype=bytes)] for name in ("x", "y")]
    remote.bind("bytes", lambda requests: [{"y": request["x"]} for request in requests], *texts)
    remote.bind("instances", [double, double], *TENSORS)
    assert answer(server, "async") == 5
    assert answer(server, "instances") == 2
    with DecoupledModelClient(address(server, "grpc"), "stream") as client:
        assert [response["y"][0, 0] for response in client.infer_batch(filled(1))] == [*range(1, 101)]
    for protocol in PROTOCOLS:
        with ModelClient(address(server, protocol), "bytes") as client:
            sent = strings((2, 4))
            assert client.infer_batch(sent)["y"].tolist() == sent.tolist()
        with ModelClient(address(server, protocol), "instances") as client:
            large = np.arange(1 << 20, dtype=np.float32)[None]
            np.testing.assert_array_equal(client.infer_batch(large)["y"], large * 2)


def test_a_request_that_raises_fails_alone(server, remote):
    @batch
    def positive(x):
        if x.min() < 0:
            raise ValueError("negative")
        return [x]

    remote.bind("positive", positive, *TENSORS)
    with ThreadPoolExecutor(4) as pool, ModelClient(address(server, "http"), "positive") as client:
        made = [pool.submit(client.infer_batch, filled(value)) for value in (1, -1, 2, 3)]
        with pytest.raises(PyTritonClientInferenceServerError, match="negative"):
            made[1].result()
        assert [made[index].result()["y"][0, 0] for index in (0, 2, 3)] == [1, 2, 3]


def test_a_stream_that_nobody_reads_any_more_is_closed(server, remote):
    closed = threading.Event()

    def forever(requests):
        try:
            while True:
                yield [{"y": request["x"]} for request in requests]
        finally:
            closed.set()

    remote.bind("forever", forever, *TENSORS, config=STREAM)
    with DecoupledModelClient(address(server, "grpc"), "forever") as client:
        stream = client.infer_batch(filled(1))
        next(stream)
        stream.close()
    wait_for(closed.is_set, "the generator to be closed")


def make_double():
    return double


def test_worker_processes_serve_and_those_that_die_are_replaced(server, remote):
    remote.bind("processes", Processes(make_double, count=1), *TENSORS)
    assert answer(server, "processes") == 2
    (worker,) = workers_of("processes")
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: worker not in workers_of("processes") and workers_of("processes"), "another worker")
    assert answer(server, "processes") == 2


def test_a_model_of_remote_workers_is_served_and_its_proxies_learn_how_many_batches_they_want(server, remote, tmp_path):
    listen = f"ipc://{tmp_path}/workers"
    command = sys.executable, "-m", "pytriton", "worker", "far=remote_models:make_double"
    with subprocess.Popen([*command, f"--connect={listen}", f"--app-dir={Path(__file__).parent}"]) as worker:
        try:
            remote.bind("far", RemoteWorkers(listen), *TENSORS)
            with ThreadPoolExecutor(4) as pool:
                assert [*pool.map(lambda _: answer(server, "far"), range(16))] == [2] * 16
            remote.unbind("far")
        finally:
            worker.terminate()


def bind_error(server, **options):
    """Why a model cannot be bound. The server is not ready until another test binds "m" again."""
    with RemoteTriton(address(server, "http"), access_token=TOKEN, **options) as remote:
        with pytest.raises(PyTritonModelControlError) as caught:
            remote.bind("m", double, *TENSORS)
        return str(caught.value)


def test_a_proxy_that_cannot_connect_makes_the_model_fail_with_the_reason(server, keys):
    assert "refused the connection: check proxy_key" in bind_error(server, **keyed(keys, proxy="stranger"))
    without = {**keyed(keys), "proxy_key": "/absent/proxy.key_secret"}
    assert "has no key in /absent/proxy.key_secret (proxy_key)" in bind_error(server, **without)


def test_a_killed_program_fails_its_requests_and_the_next_one_serves_on_the_same_port(server):
    url = address(server, "http")
    with reserved_ports(1) as (port,):
        first = RemoteProcess(url, TOKEN, "m", f"tcp://127.0.0.1:{port}")
        try:
            assert answer(server) == 10  # once the model is there
            first.process.kill()
            with pytest.raises(PyTritonClientInferenceServerError, match="process is gone"):
                answer(server)
            first.process.wait()  # connections of a process that ends may be closed before its port is free
            with RemoteTriton(url, access_token=TOKEN, listen=f"tcp://127.0.0.1:{port}") as remote:
                remote.bind("m", double, *TENSORS)
                assert answer(server) == 2
        finally:
            first.kill()


def test_addresses_and_keys_are_checked_at_once(keys):
    for options, error, message in [
        ({"listen": "tcp://10.0.0.1:5600"}, PyTritonValidationError, "it needs key, proxy_keys and proxy_key"),
        ({**keyed(keys), "listen": "tcp://0.0.0.0:5600"}, PyTritonValidationError, "give address"),
        ({"listen": LOOPBACK, "key": "file"}, PyTritonBadParameterError, "or none of them"),
        ({"listen": "localhost"}, PyTritonBadParameterError, "listen is 'localhost'"),
    ]:
        with pytest.raises(error, match=message):
            RemoteTriton("http://localhost", **options)


def test_a_port_that_is_taken_is_an_error_that_names_it(server):
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        remote = RemoteTriton(address(server, "http"), access_token=TOKEN, listen=listen)
        with pytest.raises(PyTritonWorkerError, match=f"cannot listen on {listen}"):
            remote.connect()
