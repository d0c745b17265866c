"""The access token opens what it protects, and is nowhere to be seen; what holds tensors is for its user alone."""

import logging
import os
import stat
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from pytriton.client import AsyncioModelClient, DecoupledModelClient, FuturesModelClient, ModelClient
from pytriton.client.auth import create_auth_headers
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import ModelConfig
from pytriton.triton import VALID_TRITON_ENDPOINTS, RemoteTriton, Triton, TritonSecurityConfig
from tests.server.conftest import local_config
from tests.server.own_server import TENSORS, address, double, serving
from tests.server.processes import descendants
from tests.server.proxies import IS_NATIVE
from tests.unit.generators import count_up

pytestmark = pytest.mark.either_proxy

X = np.arange(3, dtype=np.float32)
PROTECTED = [
    "get_system_shared_memory_status",
    "get_model_repository_index",
    "get_inference_statistics",
    "get_trace_settings",
    "get_log_settings",
]
OPEN = ["is_server_live", "is_server_ready", "get_server_metadata"]


@pytest.fixture(scope="module")
def triton_config():
    with local_config() as config:
        yield config


@pytest.fixture(scope="module")
def triton(triton_config):
    """A server with what is protected by default, and a model."""
    with serving(triton_config) as triton:
        yield triton


@pytest.fixture
def bare(triton, triton_config, protocol):
    """A client of tritonclient."""
    lib = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
    with lib.InferenceServerClient(address(triton_config, protocol).partition("://")[2]) as client:
        yield client


@pytest.fixture
def token(triton, protocol):
    return create_auth_headers(triton.get_access_token(), protocol)


@pytest.mark.parametrize("method", PROTECTED)
def test_what_calling_models_does_not_need_needs_the_token(bare, protocol, token, method):
    status, name = {"http": ("403", "API"), "grpc": ("StatusCode.UNAVAILABLE", "protocol")}[protocol]
    for headers in (None, dict.fromkeys(token, "wrong")):
        with pytest.raises(InferenceServerException) as refused:
            getattr(bare, method)(headers=headers)
        assert refused.value.status() == status
        assert f"This {name} is restricted, expecting header '{next(iter(token))}'" in str(refused.value)
    getattr(bare, method)(headers=token)


@pytest.mark.parametrize("method", OPEN)
def test_other_endpoints_are_open(bare, method):
    assert getattr(bare, method)()


def test_models_are_called_without_the_token(url, triton):
    with ModelClient(url, "m") as client:
        assert np.array_equal(client.infer_sample(X)["y"], X * 2)


def test_models_are_loaded_with_the_token_alone(url, triton):
    with ModelClient(url, "m") as stranger, pytest.raises(PyTritonClientInferenceServerError, match="restricted"):
        stranger.unload_model()
    with ModelClient(url, "m", access_token=triton.get_access_token()) as client:
        client.unload_model()
        client.load_model()
        assert np.array_equal(client.infer_sample(X)["y"], X * 2)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "environment"), [({"access_token": "mine"}, ""), ({}, "mine"), ({"access_token": "mine"}, "other")]
)
async def test_every_client_calls_a_server_that_protects_everything(options, environment, monkeypatch):
    monkeypatch.setenv("PYTRITON_ACCESS_TOKEN", environment)
    security = TritonSecurityConfig("mine", VALID_TRITON_ENDPOINTS)
    with local_config() as config, Triton(config=config, security_config=security) as triton:
        assert triton.get_access_token() == "mine"
        triton.bind("m", double, *TENSORS)
        triton.bind("counter", count_up, *TENSORS, config=ModelConfig(decoupled=True, batcher=None))
        for protocol in ("http", "grpc"):
            url = address(config, protocol)
            with ModelClient(url, "m", **options) as client:
                assert np.array_equal(client.infer_sample(X)["y"], X * 2)
                known = client.model_config
            with FuturesModelClient(url, "m", **options) as client:
                assert np.array_equal(client.infer_sample(X).result()["y"], X * 2)
            async with AsyncioModelClient(url, "m", **options) as client:
                assert np.array_equal((await client.infer_sample(X))["y"], X * 2)
            with (
                ModelClient(
                    url, "m", model_config=known, ensure_model_is_ready=False, access_token="wrong"
                ) as stranger,
                pytest.raises(PyTritonClientInferenceServerError, match="restricted"),
            ):
                stranger.infer_sample(X)
        with DecoupledModelClient(address(config, "grpc"), "counter", **options) as client:
            assert len([*client.infer_sample(np.array([2], np.float32))]) == 2
        with RemoteTriton(address(config, "grpc"), **options) as remote:
            remote.bind("remote", double, *TENSORS)
            with ModelClient(address(config, "http"), "remote", **options) as client:
                assert np.array_equal(client.infer_sample(X)["y"], X * 2)


