"""Workers and servers on other hosts, which are network namespaces, over links that are cut."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import RemoteTriton, Triton
from pytriton.workers import RemoteWorkers
from tests.server.conftest import local_config
from tests.server.gated import Gated
from tests.server.other_server import TOKEN, answer, other_triton
from tests.server.own_server import TENSORS, address
from tests.server.ports import reserved_ports
from tests.server.processes import wait_for

pytest.importorskip("zmq")
from pytriton.cluster.keys import make_keys

pytestmark = pytest.mark.either_proxy

HERE = Path(__file__).parent
X = np.ones((1, 4), np.float32)
NUMBERS = count()


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Host:
    """A host that a link connects with this one."""

    def __init__(self):
        number = next(NUMBERS)
        self.name = f"pytriton-{os.getpid()}-{number}"
        self.link = f"pt{os.getpid() % 100_000}x{number}"
        network = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}.{4 * number}"
        base, _, last = network.rpartition(".")
        self.here, self.there = f"{base}.{int(last) + 1}", f"{base}.{int(last) + 2}"
        ip("netns", "add", self.name)
        ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("address", "add", f"{self.here}/30", "dev", self.link)
        ip("link", "set", self.link, "up")
        for command in (["address", "add", f"{self.there}/30", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            ip("-netns", self.name, *command)

    def cut(self):
        ip("link", "set", self.link, "down")

    def join(self):
        ip("link", "set", self.link, "up")

    def remove(self):
        ip("netns", "del", self.name)


@pytest.fixture
def hosts():
    if shutil.which("ip") is None:
        pytest.skip("ip (iproute2) is not installed")
    made = []
    try:
        try:
            made.append(Host())
            made.append(Host())
        except subprocess.CalledProcessError:
            pytest.skip("network namespaces need root")
        yield made
    finally:
        for host in made:
            host.remove()


@pytest.fixture
def keys(tmp_path):
    for name in ("server", "worker"):
        make_keys(tmp_path / name, name)
    return tmp_path


@pytest.fixture
def start(hosts, keys):
    """Starts a worker on a host."""
    started = []

    def start(host, factory, port):
        process = subprocess.Popen(
            [
                *("ip", "netns", "exec", host.name, sys.executable, "-m", "pytriton", "worker", factory),
                *(f"--connect=tcp://{host.here}:{port}", f"--app-dir={HERE}", "--heartbeat=1.0"),
                *(f"--key={keys}/worker/worker.key_secret", f"--server-key={keys}/server/server.key"),
            ],
            env={**os.environ, "REMOTE_TEST_FOLDER": str(keys)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def triton():
    with local_config() as config, Triton(config=config) as server:
        server.url = f"http://127.0.0.1:{config.http_port}"
        yield server


def infer(triton, name):
    with ModelClient(triton.url, name, inference_timeout_s=60) as client:
        return client.infer_batch(X)["y"]


def test_a_cut_link_costs_the_batches_that_were_computed_there_and_nothing_else(triton, hosts, keys, start):
    with reserved_ports(1) as (port,):
        remote = RemoteWorkers(
            f"tcp://0.0.0.0:{port}",
            key=keys / "server" / "server.key_secret",
            worker_keys=keys / "worker",
            heartbeat_s=1.0,
        )
        vector = {"shape": (-1,), "dtype": np.float32}
        first = start(hosts[0], "gated=remote_models:make_gated", port)
        triton.bind(
            "gated",
            remote,
            inputs=[Tensor(name="x", **vector)],
            outputs=[Tensor(name="y", **vector)],
            config=ModelConfig(max_batch_size=1),
        )
        with ThreadPoolExecutor(3) as pool:
            computed = pool.submit(infer, triton, "gated")
            wait_for(lambda: [*keys.glob("entered-*")], "the first batch to be taken")
            sent = pool.submit(infer, triton, "gated")
            hosts[0].cut()
            with pytest.raises(PyTritonClientError, match="was lost while it answered"):
                computed.result()
            (keys / "open").touch()
            second = start(hosts[1], "gated=remote_models:make_gated", port)
            np.testing.assert_array_equal(sent.result(), X * 2)
            hosts[0].join()
            second.send_signal(signal.SIGTERM)
            assert second.wait(60) == 0
            np.testing.assert_array_equal(infer(triton, "gated"), X * 2)  # the first worker has joined again
            assert first.poll() is None


def test_a_server_on_another_host_serves_callables_of_this_one_also_after_a_cut(hosts, keys, tmp_path):
    host, gated = hosts[0], Gated()
    workspace = tmp_path / "hidden" / "workspace"
    workspace.parent.mkdir()
    hide = 'mount -t tmpfs tmpfs $0 && exec "$@"'  # in a mount namespace of its own, as `ip netns exec` makes one
    before = "ip", "netns", "exec", host.name, "sh", "-c", hide, str(workspace.parent)
    ip("-netns", host.name, "link", "set", "lo", "up")
    with local_config() as local:
        config = replace(local, http_address=host.there, grpc_address=host.there, metrics_address=host.there)
        options = {
            "listen": f"tcp://{host.here}:0",
            "key": keys / "server" / "server.key_secret",
            "proxy_keys": keys / "worker",
            "proxy_key": keys / "worker" / "worker.key_secret",
            "heartbeat_s": 0.5,
        }
        with (
            other_triton(config, TOKEN, *before),
            RemoteTriton(address(config, "http"), workspace, TOKEN, **options) as remote,
            ThreadPoolExecutor(1) as pool,
        ):
            remote.bind("m", gated, *TENSORS)
            made = pool.submit(answer, config)
            gated.wait_called()
            host.cut()
            gated.gate.open()
            wait_for(lambda: not remote.is_connected(), "the cut to be noticed")
            host.join()
            with pytest.raises(PyTritonClientError, match="process is gone"):
                made.result()
            remote.wait_for_ready()
            assert answer(config) == 2
