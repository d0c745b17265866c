"""Starting, binding and stopping within one process."""

import json
import logging
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http

from pytriton.client import ModelClient
from pytriton.client.auth import create_auth_headers
from pytriton.client.exceptions import PyTritonClientError
from pytriton.decorators import batch
from pytriton.exceptions import (
    PyTritonBadParameterError,
    PyTritonError,
    PyTritonInvalidOperationError,
    PyTritonModelControlError,
    PyTritonServerError,
    PyTritonValidationError,
)
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonLifecyclePolicy
from pytriton.utils.workspace import Workspace
from tests.server.conftest import local_config
from tests.server.leftovers import nothing_left
from tests.server.own_server import TENSORS, server_of, serving
from tests.server.processes import DEADLINE_S, is_alive, wait_for

pytestmark = pytest.mark.either_proxy

X = np.array([[1.0, 2.0]], np.float32)
IN, OUT = TENSORS

ECHO_MODEL = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [-1]})
        return config
"""


LATE = """
import atexit, json, sys, threading
import numpy as np
from pytriton.client import ModelClient
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

config = TritonConfig(**json.loads(sys.argv[1]))
tensors = [[Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in ("x", "y")]
double = lambda requests: [{"y": request["x"] * 2} for request in requests]

def serve():
    with Triton(config=config) as triton:
        for name in ("a", "b"):
            triton.bind(name, double, *tensors)
        with ModelClient(f"http://127.0.0.1:{config.http_port}", "b") as client:
            print("answer", client.infer_batch(np.ones((1, 1), np.float32))["y"], flush=True)

def serve_late():
    threading.main_thread().join()
    serve()

def try_to_serve():
    try:
        triton = Triton(config=config)
        triton.bind("a", double, *tensors)
        triton.run()
    except PyTritonInvalidOperationError as error:
        print("error", error, flush=True)

if sys.argv[2] == "thread":
    threading.Thread(target=serve_late).start()
else:
    atexit.register(try_to_serve)
"""


@batch
def double(x):
    return [x * 2]


@batch
def triple(x):
    return [x * 3]


def url(config, protocol="http"):
    return f"{protocol}://127.0.0.1:{config.http_port if protocol == 'http' else config.grpc_port}"


def infer(config, model, protocol="http", version=None):
    with ModelClient(url(config, protocol), model, version) as client:
        return client.infer_batch(X)["y"]


def own_threads():
    """Without that of a server in this process, which other tests may have had here and which lasts."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("pytriton") and not name.startswith("pytriton-inprocess")]


def test_models_bound_before_and_after_the_start_are_served(free_config):
    triton = Triton(config=free_config)
    triton.bind("before", double, IN, OUT)
    assert not triton.is_alive()
    assert not triton.is_connected()
    triton.run()
    try:
        assert triton.is_alive()
        assert triton.is_connected()
        triton.bind("after", triple, IN, OUT)
        assert np.array_equal(infer(free_config, "before"), X * 2)
        assert np.array_equal(infer(free_config, "after"), X * 3)
        triton.run()  # again: nothing happens
        triton.connect()
        assert np.array_equal(infer(free_config, "before"), X * 2)
    finally:
        assert triton.stop() is True
    assert triton.stop() is False
    assert not triton.is_alive()
    wait_for(lambda: not own_threads(), "threads to end")


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((), {}), ((5.0,), {}), ((), {"monitoring_period_s": 5}), ((), {"monitoring_period_sec": 5})],
)
def test_serve_returns_after_stop_from_another_thread(free_config, arguments, keywords):
    triton = Triton(config=free_config)
    triton.bind("double", double, IN, OUT)
    serving = threading.Thread(target=triton.serve, args=arguments, kwargs=keywords)
    serving.start()
    try:
        assert np.array_equal(infer(free_config, "double"), X * 2)
    finally:
        triton.stop()
        serving.join(DEADLINE_S)
    assert not serving.is_alive()


def test_serve_refuses_its_argument_under_both_names(free_config):
    triton = Triton(config=free_config)
    with pytest.raises(TypeError, match="not both"):
        triton.serve(1.0, monitoring_period_sec=2.0)
    triton.stop()


