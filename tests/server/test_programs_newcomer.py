"""What a new user sees with the first programs of the README: the command that is printed, the client, mistakes."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.either_proxy,
    pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl"),
    pytest.mark.skipif(not find_spec("uvicorn"), reason="the extra rest is not installed"),
]

PROGRAM = Path(__file__).parents[1] / "programs" / "newcomer" / "newcomer.py"


@pytest.fixture(scope="module")
def steps():
    """What each step of the program showed."""
    done = subprocess.run([sys.executable, PROGRAM, "--here"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(step.split("\n", 1) for step in done.stdout.removeprefix("== ").split("\n== "))


def test_the_command_that_the_server_prints_answers(steps):
    assert '{"text":"text","length":4}' in steps["the curl command that the server printed"]


def test_the_client_of_the_readme_answers(steps):
    assert "{'text': 'functions', 'length': 9}" in steps["client.py"]


def test_a_wrong_port_is_told_with_the_right_one(steps):
    assert "the server's HTTP endpoint, which is 8000" in steps["a client of the port of the HTTP API"]
    assert "the URL begins with grpc://" in steps["a client of the port of gRPC"]


def test_a_typo_and_a_server_that_is_not_there_are_told(steps):
    assert "'longest_wrod'" in steps["a client with a typo"]
    assert "Connection refused. Check the address" in steps["a client without a server"]


def test_the_pages_are_there_and_the_server_ends(steps):
    assert "200 text/html" in steps["the page /"]
    assert "200 text/html" in steps["the page /docs"]
    assert "exit status 0" in steps["Ctrl+C"]
