"""Models at zero of a program that has no descriptor left for a while."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.triton import Triton
from pytriton.workers import Processes
from tests.server.conftest import LOCALHOST, local_config
from tests.server.processes import wait_for
from tests.unit.children import in_new_process

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

TENSORS = [Tensor((-1,), np.float32, "x")], [Tensor((-1,), np.float32, "y")]


def doubling(gate: Path) -> Callable[..., Any]:
    gate.with_name("begun").touch()
    while not gate.exists():
        time.sleep(0.01)
    return batch(lambda x: {"y": 2 * x})


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Take all that this process may have."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, most))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def double(client: ModelClient) -> float | str:
    try:
        return float(client.infer_batch(np.ones((1, 1), np.float32))["y"][0, 0])
    except PyTritonClientError as error:
        return str(error)


def refused(triton: Triton, client: ModelClient, gate: Path) -> list[float | str]:
    """What a request gets that cannot wait, and none can tell it, and one that comes later."""
    with no_descriptors():
        first = double(client.with_options(server_timeout_s=0.001))
    return [first, double(client)]


def held(triton: Triton, client: ModelClient, gate: Path) -> list[float | str]:
    """What a request gets for which a worker is ready while there are no descriptors, and one that comes later."""
    gate.rmdir()
    gate.with_name("begun").unlink()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(double, client)
        wait_for(gate.with_name("begun").exists, "a worker to start")
        with no_descriptors():
            gate.mkdir()
            wait_for(lambda: triton.worker_status("doubling")[0].state == "ready", "the worker")
        return [first.result(), double(client)]


def ask(way: Callable[..., Any], folder: Path) -> Any:
    gate = folder / "gate"
    gate.mkdir()
    with local_config() as config, Triton(config=config) as triton:
        triton.bind("doubling", Processes(partial(doubling, gate), minimum=0, idle_s=3600), *TENSORS)
        with ModelClient(f"http://{LOCALHOST}:{config.http_port}", "doubling") as client:
            double(client)
            triton.scale("doubling", 0)
            wait_for(lambda: triton.worker_status("doubling")[0].state == "at zero", "zero")
            return way(triton, client.with_options(inference_timeout_s=10.0), gate)


def test_a_model_outlives_a_moment_in_which_no_request_can_be_refused(tmp_path):
    first, second = in_new_process(ask, refused, tmp_path)
    assert second == 2.0, first


def test_a_worker_gets_the_requests_that_wait_for_it_although_no_descriptor_is_left(tmp_path):
    assert in_new_process(ask, held, tmp_path) == [2.0, 2.0]