def test_a_stop_before_the_start_does_nothing(free_config):
    with Triton(config=free_config, triton_lifecycle_policy=TritonLifecyclePolicy(False)) as triton:
        assert triton.stop() is False
        triton.bind("double", double, IN, OUT)
        assert triton.stop() is False
        triton.run()
        assert np.array_equal(infer(free_config, "double"), X * 2)
        assert triton.stop() is True


def test_a_stop_that_fails_ends_everything_else_and_is_over(free_config):
    class Unremovable(Workspace):
        def clean(self):
            super().clean()
            raise OSError("a file is in use")

    triton = serving(free_config, workspace=Unremovable())
    triton.run()
    server = server_of(free_config)
    with pytest.raises(OSError, match="in use"):
        triton.stop()
    assert triton.stop() is False  # instead of waiting for the first one
    wait_for(lambda: not is_alive(server), "the server to end")


def test_a_stopped_object_says_that_it_cannot_be_used_again(free_config):
    triton = Triton(config=free_config)
    triton.run()
    assert triton.stop() is True
    with pytest.raises(PyTritonInvalidOperationError, match="create a new one"):
        triton.run()
    with pytest.raises(PyTritonInvalidOperationError, match="create a new one"):
        triton.bind("double", double, IN, OUT)


def test_an_exception_in_the_context_passes_and_the_server_ends(free_config):
    with pytest.raises(ZeroDivisionError), Triton(config=free_config) as triton:
        raise ZeroDivisionError
    assert not triton.is_alive()


def test_two_servers_at_once_in_one_process(free_config):
    with local_config() as other, Triton(config=free_config) as first, Triton(config=other) as second:
        first.bind("model", double, IN, OUT)
        second.bind("model", triple, IN, OUT)
        assert np.array_equal(infer(free_config, "model"), X * 2)
        assert np.array_equal(infer(other, "model", "grpc"), X * 3)


def test_serving_leaves_no_thread_and_no_file_open(free_config):
    def serve():
        with Triton(config=free_config) as triton:
            for name in ("one", "two"):
                triton.bind(name, double, IN, OUT)

    serve()  # the libraries open files of their own, once
    with nothing_left():
        serve()


def test_two_objects_share_one_callable(free_config):
    with local_config() as other, Triton(config=free_config) as first, Triton(config=other) as second:
        first.bind("one", double, IN, OUT)
        second.bind("two", double, IN, [Tensor(name="z", shape=(-1,), dtype=np.float32)])
        assert np.array_equal(infer(free_config, "one"), X * 2)
        with ModelClient(url(other), "two") as client:
            assert np.array_equal(client.infer_batch(X)["z"], X * 2)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_with_one_protocol_alone_serves(free_config, protocol):
    off = {"http": "allow_grpc", "grpc": "allow_http"}[protocol]
    with Triton(config=replace(free_config, **{off: False}, allow_metrics=False)) as triton:
        triton.bind("double", double, IN, OUT)
        assert np.array_equal(infer(free_config, "double", protocol), X * 2)


def test_versions_of_a_model_are_served_side_by_side(free_config):
    with Triton(config=free_config) as triton:
        triton.bind("model", double, IN, OUT, model_version=1)
        assert np.array_equal(infer(free_config, "model"), X * 2)
        triton.bind("model", triple, IN, OUT, model_version=2)
        assert np.array_equal(infer(free_config, "model", version="1"), X * 2)
        assert np.array_equal(infer(free_config, "model", version="2"), X * 3)
        assert np.array_equal(infer(free_config, "model"), X * 3)
        with pytest.raises(PyTritonBadParameterError, match="another name"):
            triton.bind("model", triple, IN, OUT, model_version=3, config=ModelConfig(batching=False))
        with pytest.raises(PyTritonInvalidOperationError, match="bound already"):
            triton.bind("MODEL", triple, IN, OUT, model_version=1)


