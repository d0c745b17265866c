"""Weights that processes map from a file read-only are in memory once, without a fork."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pytriton.model_config import ModelConfig, Tensor
from pytriton.pool.resources import memory_of
from pytriton.workers import Processes, RemoteWorkers
from tests.server.arrays import filled
from tests.server.ports import reserved_ports
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy

MEGABYTES, COUNT = 100, 3
MODULE = """
import numpy as np

from pytriton import batch


def load():
    weights = np.load("{path}", mmap_mode="r")

    @batch
    def infer(x):
        return [x + weights.sum()]

    return infer
"""


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


@pytest.fixture
def module(tmp_path):
    """A module whose ``load`` maps weights of 100 MB."""
    np.save(tmp_path / "weights.npy", np.ones(MEGABYTES * 1_000_000 // 8))
    (tmp_path / "mapped_model.py").write_text(MODULE.format(path=tmp_path / "weights.npy"))
    return tmp_path


def call_until_all_have_read(traffic, model, pids):
    """Each worker has read all weights when it has answered once."""
    with ThreadPoolExecutor(COUNT) as pool:
        wait_for(
            lambda: (
                {answer["y"][0, 0] for answer in pool.map(lambda _: traffic.infer(model, filled(0)), range(COUNT))}
                == {MEGABYTES * 1_000_000 / 8}
                and all(memory_of(pid)[1] > MEGABYTES * 1_000_000 // (2 * COUNT) for pid in pids)
            ),
            "all to have the weights in memory",
        )


def test_worker_processes_share_an_array_that_numpy_maps(bind, traffic, triton, module):
    namespace = {}
    exec((module / "mapped_model.py").read_text(), namespace)
    model = bind(Processes(namespace["load"], count=COUNT), max_batch_size=1)
    pids = [each.pid for each in triton.worker_status(model)]
    call_until_all_have_read(traffic, model, pids)
    workers = triton.worker_status(model)
    assert all(each.private_bytes < MEGABYTES * 1_000_000 for each in workers)
    assert sum(each.pss_bytes - each.private_bytes for each in workers) < 1.5 * MEGABYTES * 1_000_000


def test_remote_workers_of_one_machine_share_an_array_that_numpy_maps(triton, traffic, module):
    pytest.importorskip("zmq")
    command = [sys.executable, "-m", "pytriton", "worker", "mapped=mapped_model:load", f"--app-dir={module}"]
    with reserved_ports(1) as (port,):
        address = f"tcp://127.0.0.1:{port}"
        paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        workers = [
            subprocess.Popen([*command, f"--connect={address}"], env={**os.environ, "PYTHONPATH": paths})
            for _ in range(COUNT)
        ]
        try:
            tensors = [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("x", "y")]
            remote = RemoteWorkers(address, min_workers=COUNT)
            triton.bind("mapped", remote, tensors[:1], tensors[1:], config=ModelConfig(max_batch_size=1))
            pids = [each.pid for each in workers]
            call_until_all_have_read(traffic, "mapped", pids)
            memory = [memory_of(pid) for pid in pids]
            assert all(private < MEGABYTES * 1_000_000 for private, _ in memory)
            assert sum(pss - private for private, pss in memory) < 1.5 * MEGABYTES * 1_000_000
            triton.unbind("mapped")
        finally:
            for each in workers:
                each.terminate()
            for each in workers:
                each.wait()
