"""``pytriton serve`` of files with typed functions: with an app, with workers, and with reloading."""

import os
import signal

import httpx
import pytest

from tests.server.command import Command, run
from tests.server.ports import reserved_ports
from tests.server.processes import is_worker, wait_for

pytestmark = pytest.mark.either_proxy

SLOW_START_S = 60.0  # of two interpreters, a server and an app, one after the other, on a busy machine

PROGRAM = """
import os
from collections.abc import Iterator


def shout(text: str) -> str:
    return text.upper()


def host(text: str) -> int:
    return os.getpid()


def _helper(text: str) -> str:
    return text
"""


class Program:
    """A served file of typed functions, which changes."""

    def __init__(self, folder, home, ports, *options):
        http, grpc, metrics, rest = ports
        self._folder = folder
        self.write(PROGRAM)
        self.url = f"http://127.0.0.1:{rest}"
        ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", f"--rest-port={rest}"]
        self.command = Command(home, "serve", *options, *ports, "--address=127.0.0.1", f"--app-dir={folder}")

    def write(self, source):
        (self._folder / "program.py.new").write_text(source)
        os.replace(self._folder / "program.py.new", self._folder / "program.py")

    def call(self, model, **values):
        """The status and the answer; None while there is no app."""
        try:
            response = httpx.post(f"{self.url}/predict/{model}", json=values, timeout=60)
        except httpx.TransportError:
            return None
        return response.status_code, response.json()

    def wait_for(self, answer, model, **values):
        wait_for(lambda: self.call(model, **values) == (200, answer), f"{answer}", SLOW_START_S)


@pytest.fixture
def serve(tmp_path):
    """``serve(*options)``: serve on free ports of this machine."""
    (tmp_path / "source").mkdir()
    programs = []
    with reserved_ports(4) as ports:

        def start(*options):
            programs.append(Program(tmp_path / "source", tmp_path / "home", ports, *options))
            return programs[-1]

        yield start
        for program in programs:
            program.command.kill()


@pytest.mark.parametrize("target", ["program.py", "program:shout"])
def test_typed_functions_are_called_with_json(serve, target):
    program = serve(target)
    program.wait_for({"result": "A"}, "shout", text="a")
    wait_for(lambda: f"curl {program.url}/predict/" in program.command.output, "the call to be told")
    family = program.command.family()
    assert program.command.end(signal.SIGINT) == 0
    program.command.assert_nothing_left(family)


def test_a_changed_function_is_served_at_once(serve):
    program = serve("program:shout", "--reload")
    program.wait_for({"result": "A"}, "shout", text="a")
    program.write(PROGRAM.replace("upper()", "title() + '!'"))
    program.wait_for({"result": "A!"}, "shout", text="a")
    family = program.command.family()
    assert program.command.end() == 0
    program.command.assert_nothing_left(family)


def test_functions_are_called_in_workers(serve):
    program = serve("program.py", "--workers=2")
    program.wait_for({"result": "A"}, "shout", text="a")
    wait_for(lambda: program.call("host", text="a")[0] == 200, "the other function to be served", SLOW_START_S)
    workers = [pid for pid in program.command.family() if is_worker(pid)]
    assert len(workers) == 4
    assert program.call("host", text="a")[1]["result"] in workers


def test_workers_are_for_typed_functions(tmp_path):
    (tmp_path / "program.py").write_text("def bind(triton): ...\n")
    done = run("serve", "program:bind", "--workers=2", f"--app-dir={tmp_path}")
    assert done.returncode == 2
    assert "--workers is for functions with annotations, and program:bind is none" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["--rest-port=0"], {}, "PYTRITON_REST_PORT: expected an integer from 1 to 65535, got '0'"),
        ([], {"PYTRITON_REST_PORT": "http"}, "PYTRITON_REST_PORT: expected an integer from 1 to 65535, got 'http'"),
        (["--rest-port=8000"], {}, "RestConfig.port and http_port are both 8000"),
    ],
)
def test_a_wrong_port_is_a_usage_error(tmp_path, arguments, variables, message):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run("serve", "program.py", *arguments, f"--app-dir={tmp_path}", **variables)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