def test_a_model_that_a_client_unloads_stays_unloaded_until_it_is_loaded(free_config, caplog):
    caplog.set_level(logging.WARNING, "pytriton")
    with Triton(config=free_config) as triton:
        triton.bind("double", double, IN, OUT)
        token = create_auth_headers(triton.get_access_token(), "http")
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{free_config.http_port}") as client:
            client.unload_model("double", headers=token)
            wait_for(lambda: not next(iter(triton._models)).is_connected(), "the proxy to go")
            assert not client.is_model_ready("double")
            client.load_model("double", headers=token)
            assert client.is_model_ready("double")
        assert np.array_equal(infer(free_config, "double"), X * 2)
    assert not caplog.records


def test_a_model_that_the_server_refuses_is_forgotten(free_config, tmp_path):
    theirs = tmp_path / "repository" / "model"
    (theirs / "1").mkdir(parents=True)
    (theirs / "1" / "model.py").write_text(ECHO_MODEL)
    (theirs / "config.pbtxt").write_text('backend: "python"\nmax_batch_size: 0\n')
    with Triton(config=replace(free_config, model_repository=tmp_path / "repository")) as triton:
        for _ in range(2):  # the second time says the same, and not that the model is bound
            with pytest.raises(PyTritonModelControlError, match="model"):
                triton.bind("model", double, IN, OUT)
        triton.bind("other", double, IN, OUT)
        assert triton.is_alive()
        assert np.array_equal(infer(free_config, "other"), X * 2)


def test_a_flag_that_the_server_refuses_is_reported_in_its_own_words(free_config, tmp_path):
    config = replace(free_config, rate_limit="extreme")
    workspace = tmp_path / "workspace"
    with (
        pytest.raises(PyTritonServerError, match=r"(?s)did not start.*rate"),
        Triton(config=config, workspace=workspace),
    ):
        pass
    assert not workspace.exists()


def test_a_port_in_use_is_reported_before_anything_starts(free_config, tmp_path):
    workspace = tmp_path / "workspace"
    with (
        socket.create_server(("127.0.0.1", free_config.grpc_port)),
        pytest.raises(PyTritonServerError, match=f"grpc.*{free_config.grpc_port}.*grpc_port"),
    ):
        Triton(config=free_config, workspace=workspace).__enter__()
    assert not workspace.exists()


def test_the_environment_configures_the_server_and_the_argument_wins(free_config, monkeypatch):
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_ID", "from-environment")
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_ALLOW_METRICS", "no")
    with (
        Triton(config=free_config),
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{free_config.http_port}") as client,
    ):
        assert client.get_server_metadata()["name"] == "from-environment"
    with (
        Triton(config=replace(free_config, id="from-argument")),
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{free_config.http_port}") as client,
    ):
        assert client.get_server_metadata()["name"] == "from-argument"


def test_the_log_says_where_models_are_and_how_to_stop_once(free_config, caplog):
    caplog.set_level(logging.INFO, "pytriton")
    with Triton(config=free_config) as triton:
        triton.bind("double", double, IN, OUT)
        triton.run()
        triton.run()
    texts = [record.getMessage() for record in caplog.records]
    assert sum("Infer function available as model: `/v2/models/double`" in text for text in texts) == 1
    assert sum("Press CTRL+C" in text for text in texts) == 1


def test_a_verbose_server_is_warned_about_at_start_and_end(free_config, caplog):
    with Triton(config=replace(free_config, log_verbose=1)):
        pass
    assert [record.levelname for record in caplog.records if "log_verbose" in record.getMessage()] == ["WARNING"] * 2


def test_a_given_workspace_must_be_new_and_is_removed(free_config, tmp_path):
    with pytest.raises(FileExistsError):
        Triton(config=free_config, workspace=tmp_path)
    workspace = tmp_path / ("long" * 40) / "workspace"  # longer than the address of a socket may be
    with Triton(config=free_config, workspace=workspace) as triton:
        triton.bind("double", double, IN, OUT)
        assert (workspace / "model-store" / "double" / "config.pbtxt").is_file()
        assert workspace.stat().st_mode & 0o077 == 0
        assert np.array_equal(infer(free_config, "double"), X * 2)
    assert not workspace.exists()


