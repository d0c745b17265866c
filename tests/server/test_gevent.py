"""Programs that gevent has patched: what cannot work says so at once, and the rest works."""

import subprocess
import sys

import pytest

from pytriton.triton import Triton
from tests.server.own_server import TENSORS, address, double
from tests.server.processes import DEADLINE_S

pytest.importorskip("gevent")
pytestmark = pytest.mark.either_proxy

PROGRAM = """
from gevent import monkey
monkey.patch_all({options})
import gevent, numpy as np
from pytriton.client import *
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.inprocess import Server
from pytriton.triton import RemoteTriton, Triton
http, grpc = "{http}", "{grpc}"
x = np.ones((1, 2), np.float32)
{body}
"""
REFUSED = [
    "Triton()",
    "RemoteTriton(http)",
    "Server().start()",
    "FuturesModelClient(http, 'm')",
    "DecoupledModelClient(grpc, 'm', lazy_init=False)",
    "AsyncioModelClient(grpc, 'm')",
]
CALLING = """
def call(url):
    with ModelClient(url, "m") as client:
        assert np.array_equal(client.infer_batch(x)["y"], 2 * x)
gevent.joinall([gevent.spawn(call, url) for url in (http, grpc) for _ in range(3)], raise_error=True)
"""
ASYNCIO = """
import asyncio
async def call():
    async with AsyncioModelClient(http, "m") as client:
        assert np.array_equal((await client.infer_batch(x))["y"], 2 * x)
asyncio.run(call())
"""
FUTURES = """
clients = [FuturesModelClient(url, "m") for url in (http, grpc)]
for client in clients:
    with client:
        assert np.array_equal(client.infer_batch(x).result()["y"], 2 * x)
"""


@pytest.fixture(scope="module")
def run(triton_config):
    with Triton(config=triton_config) as triton:
        triton.bind("m", double, *TENSORS)
        urls = {"http": address(triton_config, "http"), "grpc": address(triton_config, "grpc")}

        def run(body, options=""):
            program = PROGRAM.format(body=body, options=options, **urls)
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=False
            )
            return done.returncode, done.stderr

        yield run


@pytest.mark.parametrize("refused", REFUSED)
def test_what_needs_threads_is_refused_with_a_reason(run, refused):
    body = f"try:\n    {refused}\nexcept PyTritonInvalidOperationError as error:\n    raise SystemExit(str(error))"
    status, message = run(body)
    assert status == 1
    assert "does not work here, because gevent.monkey has patched" in message
    assert "Traceback" not in message


@pytest.mark.parametrize(("body", "options"), [(CALLING, ""), (ASYNCIO, ""), (FUTURES, "thread=False")])
def test_what_works_goes_on_to_work(run, body, options):
    assert run(body, options) == (0, "")
