"""The programs in the documents run as a reader runs them: in the order of the page, each as it stands.

A block of ``python`` is a program. One that calls ``serve()`` is served until the next such program of its page, or the
page's end; the blocks after it may call it. If the text after a block says that it prints something, it prints that. A
block of ``console`` has commands after ``$`` and what they print. A block with ``title="fragment"`` does not run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.server.ports import reserved_ports

pytestmark = pytest.mark.either_proxy

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|console)( [^\n]*)?\n(.*?)^```\n*(?:prints `([^`]*)`)?", re.MULTILINE | re.DOTALL)
DEADLINE_S = 90
APPLICATION = "uvicorn.run("
OTHERS = (
    "fastapi",
    "onnxruntime",
    "openai",
    "sklearn",
    "torch",
)  # packages that programs may use and tests do not install


# Doubles x. Made with onnx.helper: Add(x, x) of float32 of shape (n, 4), operators of version 13.
ONNX_FILE = "CAg6RAoOCgF4CgF4EgF5IgNBZGQSBmRvdWJsZVoUCgF4Eg8KDQgBEgkKAxIBbgoCCARiFAoBeRIPCg0IARIJCgMSAW4KAggEQgQKABAN"
CONFIG = """\
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: -1 }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
"""
MODEL = """\
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = [utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [utils.InferenceResponse([utils.Tensor("y", 2 * x)]) for x in arrays]
"""
# Weights cannot be had here: it answers as such a pipeline does.
TRANSFORMERS = """\
def pipeline(task):
    assert task == "sentiment-analysis"
    return lambda texts: [{"label": "POSITIVE" if "lovely" in text else "NEGATIVE", "score": 0.9} for text in texts]
"""
REPOSITORY = {"models/double/config.pbtxt": CONFIG.encode(), "models/double/1/model.py": MODEL.encode()}
BROUGHT = {
    "i_have.md": {**REPOSITORY, "model.onnx": b64decode(ONNX_FILE), "transformers.py": TRANSFORMERS.encode()},
    "inprocess.md": REPOSITORY,
    "lifecycle.md": REPOSITORY,
}


class Block(NamedTuple):
    """One that runs."""

    language: str
    text: str
    printed: str | None


def blocks(page: Path) -> list[Block]:
    """Those of a page that are no fragments."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(kind, text, printed or None) for kind, mark, text, printed in found if "fragment" not in mark]


README = ROOT / "README.md"
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if blocks(page)]


class Reader:
    """Someone who reads a page and tries what it says."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        self.ports = dict(zip(("8000", "8001", "8002", "8080", "8003"), map(str, ports), strict=True))
        self.http, grpc, metrics, self.rest, _ = ports
        options = {"HTTP_PORT": self.http, "GRPC_PORT": grpc, "METRICS_PORT": metrics, "ALLOW_GPU_METRICS": "false"}
        environment = {f"PYTRITON_TRITON_CONFIG_{name}": str(value) for name, value in options.items()}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {**os.environ, **environment, "PYTRITON_HOME": str(folder / "home"), "PATH": path}
        self.environment.pop("PYTHONWARNINGS", None)

    def moved(self, text: str) -> str:
        """With the ports of this test."""
        text = re.sub(r'"((?:grpc|http)://)?localhost"', r'"\1localhost:8000"', text)
        text = text.replace("grpc://localhost:8000", "grpc://localhost:8001")
        return re.sub(r"\b80(?:00|01|02|03|80)\b", lambda port: self.ports[port[0]], text)

    def bring(self, files: dict[str, bytes]) -> None:
        """Put what readers of a page have beside its programs."""
        for name, content in files.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def program(self, code: str) -> tuple[list[str], dict[str, str]]:
        """The command that runs it, and its environment."""
        named = re.match(r"# (\w+\.py)", code)
        file = self.folder / (named[1] if named else "program.py")
        file.write_text(self.moved(code), encoding="utf-8")
        rest = {"PYTRITON_REST_PORT": str(self.rest)} if "rest=" in code else {}
        return [sys.executable, str(file)], {**self.environment, **rest}

    def run(self, code: str) -> str:
        """What a program prints, which has to end well."""
        command, environment = self.program(code)
        done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def served(self, code: str) -> Iterator[None]:
        """While a program serves."""
        command, environment = self.program(code)
        log = self.folder / "server.log"
        with log.open("w") as output:
            process = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + DEADLINE_S
            doors = [(self.rest, "/models/health/ready")] if APPLICATION in code else [(self.http, "/v2/health/ready")]
            doors += [(self.rest, "/health/ready")] * ("rest=" in code)
            while not (catches_sigterm(process.pid) and all(is_ready(port, path) for port, path in doors)):
                assert process.poll() is None, f"{code}\n{log.read_text()}"
                assert time.monotonic() < deadline, f"{code}\n{log.read_text()}"
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
        ended = -signal.SIGTERM if APPLICATION in code else 0  # uvicorn ends as a signal ends programs
        assert process.returncode == ended, log.read_text()

    def type(self, console: str) -> None:
        """Type each command of a session, and compare what it prints; ``...`` in the page is anything."""
        for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            length = next(n for n in range(1, len(lines) + 1) if is_whole("\n".join(lines[:n])))
            command, expected = self.moved("\n".join(lines[:length])), self.moved("\n".join(lines[length:]))
            command = re.sub(r"^curl ", "curl --silent --show-error --noproxy '*' ", command)
            done = subprocess.run(
                ["bash", "-c", command],
                env=self.environment,
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
            pattern = ".*".join(re.escape(text) for text in expected.strip().split("..."))
            assert re.fullmatch(pattern, done.stdout.strip(), re.DOTALL), f"{command}\n{done.stdout}{done.stderr}"


def catches_sigterm(process: int) -> bool:
    """Whether a program serves: before that, it may still bind models."""
    status = Path("/proc", str(process), "status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def is_whole(command: str) -> bool:
    """Whether a shell would run it, or wait for more."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\")


def is_ready(port: int, path: str) -> bool:
    """Whether a server answers there, and all of its models are loaded."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page", [README, *(pytest.param(page, marks=pytest.mark.thorough) for page in PAGES)], ids=lambda page: page.name
)
def test_what_a_page_shows_runs_and_prints_what_the_page_says(page, tmp_path):
    with reserved_ports(5) as ports:
        reader = Reader(tmp_path, ports)
        reader.bring(BROUGHT.get(page.name, {}))
        with ExitStack() as served:
            left_out = False
            for block in blocks(page):
                if block.language == "python":
                    missing = [name for name in OTHERS if f" {name}" in block.text and not has(name)]
                    left_out = bool(missing)
                if left_out or (block.language == "console" and not shutil.which("curl")):
                    continue  # with the sessions that call a program which cannot run here
                if block.language == "console":
                    reader.type(block.text)
                elif ".serve()" in block.text or APPLICATION in block.text:
                    served.close()
                    served.enter_context(reader.served(block.text))
                else:
                    printed = reader.run(block.text)
                    assert block.printed is None or printed.strip() == block.printed, block.text


def has(package: str) -> bool:
    """Whether a package is installed where the programs run."""
    return find_spec(package) is not None
