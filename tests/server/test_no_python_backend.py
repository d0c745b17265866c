"""A server whose Python backend cannot run in this interpreter: the native proxy serves all the same."""

import logging
from dataclasses import replace

import pytest

from pytriton.exceptions import PyTritonModelControlError, PyTritonServerError
from pytriton.model_config import ModelConfig
from pytriton.server.backends import LIBRARY, PROXY_VARIABLE
from pytriton.server.installation import BUNDLED, HOME_VARIABLE
from pytriton.triton import RemoteTriton, Triton, TritonSecurityConfig
from tests.server.command import run
from tests.server.other_server import PROTOCOLS, answer
from tests.server.own_server import TENSORS, address, double, servers_of, serving

pytestmark = [
    pytest.mark.either_proxy,
    pytest.mark.skipif(not LIBRARY.is_file(), reason="the native proxy was not built"),
]

PYTHON_MODEL = """
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """The bundled server without its stubs, as it is for an interpreter of a version that it does not know."""
    folder = tmp_path / "server"
    folder.mkdir()
    for name in ("bin", "lib", "caches", "backends"):
        (folder / name).symlink_to(BUNDLED / name)
    monkeypatch.setenv(HOME_VARIABLE, str(folder))
    monkeypatch.delenv(PROXY_VARIABLE, raising=False)
    return folder


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bound_models_are_served(free_config, protocol):
    with serving(free_config):
        assert answer(free_config, protocol=protocol) == 2


def test_a_model_that_is_to_have_the_python_proxy_is_refused_before_the_server_starts(free_config):
    triton = Triton(config=free_config)
    with pytest.raises(PyTritonServerError, match=r"has no Python backend: .* have the native proxy serve the model"):
        triton.bind("m", double, *TENSORS, config=ModelConfig(proxy="python"))
    assert not servers_of(free_config)
    triton.stop()


def test_so_is_one_if_the_environment_asks_for_that_proxy(free_config, monkeypatch):
    monkeypatch.setenv(PROXY_VARIABLE, "python")
    with Triton(config=free_config) as triton:
        with pytest.raises(PyTritonServerError, match="PYTRITON_PROXY=python"):
            triton.bind("m", double, *TENSORS)
        triton.bind("n", double, *TENSORS, config=ModelConfig(proxy="native", max_batch_size=4))
        assert answer(free_config, "n") == 2


def test_a_python_model_of_ones_own_is_a_warning_that_says_why_it_is_not_served(free_config, tmp_path, caplog):
    (tmp_path / "repository" / "copy" / "1").mkdir(parents=True)
    (tmp_path / "repository" / "copy" / "config.pbtxt").write_text(PYTHON_MODEL)
    with serving(replace(free_config, model_repository=tmp_path / "repository")):
        assert answer(free_config) == 2
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "model copy of the model repository is not served" in warning
    assert f"the server at {tmp_path / 'server'} has no Python backend" in warning


def test_a_remote_triton_is_told_what_its_server_lacks(free_config):
    with (
        Triton(config=free_config, security_config=TritonSecurityConfig(restricted_endpoints=[])),
        RemoteTriton(address(free_config, "http")) as remote,
        pytest.raises(PyTritonModelControlError, match="RemoteTriton needs Triton's Python backend, which this server"),
    ):
        remote.bind("m", double, *TENSORS)


def test_the_command_tells_which_proxy_is_used_and_what_is_missing(home):
    shown = run("env").stdout
    assert f"\nproxy of bound models: native, {LIBRARY}\n" in shown
    assert f"\nTriton's Python backend cannot be used: the server at {home} has no Python backend" in shown
    assert "\nversion 2." in shown


def test_the_self_test_passes(home):
    done = run("check")
    assert done.returncode == 0, done.stdout
    assert "proxy of bound models: native" in done.stdout
