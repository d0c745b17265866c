"""What a program shows at a terminal when it serves, without logging set up by itself."""

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

PROGRAM = """
import sys
from pytriton import Triton, TritonConfig
from pytriton.rest import RestConfig

http, grpc, metrics, rest = map(int, sys.argv[1:5])
config = TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics)
config.http_address = config.grpc_address = "127.0.0.1"
with Triton(config=config, rest=RestConfig(port=rest, address="127.0.0.1") if "rest" in sys.argv else None) as triton:
    if "empty" not in sys.argv:
        @triton.model
        def double(x: int) -> int:
            return 2 * x
    triton.serve()
"""


@pytest.fixture
def shown(tmp_path):
    """``shown(*words)``: what the program writes to a terminal until it serves and is ended by SIGINT."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(*words: str) -> str:
        with reserved_ports(4) as ports:
            main, terminal = pty.openpty()
            command = [sys.executable, str(program), *map(str, ports), *words]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
            os.close(terminal)
            output, is_ended = b"", False
            try:
                while chunk := _read(main):
                    output += chunk
                    if not is_ended and any(mark in output for mark in (b"Ctrl+C", b"nothing is served")):
                        is_ended = True
                        process.send_signal(signal.SIGINT)
                assert process.wait(DEADLINE_S) == 0, output
            finally:
                process.kill()
                os.close(main)
        return output.decode()

    return run


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody has it open any more
        return b""


def test_a_terminal_shows_what_is_served_and_a_command_that_calls_it(shown):
    output = shown()
    assert "Serving double at http://127.0.0.1:" in output
    assert "Try it:         curl http://127.0.0.1:" in output
    assert "/v2/models/double/infer" in output


def test_a_terminal_shows_the_pages_of_the_http_api(shown):
    output = shown("rest")
    assert "Dashboard:      http://127.0.0.1:" in output
    assert "/docs" in output
    assert "/predict/double" in output


def test_serving_no_model_warns(shown):
    assert "no model is bound, so nothing is served" in shown("empty")