def test_without_restrictions_everything_is_open_and_the_token_is_the_one_that_was_given():
    with local_config() as config, serving(config, security_config=TritonSecurityConfig("unused", [])) as triton:
        assert triton.get_access_token() == "unused"
        for protocol, lib in (("http", tritonclient.http), ("grpc", tritonclient.grpc)):
            with lib.InferenceServerClient(address(config, protocol).partition("://")[2]) as client:
                for method in PROTECTED:
                    getattr(client, method)()


@pytest.mark.parametrize("off", ["allow_http", "allow_grpc"])
def test_rules_of_the_configuration_are_kept_beside_the_tokens(off):
    rules = {"http_restricted_api": "statistics,health:x-key=open", "grpc_restricted_protocol": "model-repository:k=v"}
    with local_config(**rules, **{off: False}) as config, serving(config) as triton:
        protocol, lib = ("grpc", tritonclient.grpc) if off == "allow_http" else ("http", tritonclient.http)
        token = create_auth_headers(triton.get_access_token(), protocol)
        own = {"http": {"x-key": "open"}, "grpc": {"triton-grpc-protocol-k": "v"}}[protocol]
        theirs = {"http": "get_inference_statistics", "grpc": "get_model_repository_index"}[protocol]
        with lib.InferenceServerClient(address(config, protocol).partition("://")[2]) as client:
            getattr(client, theirs)(headers=own)
            client.get_trace_settings(headers=token)
            for method, wrong in ((theirs, token), ("get_trace_settings", own)):
                with pytest.raises(InferenceServerException, match="restricted"):
                    getattr(client, method)(headers=wrong)


def test_a_clash_of_rules_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("pytriton.constants.PYTRITON_HOME", tmp_path)
    with (
        local_config(http_restricted_api="trace:k=v") as config,
        pytest.raises(PyTritonValidationError, match="both restrict trace"),
    ):
        Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=["trace"]))
    assert [*tmp_path.iterdir()] == []


def family():
    """This process and all those of its servers."""
    return [os.getpid(), *descendants(os.getpid())]


def test_the_token_is_in_no_command_line_no_environment_and_no_log(monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_HTTP_RESTRICTED_API", "metadata:k=s3cret-of-http")
    security = TritonSecurityConfig("s3cret-token")
    secrets = (b"s3cret-token", b"s3cret-of-http")
    with local_config(log_verbose=3) as config, serving(config, security_config=security) as triton:
        with ModelClient(address(config, "http"), "m", access_token="s3cret-token") as client:
            client.infer_sample(X)
            client.unload_model()
            client.load_model()
        with ModelClient(address(config, "grpc"), "m", access_token="s3cret-token") as client:
            client.infer_sample(X)
            client.unload_model()
            client.load_model()
        pids = family()
        assert len(pids) >= 3  # this process, guard, server, and stubs if there are any
        for pid in pids:
            assert not any(secret in Path(f"/proc/{pid}/cmdline").read_bytes() for secret in secrets)
        for pid in pids[1:]:
            assert not any(secret in Path(f"/proc/{pid}/environ").read_bytes() for secret in secrets)
        shown = repr(triton) + repr(triton._config) + repr(triton._security) + repr(triton._restrictions)
    output = "".join(capfd.readouterr()) + caplog.text
    assert "--http-restricted-api" not in output
    assert "Started HTTPService" in output
    assert "s3cret" not in output + shown


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_memory_are_for_their_user_alone(triton, url):
    with ModelClient(url, "m") as client:
        client.infer_batch(np.ones((2, 100_000), np.float32))
    workspace = triton._workspace.path
    assert {mode(workspace), mode(workspace / "sockets")} == {0o700}
    files = {
        Path(found)
        for pid in family()
        for found in _open_files(pid)
        if found.startswith("/dev/shm/pytriton-") or "pytriton-arena" in found
    }
    assert {str(path) for path in files if not str(path).startswith("/dev/shm/")} == {"/memfd:pytriton-arena (deleted)"}
    regions = [path for path in files if str(path).startswith("/dev/shm/")]
    assert bool(regions) != IS_NATIVE
    assert {mode(region) for region in regions} <= {0o600}


def _open_files(pid):
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            yield os.readlink(path)
        except FileNotFoundError:  # closed meanwhile
            continue


def test_a_missing_certificate_is_told_before_a_server_starts(tmp_path, capfd):
    options = {"grpc_use_ssl": True, "grpc_server_cert": tmp_path / "none.pem", "grpc_server_key": tmp_path / "key.pem"}
    with local_config(**options) as config:
        triton = Triton(config=config)
        with pytest.raises(PyTritonValidationError, match=r"grpc_server_cert .*none\.pem cannot be read"):
            triton.run()
        triton.stop()
    assert capfd.readouterr().out == ""
