"""``pytriton status`` of a protected server."""

import signal

import numpy as np
import pytest

from pytriton import Split
from pytriton.client import ModelClient
from pytriton.model_config import Tensor
from pytriton.triton import Triton, TritonSecurityConfig
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.command import Command, run
from tests.server.conftest import local_config
from tests.server.own_server import address, serving
from tests.server.processes import wait_for
from tests.server.tls import Certificates
from tests.server.worker_factories import doubling

pytestmark = pytest.mark.either_proxy

TOKEN = "t0p-token"


@pytest.fixture(scope="module")
def protected():
    """A server with a model that was called, open to everybody but for the usual endpoints."""
    with local_config() as config, serving(config, security_config=TritonSecurityConfig(TOKEN)) as triton:
        with ModelClient(address(config, "http"), "m") as client:
            client.infer_batch(filled(1, rows=3))
        wait_for(lambda: triton.statistics("m")[0].success.count == 1, "the request to be counted")
        yield config


@pytest.fixture(scope="module", params=["http", "grpc"])
def url(request, protected):
    return address(protected, request.param)


def test_with_the_token_it_tells_what_the_models_have_done(url):
    done = run("status", url, PYTRITON_ACCESS_TOKEN=TOKEN)
    assert done.returncode == 0
    assert f"{url}: live, ready; triton 2." in done.stdout
    (row,) = [line.split() for line in done.stdout.splitlines() if "READY" in line]
    assert row[:6] == ["m", "1", "READY", "3", "1", "0"]
    assert row[-2] in ("s", "min")  # since the server of this module was called
    assert row[-1] == "ago"


def test_without_the_token_it_says_how_to_give_it(url):
    done = run("status", url)
    assert done.returncode == 0
    assert f"{url}: live, ready; triton 2." in done.stdout
    assert (
        "It does not report the states of its models: it needs the access token. Set PYTRITON_ACCESS_TOKEN"
        in done.stdout
    )
    assert "It does not report its statistics" in done.stdout


def test_a_wrong_token_is_called_so(url):
    done = run("status", url, "--token", "wrong")
    assert done.stdout.count("the access token is wrong") == 2
    assert TOKEN not in done.stdout


def test_a_server_whose_health_is_protected_asks_for_the_token():
    security = TritonSecurityConfig(TOKEN, restricted_endpoints=["health"])
    with local_config() as config, serving(config, security_config=security):
        for protocol in ("http", "grpc"):
            refused = run("status", address(config, protocol))
            assert refused.returncode == 1
            assert "PYTRITON_ACCESS_TOKEN" in refused.stdout
            assert run("status", address(config, protocol), "--token", TOKEN).returncode == 0


def test_a_connection_can_be_encrypted(tmp_path):
    files = Certificates.in_folder(tmp_path)
    tls = {"grpc_use_ssl": True, "grpc_server_cert": files.chain, "grpc_server_key": files.key}
    with local_config(grpc_root_cert=files.root, **tls) as config, serving(config):
        url = address(config, "grpc")
        assert run("status", url, "--tls", "--roots", str(files.root)).returncode == 0
        assert run("status", url).returncode == 1


def test_a_server_that_is_not_there_is_not_ready(free_config):
    done = run("status", address(free_config, "http"))
    assert done.returncode == 1
    assert "not live, not ready" in done.stdout
    assert "failed at is_server_live" in done.stdout


def test_it_can_be_watched_until_a_signal(protected, tmp_path):
    command = Command(tmp_path, "status", address(protected, "http"), "--token", TOKEN, "--watch", "0.1")
    try:
        command.wait_for("live, ready; triton 2.", times=3)
        assert command.end(signal.SIGINT) == 0
    finally:
        command.kill()


def test_workers_and_why_batches_leave_are_shown_where_the_app_is(free_config):
    pytest.importorskip("starlette")
    from tests.server.rest.apps import app_config

    tensors = [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("x", "y")]
    with (
        app_config() as rest,
        Triton(config=free_config, security_config=TritonSecurityConfig(TOKEN), rest=rest) as own,
    ):
        own.bind("idle", Processes(doubling, count=2), tensors[:1], tensors[1:])
        url = address(free_config, "http")
        assert "2 ready" in run("status", url, PYTRITON_ACCESS_TOKEN=TOKEN).stdout
        assert "2 ready" not in run("status", url).stdout
        with ModelClient(url, "idle") as client:
            client.infer_batch(filled(1))
        wait_for(
            lambda: "worker idle 100%" in run("status", url, PYTRITON_ACCESS_TOKEN=TOKEN).stdout,
            "the batch to be counted",
        )
        own.scale("idle", 0)
        wait_for(lambda: own.worker_status("idle")[0].state == "at zero", "it to be at zero")
        assert "at zero for" in run("status", url, PYTRITON_ACCESS_TOKEN=TOKEN).stdout


def test_weights_of_a_split_are_changed_and_its_requests_shown(free_config):
    pytest.importorskip("starlette")
    from tests.server.rest.apps import app_config

    def shout(text: str) -> str:
        return text.upper()

    with (
        app_config() as rest,
        Triton(config=free_config, security_config=TritonSecurityConfig(TOKEN), rest=rest) as own,
    ):
        split = Split({"shout": 1})
        own.bind(shout)
        own.bind("which", split)
        url = address(free_config, "http")
        given = ["weigh", url, "--model", "which"]
        done = run(*given, "shout=0.5", PYTRITON_ACCESS_TOKEN=TOKEN)
        assert (done.returncode, done.stdout) == (0, "which: shout=0.5\n")
        assert split.weights == {"shout": 0.5}
        with ModelClient(url, "which") as client:
            assert client.call("a") == "A"
        assert "1 shout" in run("status", url, PYTRITON_ACCESS_TOKEN=TOKEN).stdout
        for wrong in (["other=1"], ["shout"], ["shout=x"], ["shout=-1"], ["shout=nan"]):
            refused = run(*given, *wrong, PYTRITON_ACCESS_TOKEN=TOKEN)
            assert (refused.returncode, "Traceback" in refused.stderr) != (0, True)
            assert "weight" in refused.stderr, refused.stderr
        for unclear in (["shout=nan"], ["shout=inf"], ["=1"], ["shout=1", "shout=2"]):
            assert run(*given, *unclear, PYTRITON_ACCESS_TOKEN=TOKEN).returncode == 2
        assert run(*given, "shout=1").returncode == 1
    assert split.weights == {"shout": 0.5}
