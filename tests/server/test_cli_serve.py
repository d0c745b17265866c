"""``pytriton serve`` without reloading."""

import signal

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from tests.server.command import Command, run
from tests.server.conftest import local_config
from tests.server.ports import reserved_ports
from tests.server.tls import Certificates

pytestmark = pytest.mark.either_proxy

PROGRAM = """
import numpy as np
from pytriton.model_config import Tensor
from pytriton.triton import Triton, TritonSecurityConfig


def double(requests):
    return [{"y": request["x"] * 2} for request in requests]


def bind(triton):
    x, y = (Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("x", "y"))
    triton.bind("m", double, [x], [y])


def make():
    triton = Triton()
    bind(triton)
    return triton


def make_open():
    triton = Triton(rest=True, security_config=TritonSecurityConfig(restricted_endpoints=[]))
    bind(triton)
    return triton


class Lazy:
    def __getattr__(self, name):
        return make()


holder = Lazy()
"""
SERVED = "Infer function available as model: `/v2/models/m`"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the program is."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def serve(folder, tmp_path):
    """``serve(object, *options)``: serve it on free ports of this machine, and return the command and its URL."""
    commands = []

    with reserved_ports(3) as (http, grpc, metrics):

        def serve(name, *options):
            ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", "--address=127.0.0.1"]
            commands.append(
                Command(tmp_path / "home", "serve", f"program:{name}", f"--app-dir={folder}", *ports, *options)
            )
            return commands[-1], f"http://127.0.0.1:{http}"

        yield serve
        for command in commands:
            command.kill()


def ask(url):
    with ModelClient(url, "m", init_timeout_s=30) as client:
        return client.infer_batch(np.float32([[1, 2]]))["y"].tolist()


@pytest.mark.parametrize("name", ["bind", "make", "holder.triton"])
def test_a_program_is_served_until_a_signal(name, serve):
    command, url = serve(name)
    assert ask(url) == [[2, 4]]
    command.wait_for("Press CTRL+C")
    family = command.family()
    assert command.end(signal.SIGINT) == 0
    assert SERVED in command.output
    assert "SIGINT received, exiting." in command.output
    command.assert_nothing_left(family)


def test_options_reach_the_server_and_the_token_its_endpoints(serve, tmp_path):
    command, url = serve("bind", "-o", "id=mine", f"--log-file={tmp_path / 'server.log'}", "--access-token=t0p")
    assert ask(url) == [[2, 4]]
    assert "mine" in (tmp_path / "server.log").read_text()
    with ModelClient(url, "m") as client, pytest.raises(PyTritonClientInferenceServerError, match="restricted"):
        client.load_model()
    with ModelClient(url, "m", access_token="t0p") as client:
        client.load_model()
    assert command.end() == 0


def test_the_url_that_is_printed_unlocks_the_status_once(serve):
    with reserved_ports(1) as (port,):
        command, url = serve("bind", f"--rest-port={port}")
        command.wait_for("/#/unlock/")
        printed = next(line.split()[-1] for line in command.output.splitlines() if "/#/unlock/" in line)
        assert printed.startswith(f"http://127.0.0.1:{port}/#/unlock/")
        done = run("status", printed)
        assert done.returncode == 0
        assert "READY" in done.stdout  # which needs the token
        assert url in done.stdout
        assert url in done.stdout
        command.wait_for("/#/unlock/", 2)
        again = run("status", printed)
        assert again.returncode == 1
        assert "this code was used before, or is none" in again.stderr
        assert command.end() == 0


@pytest.mark.parametrize("of", ["the server", "the application"])
def test_the_url_that_is_printed_unlocks_the_status_over_tls(serve, tmp_path, monkeypatch, of):
    files = Certificates.in_folder(tmp_path)
    if of == "the server":
        options = ["http_use_ssl=true", f"http_server_cert={files.chain}", f"http_server_key={files.key}"]
    else:
        options = []
        monkeypatch.setenv("PYTRITON_REST_CERTIFICATE", str(files.chain))
        monkeypatch.setenv("PYTRITON_REST_KEY", str(files.key))
    with reserved_ports(1) as (port,):
        command, url = serve("bind", f"--rest-port={port}", *(f"-o{option}" for option in options))
        command.wait_for("/#/unlock/")
        printed = next(line.split()[-1] for line in command.output.splitlines() if "/#/unlock/" in line)
        assert printed.startswith(f"https://127.0.0.1:{port}/#/unlock/")
        distrusted = run("status", printed, "--tls")
        assert "certificate verify failed" in distrusted.stderr
        done = run("status", printed, "--tls", "--roots", str(files.root))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "READY" in done.stdout
        assert url in done.stdout
        assert command.end() == 0


def test_no_url_is_printed_where_there_is_nothing_to_unlock(serve):
    with reserved_ports(1) as (port,):
        command, url = serve("make_open", f"--rest-port={port}")
        assert ask(url) == [[2, 4]]
        command.wait_for("Press CTRL+C")
        assert command.end() == 0
        assert "/#/unlock/" not in command.output


def test_a_port_in_use_is_told_without_a_traceback(serve):
    with local_config() as config:
        command, url = serve("bind")
        assert ask(url) == [[2, 4]]
        options = [f"--grpc-port={config.grpc_port}", f"--metrics-port={config.metrics_port}", "--address=127.0.0.1"]
        folder = command.process.args[5].partition("=")[2]
        second = run("serve", "program:bind", f"--app-dir={folder}", f"--http-port={url.rpartition(':')[2]}", *options)
    assert second.returncode == 1
    assert second.stderr.startswith("pytriton: the http endpoint cannot listen on ")
    assert command.end() == 0


def test_a_program_that_fails_is_told_by_its_own_traceback(tmp_path):
    (tmp_path / "broken.py").write_text("def bind(triton):\n    raise KeyError('weights')\n")
    done = run("serve", "broken:bind", f"--app-dir={tmp_path}", PYTRITON_HOME=str(tmp_path / "home"))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[:2] == ["pytriton: broken:bind failed.", "Traceback (most recent call last):"]
    assert lines[2] == f'  File "{tmp_path}/broken.py", line 2, in bind'
    assert done.stderr.endswith("KeyError: 'weights'\n")
    assert list((tmp_path / "home").iterdir()) == []