def test_clients_of_a_stopped_server_get_errors_not_hangs(free_config):
    with Triton(config=free_config) as triton:
        triton.bind("double", double, IN, OUT)
        client = ModelClient(url(free_config), "double")
        assert np.array_equal(client.infer_batch(X)["y"], X * 2)
    with client, pytest.raises(PyTritonClientError):
        client.infer_batch(X)


def test_without_a_server_binary_the_error_says_how_to_point_at_one(free_config, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITONSERVER_HOME", str(tmp_path))
    with pytest.raises(PyTritonServerError, match="TRITONSERVER_HOME"):
        Triton(config=free_config)


def test_a_server_directory_of_the_user_is_used(free_config, monkeypatch, tmp_path):
    import pytriton

    home = tmp_path / "triton"
    home.symlink_to(Path(pytriton.__file__).parent / "tritonserver")
    monkeypatch.setenv("TRITONSERVER_HOME", str(home))
    with Triton(config=free_config) as triton:
        triton.bind("double", double, IN, OUT)
        assert str(home) in Path(f"/proc/{server_pid()}/cmdline").read_text()
        assert np.array_equal(infer(free_config, "double"), X * 2)


def server_pid():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if words[0].endswith("triton/bin/tritonserver") and is_alive(int(path.parent.name)):
            return path.parent.name
    raise AssertionError("no server runs from the user's directory")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"model_name": ""}, PyTritonValidationError, "model name"),
        ({"model_name": "a b"}, PyTritonValidationError, "letters, digits"),
        ({"model_name": "a\n"}, PyTritonValidationError, "letters, digits"),
        ({"model_name": ".."}, PyTritonValidationError, "not only dots"),
        ({"model_name": "a/b"}, PyTritonValidationError, "letters, digits"),
        ({"model_name": "a" * 300}, PyTritonValidationError, "1 to 200 letters"),
        ({"infer_func": "double"}, PyTritonValidationError, "give a callable"),
        ({"infer_func": []}, PyTritonValidationError, "one callable per model instance"),
        ({"infer_func": [double, 1]}, PyTritonValidationError, "give a callable"),
        ({"outputs": [Tensor(shape=(1,), dtype=bytes, optional=True)]}, PyTritonValidationError, "optional output"),
        ({"inputs": ["x"]}, PyTritonValidationError, "list of Tensor"),
        ({"inputs": IN * 2}, PyTritonBadParameterError, "twice"),
        ({"config": {"max_batch_size": 4}}, PyTritonValidationError, "ModelConfig"),
        ({"config": ModelConfig(max_batch_size=0)}, PyTritonBadParameterError, "max_batch_size"),
        ({"model_version": 0}, PyTritonBadParameterError, "model_version"),
        ({"model_version": "1"}, PyTritonBadParameterError, "model_version"),
        ({"config": ModelConfig(max_batches_in_flight=0)}, PyTritonBadParameterError, "max_batches_in_flight"),
    ],
)
def test_bind_refuses_what_is_wrong_before_anything_starts(free_config, tmp_path, arguments, error, text):
    triton = Triton(config=free_config, workspace=tmp_path / "workspace")
    good = {"model_name": "model", "infer_func": double, "inputs": IN, "outputs": OUT}
    with pytest.raises(error, match=text) as raised:
        triton.bind(**{**good, **arguments})
    assert isinstance(raised.value, PyTritonError)
    assert not [*(tmp_path / "workspace" / "model-store").iterdir()]
    triton.stop()


def test_both_protocols_off_is_refused_at_construction():
    with pytest.raises(PyTritonValidationError, match="allow_http and allow_grpc"):
        Triton(config=TritonConfig(allow_http=False, allow_grpc=False))


def run_late(config, where):
    """What a program prints that serves models when its main thread has ended."""
    options = json.dumps({name: value for name, value in config.to_dict().items() if value is not None})
    command = [sys.executable, "-c", LATE, options, where]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=True).stdout


def test_models_are_served_by_a_thread_that_outlives_the_main_thread(free_config):
    assert "answer [[2.]]" in run_late(free_config, "thread")


def test_an_exit_handler_cannot_serve_models_and_is_told_so(free_config):
    assert "error cannot bind model 'a': the interpreter is exiting" in run_late(free_config, "atexit")
