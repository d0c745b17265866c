"""The programs in examples/ run as their users would run them, and say what they should."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.ports import reserved_ports

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 60

OUTPUTS = {
    "several_models": """\
        shout: HELLO
        mean: 4.5
        slow: [0, 2, 4, 6, 8, 10, 12, 14]
        devices that worked on it: [0, 1]
    """,
    "parameters_and_headers": """\
        [1. 2. 3.] for nobody
        [10. 20. 30.] for ada
        [1. 2. 3.] for nobody
        [10. 20. 30.] for ada
    """,
    "notebook": """\
        double: [2. 4. 6.]
        square: [1. 4. 9.]
    """,
}
SUM = "[[11. 22. 33.]\n [44. 55. 66.]]\n[11. 22. 33.]\n"


@pytest.fixture
def environment(tmp_path) -> Iterator[dict[str, str]]:
    """Free ports, a home for workspaces, and the server's log in a file instead of among the example's output."""
    with reserved_ports(3) as (http, grpc, metrics):
        config = {
            "HTTP_PORT": http,
            "GRPC_PORT": grpc,
            "METRICS_PORT": metrics,
            "LOG_FILE": tmp_path / "server.log",
            "ALLOW_GPU_METRICS": "false",  # their library writes past the log
        }
        options = {f"PYTRITON_TRITON_CONFIG_{name}": str(value) for name, value in config.items()}
        yield {**os.environ, **options, "PYTRITON_HOME": str(tmp_path / "home"), "PYTHONWARNINGS": "error"}


@contextmanager
def started(name: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A running example, which does not outlive the block."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run(name: str, environment: dict[str, str]) -> str:
    """What an example writes to its standard output."""
    with started(name, environment) as process:
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    return output


def assert_nothing_left(environment: dict[str, str]) -> None:
    assert list(Path(environment["PYTRITON_HOME"]).iterdir()) == []


def test_each_example_is_tested_here():
    tested = {*OUTPUTS, "digits", "quickstart", "quickstart_client"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_example_prints_its_results_and_leaves_nothing(name, environment):
    lines = [line.strip() for line in OUTPUTS[name].splitlines() if line.strip()]
    assert run(name, environment).splitlines() == lines
    assert_nothing_left(environment)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_quickstart_serves_its_client_until_a_signal(number, environment):
    with started("quickstart", environment) as server:
        assert run("quickstart_client", environment) == SUM  # the client waits for the model
        server.send_signal(number)
        _, log = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0
    assert "Infer function available as model: `/v2/models/add`" in log
    assert f"{number.name} received, exiting." in log
    assert_nothing_left(environment)


def test_the_digits_demo_is_accurate_over_both_protocols(environment):
    pytest.importorskip("sklearn")
    row = re.compile(r"^(http|grpc)://127\.0\.0\.1:\d+ +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+$", re.MULTILINE)
    table = row.findall(run("digits", environment))
    assert [protocol for protocol, _ in table] == ["http", "grpc"]
    assert all(0.95 <= float(accuracy) <= 1 for _, accuracy in table)
    assert_nothing_left(environment)
