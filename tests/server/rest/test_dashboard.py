"""``pytriton dashboard``: the pages for a server that another process launched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import httpx
import pytest

from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for

pytestmark = pytest.mark.either_proxy

TOKEN = "the-token-of-operators"


def shout(text: str) -> str:
    return text.upper()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytriton", "dashboard", *arguments]


def test_the_pages_of_a_server_elsewhere_show_its_models_and_take_the_commands_it_allows():
    security = TritonSecurityConfig(access_token=TOKEN)
    with (
        local_config() as config,
        Triton(config=config, security_config=security) as triton,
        reserved_ports(1) as ports,
    ):
        triton.bind(shout)
        triton.run()
        endpoints = triton.endpoints()
        options = [endpoints.http, "--port", str(ports[0]), "--metrics", endpoints.metrics, "--grpc", endpoints.grpc]
        operator = {"Authorization": f"Bearer {TOKEN}"}
        environment = {**os.environ, "PYTRITON_ACCESS_TOKEN": TOKEN}
        process = subprocess.Popen(command(*options), env=environment, stdout=subprocess.PIPE, text=True)
        try:
            with httpx.Client(base_url=f"http://{LOCALHOST}:{ports[0]}", timeout=DEADLINE_S, trust_env=False) as client:

                def has_sample():
                    try:
                        return "shout" in client.get("/pages/history", headers=operator).json()["models"]
                    except httpx.TransportError:
                        assert process.poll() is None
                        return False

                wait_for(has_sample, "a sample with the model")
                assert client.get("/pages/history").status_code == 401  # the figures are protected at the server
                about = client.get("/pages/about", headers=operator).json()
                assert (about["hasHost"], about["hasOperatorToken"], about["operator"]) == (False, True, True)
                assert [each["name"] for each in client.get("/pages/models").json()] == ["shout"]
                assert client.get("/pages/workers", headers=operator).json() == {"workers": None}
                assert client.post("/predict/shout", json={"text": "a"}).json() == {"result": "A"}
                unload = {"command": "unload", "model": "shout"}
                assert client.post("/pages/commands", json=unload).status_code == 401
                scale = {"command": "scale", "model": "shout", "count": 2}
                assert client.post("/pages/commands", json=scale, headers=operator).status_code == 501
                assert client.post("/pages/commands", json=unload, headers=operator).status_code == 200
                assert client.post("/predict/shout", json={"text": "a"}).status_code in (404, 503)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
    assert output == f"Dashboard of {endpoints.http} at http://{LOCALHOST}:{ports[0]}; Ctrl+C ends it\n"
    assert process.returncode in (0, 130, -signal.SIGINT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ftp://x"], "scheme 'ftp' is not supported"),
        (["localhost", "--grpc", "grpc://"], "it needs a host"),
        (["localhost", "--grpc", "localhost:8001"], "give one such as grpc://localhost:8001"),
    ],
)
def test_a_wrong_url_is_a_message_and_no_traceback(arguments, message):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
