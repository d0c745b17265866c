"""Memory that is shared with a server goes with its proxies, and does not wait for the garbage collector."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.config import TritonConfig
from pytriton.triton import RemoteTriton, Triton, TritonBase
from pytriton.workers import RemoteWorkers
from tests.server.own_server import TENSORS, address, double, servers_of, serving
from tests.server.ports import reserved_ports
from tests.server.processes import wait_for

pytest.importorskip("zmq")

pytestmark = pytest.mark.either_proxy

LARGE = np.ones((1, 1_000_000), np.float32)


async def coroutine(requests: list[Any]) -> list[Any]:
    return double(requests)


def generator(requests: list[Any]) -> Iterator[list[Any]]:
    yield double(requests)


@pytest.fixture
def remote() -> Iterator[RemoteWorkers]:
    """A worker that answers as ``double``."""
    folder = Path(__file__).parent
    with reserved_ports(1) as (port,):
        listen = f"tcp://127.0.0.1:{port}"
        command = ["worker", "large=remote_models:make_double", f"--connect={listen}", f"--app-dir={folder}"]
        worker = subprocess.Popen([sys.executable, "-m", "pytriton", *command])
        yield RemoteWorkers(listen)
        worker.kill()
        worker.wait()


def mappings() -> int:
    """How many memory files of arenas this process has mapped."""
    return Path("/proc/self/maps").read_text().count("pytriton-arena")


@contextmanager
def without_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def check(config: TritonConfig, host: Triton, triton: TritonBase, function: Any) -> None:
    """Bind a model, have it serve, also with another server, and unbind it.

    Args:
        config: Of the server.
        host: Which launched it.
        triton: Binds the model; may be the host.
        function: The callable.
    """

    def infer() -> None:
        with ModelClient(address(config, "http"), "large") as client:
            assert np.array_equal(client.infer_batch(LARGE)["y"], LARGE * 2)

    with without_garbage_collector():
        triton.bind("large", function, *TENSORS)
        infer()
        bound = mappings()
        for _ in range(2):
            killed = servers_of(config)
            os.kill(*killed, signal.SIGKILL)
            wait_for(lambda killed=killed: servers_of(config) not in ([], killed), "another server")
            host.wait_for_ready()
            triton.wait_for_ready()
            infer()
        wait_for(lambda: mappings() == bound, "the memory of the servers that were killed to go")
        triton.unbind("large")
        wait_for(lambda: mappings() < bound, "the memory of the model to go")


@pytest.mark.parametrize("function", [double, coroutine, generator])
def test_memory_goes_with_the_server_and_with_the_model(free_config, function):
    with serving(free_config) as host:
        check(free_config, host, host, function)


def test_memory_for_remote_workers_goes_too(free_config, remote):
    with serving(free_config) as host:
        check(free_config, host, host, remote)


def test_memory_for_proxies_on_another_machine_goes_too(free_config):
    with ExitStack() as stack:
        host = stack.enter_context(serving(free_config))
        options = {"access_token": host.get_access_token(), "listen": "tcp://127.0.0.1:0"}
        triton = stack.enter_context(RemoteTriton(address(free_config, "http"), **options))
        check(free_config, host, triton, double)
