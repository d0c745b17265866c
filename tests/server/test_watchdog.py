"""A server that runs and answers nothing is killed and launched again, as one that has died."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from pytriton.triton import VALID_TRITON_ENDPOINTS, Triton, TritonLifecyclePolicy, TritonSecurityConfig
from tests.server.conftest import local_config
from tests.server.own_server import TENSORS, double, server_of, serving
from tests.server.processes import DEADLINE_S, is_alive, wait_for
from tests.server.proxies import HAS_EDGE
from tests.server.test_lifecycle_policy import answers
from tests.server.tls import Certificates

pytestmark = pytest.mark.either_proxy

SOON = TritonLifecyclePolicy(watchdog_timeout_s=3.0)
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


def questions(triton):
    return triton._server._watchdog._questions


def test_a_server_that_hangs_is_killed_and_launched_again(free_config, caplog):
    with serving(free_config, triton_lifecycle_policy=SOON) as triton:
        pid = server_of(free_config)
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: not triton.is_connected(), "it to be noticed")
        assert triton.is_alive()
        wait_for(lambda: not is_alive(pid), "the server to be killed")
        wait_for(lambda: answers(free_config), "the model to be served again")
        wait_for(triton.is_connected, "all models")
    assert f"the server (process {pid}) hangs: it does not answer over HTTP and gRPC; it is killed" in caplog.text
    assert "it died: it did not answer over HTTP and gRPC for 3 s and was killed" in caplog.text


@contextmanager
def held(thread: int) -> Iterator[None]:
    """One thread of a child is stopped, and the others are not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, thread, None, None) != 0:
        pytest.skip(f"ptrace is not allowed: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(PTRACE_INTERRUPT, thread, None, None)
    os.waitpid(thread, WALL)
    yield
    assert libc.ptrace(PTRACE_DETACH, thread, None, None) == 0


@pytest.mark.skipif(not HAS_EDGE, reason="Triton's endpoint has one loop")
def test_a_loop_that_hangs_is_noticed_though_others_answer():
    with local_config(http_thread_count=2) as config, serving(config) as triton:
        ask, tasks = questions(triton)["HTTP"], Path(f"/proc/{server_of(config)}/task")
        loops = [int(task.name) for task in tasks.iterdir() if (task / "comm").read_text() == "pytriton-loop\n"]
        assert len(loops) == 2
        for loop in loops:
            assert ask(DEADLINE_S) is True
            with held(loop):
                assert ask(0.5) is False
        assert ask(DEADLINE_S) is True


def test_a_server_that_hangs_does_not_hold_a_stop_up(free_config):
    with serving(replace(free_config, exit_timeout_secs=2)) as triton:
        os.kill(server_of(free_config), signal.SIGSTOP)
        began = time.monotonic()
        triton.stop()
        assert time.monotonic() - began < DEADLINE_S / 2


def test_without_a_time_a_server_is_not_watched(free_config):
    with serving(free_config, triton_lifecycle_policy=TritonLifecyclePolicy(watchdog_timeout_s=None)) as triton:
        assert triton._server._watchdog is None
        assert triton.is_connected()


@pytest.mark.parametrize("protected", [False, True])
@pytest.mark.parametrize("edge", ["native", "triton"])
def test_each_endpoint_answers_also_if_all_are_protected(edge, protected):
    security = TritonSecurityConfig("secret" * 30, VALID_TRITON_ENDPOINTS) if protected else None
    with (
        local_config(http_frontend=edge) as config,
        serving(config, security_config=security) as triton,
    ):
        assert {name: ask(DEADLINE_S) for name, ask in questions(triton).items()} == {"HTTP": True, "gRPC": True}


@pytest.mark.parametrize("mutual", [False, True])
def test_encrypted_grpc_answers(tmp_path, mutual):
    files = Certificates.in_folder(tmp_path)
    options = {"grpc_server_cert": files.chain, "grpc_server_key": files.key, "grpc_use_ssl": True}
    if mutual:
        options |= {"grpc_use_ssl_mutual": True, "grpc_root_cert": files.root}
    with local_config(**options) as config, serving(config) as triton:
        assert {name: ask(DEADLINE_S) for name, ask in questions(triton).items()} == {"HTTP": True, "gRPC": True}


def test_without_grpc_it_is_not_asked(free_config):
    with serving(replace(free_config, allow_grpc=False)) as triton:
        assert [*questions(triton)] == ["HTTP"]


def test_a_edge_whose_grpc_does_not_answer_is_not_ready(free_config):
    with Triton(config=free_config) as triton:
        triton.bind("m", double, *TENSORS)
        server = triton._server
        assert server.is_ready()
        edge = triton._edge
        if edge is None:
            pytest.skip("about the edge")
        server._on_answer(False)
        assert status(free_config) == 400
        server._on_answer(True)
        assert status(free_config) == 200


def status(config):
    try:
        with urlopen(f"http://127.0.0.1:{config.http_port}/v2/health/ready", timeout=DEADLINE_S) as answer:
            return answer.status
    except HTTPError as error:
        return error.code
