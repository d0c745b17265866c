"""``pytriton serve --reload``: what follows from changes of the source, and from the ends of processes."""

import os
import signal

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from tests.server.command import Command
from tests.server.ports import reserved_ports
from tests.server.processes import wait_for
from tests.server.proxies import IS_NATIVE

pytestmark = pytest.mark.either_proxy

PROGRAM = """
import numpy as np
from pytriton.model_config import Tensor
from factor import FACTOR


def multiply(requests):
    return [{"y": request["x"] * FACTOR} for request in requests]


def bind(triton):
    x, y = (Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("x", "y"))
    triton.bind("m", multiply, [x], [y])
"""


class Program:
    """A served program whose source changes."""

    def __init__(self, folder, home, ports):
        http, grpc, metrics = ports
        self._folder = folder
        self.url = f"http://127.0.0.1:{http}"
        (folder / "program.py").write_text(PROGRAM)
        self.change("FACTOR = 2")
        options = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", "--address=127.0.0.1"]
        self.command = Command(home, "serve", "program:bind", "--reload", f"--app-dir={folder}", *options)

    def change(self, source):
        (self._folder / "factor.py.new").write_text(f"{source}\n")
        os.replace(self._folder / "factor.py.new", self._folder / "factor.py")

    def factor(self):
        """By which the model multiplies now; None while there is no model."""
        try:
            with ModelClient(self.url, "m", init_timeout_s=0.5, inference_timeout_s=5) as client:
                return int(client.infer_batch(np.float32([[1]]))["y"][0, 0])
        except PyTritonClientError:
            return None

    def wait_for_factor(self, factor):
        wait_for(lambda: self.factor() == factor, f"the factor {factor}; {self.command.output}")


@pytest.fixture
def program(tmp_path):
    (tmp_path / "source").mkdir()
    with reserved_ports(3) as ports:
        program = Program(tmp_path / "source", tmp_path / "home", ports)
        yield program
        program.command.kill()


def test_a_changed_module_beside_the_program_is_served_at_once(program):
    program.wait_for_factor(2)
    program.change("FACTOR = 3")
    program.wait_for_factor(3)
    program.change("FACTOR = 4")  # of the same size, and perhaps within the same second
    program.wait_for_factor(4)
    family = program.command.family()
    assert program.command.end() == 0
    assert "factor.py changed; starting again." in program.command.output
    program.command.assert_nothing_left(family)


def test_a_source_that_does_not_compile_leaves_the_old_one_serving(program):
    program.wait_for_factor(2)
    program.change("FACTOR = (")
    program.command.wait_for("factor.py changed, but line 1 has a syntax error")
    assert "the previous version continues. Correct it to reload." in program.command.output
    assert program.factor() == 2
    program.change("FACTOR = 5")
    program.wait_for_factor(5)
    assert program.command.end(signal.SIGINT) == 0


def test_a_program_that_fails_is_started_again_when_it_changes(program):
    program.wait_for_factor(2)
    program.change("FACTOR = undefined")
    program.command.wait_for("The program has ended (exit status 1); it starts again when its source changes.")
    assert "NameError: name 'undefined' is not defined" in program.command.output
    assert program.factor() is None
    program.change("FACTOR = (")
    program.command.wait_for("nothing is served. Correct it to reload.")
    program.change("FACTOR = 6")
    program.wait_for_factor(6)


def test_a_killed_reloader_leaves_nothing(program):
    program.wait_for_factor(2)
    family = program.command.family()
    assert len(family) >= (3 if IS_NATIVE else 4)  # the program, the guard, the server, its stub
    program.command.end(signal.SIGKILL)
    program.command.assert_nothing_left(family)


def test_a_killed_program_is_waited_for(program):
    program.wait_for_factor(2)
    child, *_ = program.command.family()
    os.kill(child, signal.SIGKILL)
    program.command.wait_for("The program has ended (signal 9); it starts again when its source changes.")
    program.change("FACTOR = 7")
    program.wait_for_factor(7)
