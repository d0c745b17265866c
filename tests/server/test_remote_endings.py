"""What follows when the server of a RemoteTriton ends, or that process does, or another one takes its models over."""

import logging
import os
import re
import signal
from pathlib import Path

import pytest
import tritonclient.http

from pytriton.client.auth import create_auth_headers
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.triton import RemoteTriton
from tests.server.conftest import local_config
from tests.server.other_server import (
    PROTOCOLS,
    TOKEN,
    RemoteProcess,
    answer,
    is_listening,
    models_of,
    other_triton,
    triple,
)
from tests.server.own_server import TENSORS, address, double, serving
from tests.server.processes import DEADLINE_S, command_line, descendants, is_alive, wait_for

pytestmark = pytest.mark.either_proxy


def answers(config, value, model="m"):
    try:
        return answer(config, model, init_timeout_s=1, inference_timeout_s=5) == value
    except PyTritonClientError:
        return False


def test_a_server_that_was_killed_and_comes_back_gets_its_models_again(caplog):
    caplog.set_level(logging.WARNING, "pytriton")
    with local_config() as config:
        with other_triton(config, TOKEN) as process:
            remote = RemoteTriton(address(config, "http"), access_token=TOKEN)
            remote.bind("m", double, *TENSORS)
            remote.bind("n", [triple, triple], *TENSORS)
            remote.connect()
            process.kill()
            process.wait(DEADLINE_S)
            wait_for(lambda: not is_listening(config), "the server to end")
            wait_for(lambda: not remote.is_connected(), "the proxies to go")
            assert remote.is_alive()
        with other_triton(config, TOKEN):
            wait_for(lambda: answers(config, 2) and answers(config, 3, "n"), "the models to be served again")
            wait_for(remote.is_connected, "the proxies to come")
            remote.bind("later", double, *TENSORS)
            assert remote.stop() is True
            assert models_of(config, TOKEN) == set()
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]
    assert sum("lost it; loading it again" in record.getMessage() for record in caplog.records) in (2, 3)


def test_a_model_that_somebody_unloads_is_loaded_again(server, remote):
    remote.bind("m", double, *TENSORS)
    with tritonclient.http.InferenceServerClient(address(server, "http").removeprefix("http://")) as client:
        client.unload_model("m", headers=create_auth_headers(TOKEN, "http"))
        wait_for(lambda: not remote.is_connected(), "the model to go")
    wait_for(remote.is_connected, "the model to come back")
    assert answer(server) == 2


def test_a_proxy_that_dies_is_replaced(free_config):
    with (
        serving(free_config) as host,  # its processes are this one's
        RemoteTriton(address(free_config, "http"), access_token=host.get_access_token()) as remote,
    ):
        remote.bind("theirs", triple, *TENSORS)
        *_, stub = [pid for pid in descendants(os.getpid()) if "stub" in command_line(pid)[0]]  # the latest one
        os.kill(stub, signal.SIGKILL)
        wait_for(lambda: not is_alive(stub), "the proxy to die")
        wait_for(lambda: answers(free_config, 3, "theirs") and answers(free_config, 2), "the models to be served")


def test_a_killed_process_leaves_errors_and_not_hangs_and_another_may_take_over(server, caplog):
    first = RemoteProcess(address(server, "http"), TOKEN, "m")
    try:
        wait_for(lambda: answers(server, 10), "the model of another process")
        first.end(signal.SIGKILL)
        for protocol in PROTOCOLS:
            with pytest.raises(PyTritonClientError, match="process is gone"):
                answer(server, protocol=protocol)
        with RemoteTriton(address(server, "http"), access_token=TOKEN) as remote:
            remote.bind("m", double, *TENSORS)
            assert answer(server) == 2
            assert "model m: the server at" in caplog.text
            assert "serves a model of this name already; it is replaced" in caplog.text
    finally:
        first.kill()
    assert models_of(server, TOKEN) == set()


def test_of_two_that_bind_a_name_the_later_one_has_it_and_the_other_leaves_it(server, caplog):
    url = address(server, "http")
    with RemoteTriton(url, access_token=TOKEN) as later:
        with RemoteTriton(url, access_token=TOKEN) as first:
            first.bind("m", double, *TENSORS)
            first.bind("other", double, *TENSORS)
            later.bind("m", triple, *TENSORS)
            assert "it is replaced" in caplog.text
            wait_for(lambda: "it is not bound here any more" in caplog.text, "the first one to notice")
            with pytest.raises(PyTritonInvalidOperationError, match="'m' is not bound; bound models are: 'other'"):
                first.unbind("m")
            assert first.is_connected()
        assert answer(server) == 3
        assert models_of(server, TOKEN) == {"m"}
    assert models_of(server, TOKEN) == set()


def test_a_model_of_the_servers_own_process_can_be_replaced(free_config, caplog):
    with serving(free_config) as host:
        token = host.get_access_token()
        with RemoteTriton(address(free_config, "http"), access_token=token) as remote:
            remote.bind("m", triple, *TENSORS)
            assert answer(free_config) == 3
            wait_for(lambda: "it is not bound here any more" in caplog.text, "the host to notice")
        host.bind("m", double, *TENSORS)
        assert answer(free_config) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_serve_and_unloads(server, number):
    process = RemoteProcess(address(server, "grpc"), TOKEN, "m")
    try:
        wait_for(lambda: answers(server, 10), "the model of another process")
        output = process.end(number)
        assert process.process.returncode == 0
        assert "serve returned" in output
        assert "Traceback" not in output
        assert models_of(server, TOKEN) == set()
    finally:
        process.kill()


def test_a_signal_ends_serve_that_waits_for_its_server(free_config):
    process = RemoteProcess(address(free_config, "http"), TOKEN, "m")
    try:
        wait_for(lambda: _catches(process.process.pid, signal.SIGTERM), "serve to begin")
        output = process.end(signal.SIGTERM)
        assert process.process.returncode == 0
        assert "SIGTERM received, exiting." in output
        assert "serve returned" in output
    finally:
        process.kill()


def _catches(pid, number):
    """Whether a process has a handler for a signal."""
    (line,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(line, 16) & 1 << (number - 1))
