"""Servers in processes of their own, which have no models and know nothing of those who bind some."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tritonclient.http
from tritonclient.utils import InferenceServerException

from pytriton.client import ModelClient
from pytriton.client.auth import create_auth_headers
from pytriton.config import TritonConfig
from pytriton.server.installation import find_installation, overlay, server_environment
from pytriton.server.launch import flags
from tests.server.arrays import filled
from tests.server.own_server import address
from tests.server.processes import DEADLINE_S, is_alive, wait_for

TOKEN = "secret-of-this-test"
PROTOCOLS = ["http", "grpc"]

TRITON = """
import json, sys
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig
options, token = json.loads(sys.argv[1])
Triton(config=TritonConfig(**options), security_config=TritonSecurityConfig(token)).serve()
"""

REMOTE = """
import logging, sys
import numpy as np
from pytriton.model_config import Tensor
from pytriton.triton import RemoteTriton
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
remote = RemoteTriton(sys.argv[1], access_token=sys.argv[2], listen=sys.argv[4] or None)
tensors = [[Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in ("x", "y")]
remote.bind(sys.argv[3], lambda requests: [{"y": request["x"] * 10} for request in requests], *tensors)
remote.serve()
print("serve returned", flush=True)
"""


@contextmanager
def other_triton(config: TritonConfig, token: str, *before: str) -> Iterator[subprocess.Popen[str]]:
    """A ``Triton`` in another process; the process. The words ``before`` start its command line."""
    options = {name: value for name, value in config.to_dict().items() if value is not None}
    process = subprocess.Popen([*before, sys.executable, "-c", TRITON, json.dumps([options, token])], text=True)
    try:
        wait_ready(config, process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
        wait_for(lambda: not is_listening(config), "the server to end")


@contextmanager
def plain_tritonserver(config: TritonConfig, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The server's binary without anything of ours, on an empty repository; the process.

    Args:
        config: Its options.
        folder: For its files; new.
        arguments: More of its command line.
    """
    installation = find_installation()
    python = overlay(installation, folder)
    (folder / "repository").mkdir()
    command = [
        str(installation.executable),
        f"--model-repository={folder / 'repository'}",
        f"--backend-directory={folder / 'backends'}",
        *flags(config),
        *arguments,
    ]
    with open(folder / "server.log", "w") as log:
        environment = server_environment(installation, folder, python)
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True)
    try:
        wait_ready(config, process)
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)


class RemoteProcess:
    """A ``RemoteTriton`` in another process, with a model that multiplies by ten."""

    def __init__(self, url: str, token: str, model: str, listen: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", REMOTE, url, token, model, listen],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, number: signal.Signals) -> str:
        """Signal the process, wait for its end; what it wrote."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=DEADLINE_S)[0]

    def kill(self) -> None:
        """Make sure that it does not outlive the test."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def wait_ready(config: TritonConfig, process: subprocess.Popen[str]) -> None:
    """Wait for the server of a process."""

    def is_ready() -> bool:
        assert is_alive(process.pid), "the server ended"
        with tritonclient.http.InferenceServerClient(address(config, "http").removeprefix("http://")) as client:
            try:
                return bool(client.is_server_ready())
            except (OSError, InferenceServerException):
                return False

    wait_for(is_ready, "the server to be ready")


def is_listening(config: TritonConfig) -> bool:
    """Whether somebody listens on the server's HTTP port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", config.http_port or 0)) == 0


def models_of(config: TritonConfig, token: str) -> set[str]:
    """Names of the models that a server serves; its index has only those of its own repository."""
    with tritonclient.http.InferenceServerClient(address(config, "http").removeprefix("http://")) as client:
        answer = client.get_inference_statistics(headers=create_auth_headers(token, "http"))
    return {entry["name"] for entry in answer["model_stats"]}


def triple(requests: list[Any]) -> list[Any]:
    """An inference callable: ``y`` is three times ``x``."""
    return [{"y": request["x"] * 3} for request in requests]


def answer(
    config: TritonConfig, model: str = "m", protocol: str = "http", version: str | None = None, **options: Any
) -> float:
    """What a model of a server makes of 1; options are those of ModelClient."""
    with ModelClient(address(config, protocol), model, version, **options) as client:
        return float(client.infer_batch(filled(1))["y"][0, 0])
