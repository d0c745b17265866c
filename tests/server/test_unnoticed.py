"""What could end in silence: event loops that callables leave, and our records when a handler of the program raises."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInferenceServerError
from pytriton.triton import Triton
from pytriton.workers import Processes
from tests.server.inprocess_models import first, inprocess_models, row
from tests.server.own_server import TENSORS, address, double, server_of
from tests.server.processes import is_alive, wait_for, workers_of
from tests.server.proxies import native_part_only, native_proxy_only

EXIT, INTERRUPT, STOP = 1.0, 2.0, 3.0


async def leaving(requests):
    """Doubles, and first ends its event loop in a way that the value says."""
    value = requests[0]["x"][0, 0]

    async def leave():
        raise SystemExit(3) if value == EXIT else KeyboardInterrupt

    if value == STOP:
        asyncio.get_running_loop().stop()
    elif value in (EXIT, INTERRUPT):
        await asyncio.gather(leave())
    return [{"y": request["x"] * 2} for request in requests]


def make_leaving():
    """For worker processes."""
    return leaving


async def failing(requests):
    raise ValueError("bad")


def doubling():
    """For worker processes."""
    return double


def infer(config, model, value, **options):
    with ModelClient(address(config, "http"), model, **options) as client:
        return client.infer_batch(np.full((1, 2), value, np.float32))["y"][0, 0]


def answers(config, model):
    try:
        return infer(config, model, 4.0, init_timeout_s=1, inference_timeout_s=5) == 8.0
    except PyTritonClientError:
        return False


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_an_async_callable_that_exits_or_stops_its_loop_fails_its_own_request_alone(free_config, workers):
    with Triton(config=free_config) as triton:
        triton.bind("m", leaving if workers == "threads" else Processes(make_leaving, count=1), *TENSORS)
        for value, name in ((EXIT, "SystemExit: 3"), (INTERRUPT, "KeyboardInterrupt")):
            with pytest.raises(PyTritonClientInferenceServerError, match=name):
                infer(free_config, "m", value)
            assert infer(free_config, "m", 4.0) == 8.0
        assert infer(free_config, "m", STOP) == 2 * STOP
        assert infer(free_config, "m", 4.0) == 8.0
        assert triton.is_alive()
        assert [status.restarts for status in triton.worker_status("m")] == [0]


@pytest.mark.either_proxy
@native_part_only
def test_an_async_callable_in_process_that_exits_fails_its_own_request_alone():
    with inprocess_models() as models:
        model = models.bind(leaving)
        for value, name in ((EXIT, "SystemExit: 3"), (INTERRUPT, "KeyboardInterrupt")):
            with pytest.raises(Exception, match=name):
                models.ask(model, value)
            assert models.ask(model, 4.0) == 8.0
        assert first(next(models.send(model, row(STOP)))) == 2 * STOP
        assert models.ask(model, 4.0) == 8.0


class Raising(logging.Handler):
    """What a program's own handler may do: it never calls ``handleError``."""

    records = 0

    def emit(self, record):
        if record.name.startswith("pytriton"):
            self.records += 1
            raise RuntimeError("the handler is broken")


@pytest.fixture
def raising(monkeypatch):
    """A handler of the root logger that raises on each of our records, of any level."""
    monkeypatch.setattr(logging, "raiseExceptions", False)  # else each is printed
    handler, ours = Raising(), logging.getLogger("pytriton")
    before = ours.level
    ours.setLevel(logging.DEBUG)
    logging.root.addHandler(handler)
    yield handler
    logging.root.removeHandler(handler)
    ours.setLevel(before)


def test_a_log_handler_that_raises_keeps_nothing_from_being_answered_or_started_again(free_config, raising):
    triton = Triton(config=free_config)
    triton.bind("plain", double, *TENSORS)
    triton.bind("worker", Processes(doubling, count=1), *TENSORS)
    triton.bind("async", failing, *TENSORS)
    with triton:
        for _ in range(2):
            with pytest.raises(PyTritonClientInferenceServerError, match="ValueError: bad"):
                infer(free_config, "async", 1.0)
        (worker,) = workers_of("worker")
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: workers_of("worker") not in ([], [worker]), "another worker process")
        wait_for(lambda: answers(free_config, "worker"), "its answer")
        server = server_of(free_config)
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: not is_alive(server), "the server to die")
        wait_for(lambda: answers(free_config, "plain") and answers(free_config, "worker"), "the server to come back")
        with pytest.raises(PyTritonClientInferenceServerError, match="ValueError: bad"):
            infer(free_config, "async", 1.0)
        assert triton.is_alive()
        assert triton.stop() is True
    assert raising.records > 10


LIMITED = """
import resource
resource.setrlimit(resource.{limit}, ({value}, {value}))
from pytriton.triton import Triton
from tests.server.conftest import local_config
from tests.server.own_server import TENSORS, double
with local_config() as config, Triton(config=config) as triton:
    triton.bind("m", double, *TENSORS)
"""


@native_proxy_only
@pytest.mark.parametrize(("limit", "value", "name"), [("RLIMIT_FSIZE", 10**6, "-f"), ("RLIMIT_AS", 15 * 10**8, "-v")])
def test_a_limit_of_the_process_that_keeps_a_model_from_being_loaded_is_named(limit, value, name):
    program = LIMITED.format(limit=limit, value=value)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        f"{limit} (ulimit {name}) is {value} bytes, raise it" in done.stderr.partition("PyTritonModelControlError")[2]
    )
