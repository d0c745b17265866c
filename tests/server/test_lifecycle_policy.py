"""When the server starts, what it loads by itself then, and that it comes back."""

import json
import logging
import os
import re
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonServerError, PyTritonUnrecoverableError, PyTritonValidationError
from pytriton.restarts import RestartPolicy
from pytriton.triton import RemoteTriton, Triton, TritonLifecyclePolicy, VertextAILifecyclePolicy
from pytriton.workers import Processes
from tests.server.own_server import TENSORS, address, double, server_of, servers_of, serving
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, is_alive, temporary_folders, wait_for
from tests.server.proxies import HAS_EDGE, native_part_only

pytestmark = pytest.mark.either_proxy

X = np.array([[1.0, 2.0]], np.float32)
AT_RUN = TritonLifecyclePolicy(launch_triton_on_startup=False)
STORE = TritonLifecyclePolicy(local_model_store=True)
RESTART = TritonLifecyclePolicy(restart_server=True)


def doubling():
    """For worker processes."""
    return double


def infer(config, protocol="http", model="m", **options):
    with ModelClient(address(config, protocol), model, **options) as client:
        return client.infer_batch(X)["y"]


def answers(config, protocol="http", model="m"):
    try:
        return np.array_equal(infer(config, protocol, model, init_timeout_s=1, inference_timeout_s=5), X * 2)
    except PyTritonClientError:
        return False


def status(config, health):
    """That of the server's health; None while nothing listens there."""
    try:
        return fetch(config.http_port, f"/v2/health/{health}")
    except HTTPError as error:
        return error.code
    except URLError:
        return None


def kill_server(config):
    pid = server_of(config)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the server to die")


def test_by_default_the_server_starts_on_entering_and_otherwise_with_run(free_config):
    with Triton(config=free_config) as triton:
        assert server_of(free_config)
        assert triton.is_connected()
    with serving(free_config, triton_lifecycle_policy=AT_RUN) as triton:
        assert not triton.is_alive()
        assert not servers_of(free_config)
        triton.run()
        assert np.array_equal(infer(free_config), X * 2)


@pytest.mark.skipif(not HAS_EDGE, reason="about the edge, which waits for models")
def test_a_launched_server_starts_while_models_are_bound_and_is_not_ready_before_them(free_config):
    with serving(free_config, triton_lifecycle_policy=AT_RUN) as triton:
        triton.launch()
        wait_for(lambda: status(free_config, "live") == 200, "the server to be live")
        pid = server_of(free_config)
        triton.launch()
        assert status(free_config, "ready") == 400
        triton.run()
        assert status(free_config, "ready") == 200
        assert server_of(free_config) == pid
        assert np.array_equal(infer(free_config), X * 2)
    abandoned = Triton(config=free_config)
    abandoned.launch()
    abandoned.stop()
    assert not servers_of(free_config)


def test_a_server_that_loads_models_at_its_start_loads_each_once(free_config, tmp_path):
    config = replace(free_config, log_file=tmp_path / "server.log")
    triton = serving(config, triton_lifecycle_policy=STORE)
    with triton:
        log = (tmp_path / "server.log").read_text()
        assert log.index("successfully loaded 'm'") < log.index("Started HTTPService")
        assert log.count("successfully loaded 'm'") == 1
        assert triton.is_connected()
        triton.bind("later", double, *TENSORS)
        for model in ("m", "later"):
            with ModelClient(address(config, "grpc"), model) as client:
                assert np.array_equal(client.infer_batch(X)["y"], X * 2)


def test_a_model_that_the_server_loaded_at_its_start_is_bound_again(free_config):
    with serving(free_config, triton_lifecycle_policy=STORE) as triton:
        triton.unbind("m")
        triton.bind("m", lambda requests: [{"y": request["x"] * 3} for request in requests], *TENSORS)
        assert np.array_equal(infer(free_config), X * 3)


def test_a_model_that_cannot_be_loaded_at_the_start_fails_it_in_the_servers_words(free_config, tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "python"')
    config = replace(free_config, model_repository=tmp_path)
    triton = serving(config, triton_lifecycle_policy=STORE)
    with pytest.raises(PyTritonServerError, match=r"(?s)did not start.*'m': not unique across all model repositories"):
        triton.run()
    assert not triton.is_alive()
    triton.stop()


def test_a_killed_server_comes_back_and_clients_that_retry_notice_nothing(free_config, caplog):
    answered, ended = [0], threading.Event()

    def call(protocol):
        with ModelClient(address(free_config, protocol), "m").with_options(retries=30) as client:
            while not ended.is_set():
                assert np.array_equal(client.infer_batch(X)["y"], X * 2)
                answered[0] += 1

    with serving(free_config) as triton, ThreadPoolExecutor(2) as pool:
        triton.rebind("m", lambda requests: double(requests))
        try:
            calls = [pool.submit(call, protocol) for protocol in ("http", "grpc")]
            for number in (1, 2):
                before = answered[0]
                wait_for(lambda: answered[0] > before + 20, "answers")  # noqa: B023
                kill_server(free_config)
                assert triton.is_alive()
                wait_for(lambda: answers(free_config), "the model to be served again")
                # Only then is the restart over: a server that is killed before is one that did not start.
                wait_for(lambda: caplog.text.count("the server was launched again") == number, "its end")  # noqa: B023
                assert triton.is_alive()
        finally:
            ended.set()
        for each in calls:
            each.result(DEADLINE_S)
        triton.bind("later", double, *TENSORS)
        assert [each.name for each in triton.statistics()] == ["later", "m"]
        triton.unbind("later")
    assert not triton.is_alive()
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text.partition(":")[0] for text in texts if text.startswith("launching")] == [
        "launching the server again (restart 1 in a row)",
        "launching the server again in 0.1 s (restart 2 in a row)",
    ]
    assert sum("it died (exit status 137: SIGKILL)" in text for text in texts) == 2
    assert sum("the server was launched again" in text for text in texts) == 2
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_crash_is_no_outage_and_all_models_are_back(free_config, caplog):
    with serving(free_config) as triton:
        triton.bind("other", double, *TENSORS)
        os.kill(server_of(free_config), signal.SIGABRT)
        wait_for(lambda: "the server was launched again" in caplog.text, "the next server")
        assert "it died (exit status 134: SIGABRT)" in caplog.text
        assert triton.is_connected()
        for model in ("m", "other"):
            with ModelClient(address(free_config, "grpc"), model) as client:
                assert np.array_equal(client.infer_batch(X)["y"], X * 2)


def test_models_in_worker_processes_are_served_again(free_config):
    with Triton(config=free_config) as triton:
        triton.bind("m", Processes(doubling, count=2), *TENSORS)
        kill_server(free_config)
        wait_for(lambda: answers(free_config), "the model to be served again")
        assert triton.is_alive()


def test_a_server_that_comes_back_gets_the_models_that_another_object_has_bound(free_config):
    url = address(free_config, "http")
    with serving(free_config) as triton, RemoteTriton(url, access_token=triton.get_access_token()) as remote:
        remote.bind("theirs", double, *TENSORS)
        kill_server(free_config)
        wait_for(lambda: answers(free_config), "our model to be served again")
        remote.wait_for_ready(DEADLINE_S)
        with ModelClient(url, "theirs") as client:
            assert np.array_equal(client.infer_batch(X)["y"], X * 2)


@native_part_only
def test_what_the_server_has_below_tmp_goes_with_it(free_config):
    url = address(free_config, "http")
    with serving(free_config) as triton, RemoteTriton(url, access_token=triton.get_access_token()) as remote:
        remote.bind("theirs", double, *TENSORS)
        first = temporary_folders(triton._workspace.path)
        assert {folder.name[:6] for folder in first} == {"python", "folder"}  # of the back end, and of the model
        assert all(folder.is_dir() for folder in first)
        kill_server(free_config)
        wait_for(lambda: answers(free_config), "our model to be served again")
        remote.wait_for_ready(DEADLINE_S)
        second = temporary_folders(triton._workspace.path)
        assert {folder.name[:6] for folder in second} == {"python", "folder"}
        assert not {*first} & {*second}
        triton.stop()
    assert not any(folder.exists() for folder in (*first, *second))


def test_models_are_bound_and_unbound_while_the_server_is_dead(free_config):
    with serving(free_config) as triton:
        for change in (lambda: triton.bind("later", double, *TENSORS), lambda: triton.unbind("later")):
            with triton._lock:  # which holds the restart up until the change is made
                kill_server(free_config)
                wait_for(lambda: not triton.is_connected(), "its end to be noticed")
                assert triton.is_alive()
                change()
            wait_for(triton.is_connected, "the next server")
            assert answers(free_config)
        assert [each.name for each in triton.statistics()] == ["m"]


@pytest.mark.parametrize("policy", [None, RESTART])
def test_a_server_that_has_exited_by_itself_comes_back(free_config, caplog, policy):
    with serving(free_config, triton_lifecycle_policy=policy):
        os.kill(server_of(free_config), signal.SIGTERM)  # which it handles
        wait_for(lambda: "the server was launched again" in caplog.text, "the next server")
        assert answers(free_config)
    assert "it died (exit status 0)" in caplog.text


def test_a_server_that_loads_models_at_its_start_does_so_when_it_comes_back(free_config, tmp_path):
    config = replace(free_config, log_file=tmp_path / "server.log")
    with serving(config, triton_lifecycle_policy=STORE):
        kill_server(config)
        wait_for(lambda: answers(config, "grpc"), "the model to be served again")
    assert (tmp_path / "server.log").read_text().count("successfully loaded 'm'") <= 2


@contextmanager
def in_serve(triton):
    """``serve`` on another thread, which is to return within the block."""
    thread = threading.Thread(target=triton.serve, kwargs={"monitoring_period_s": 0.1})
    thread.start()
    try:
        yield
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    finally:
        triton.stop()
    assert not triton.is_alive()


def test_with_a_limit_a_server_that_dies_too_often_is_given_up_and_serve_returns(free_config, caplog):
    triton = serving(free_config, triton_lifecycle_policy=TritonLifecyclePolicy(most_restarts_per_minute=2))
    with in_serve(triton):
        for _ in range(3):
            wait_for(lambda: triton.is_connected() and answers(free_config), "the model to be served")
            kill_server(free_config)
    (error,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert re.match(
        r"the server exited with failure: it died 3 times in a minute and is not launched again; .*KILL", error
    )


def test_a_server_that_dies_more_than_five_times_a_minute_comes_back(free_config):
    with serving(free_config) as triton:
        for _ in range(6):
            wait_for(lambda: triton.is_connected() and answers(free_config), "the model to be served")
            kill_server(free_config)
        wait_for(lambda: answers(free_config), "the model to be served again")
        assert triton.is_alive()


@contextmanager
def taken_port(triton, config):
    """Another program takes the port of a server that has died, until the end of the block."""
    with socket.socket() as other:
        with triton._lock:  # which holds the restart up
            kill_server(config)
            wait_for(lambda: not triton.is_connected(), "its end to be noticed")
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((config.http_address, config.http_port))
            other.listen()
        yield


def attempts(caplog):
    return sum("the http endpoint cannot listen on" in record.getMessage() for record in caplog.records)


def test_a_server_whose_port_is_taken_for_long_comes_back_when_it_is_free(free_config, caplog, monkeypatch):
    monkeypatch.setattr("pytriton.triton.PORTS_TIMEOUT_S", 0.2)
    with serving(free_config) as triton:
        with taken_port(triton, free_config):
            wait_for(lambda: attempts(caplog) >= 3, "attempts that fail")
            assert triton.is_alive()
            assert not triton.is_connected()
            with pytest.raises(PyTritonServerError, match="cannot bind model 'later': the server died"):
                triton.bind("later", double, *TENSORS)
        wait_for(lambda: answers(free_config), "the model to be served again")
        triton.bind("later", double, *TENSORS)
        wait_for(triton.is_connected, "all models")


def test_models_are_unbound_and_rebound_while_no_server_can_be_launched(free_config, caplog, monkeypatch):
    monkeypatch.setattr("pytriton.triton.PORTS_TIMEOUT_S", 0.2)
    with serving(free_config) as triton:
        triton.bind("other", double, *TENSORS)
        with taken_port(triton, free_config):
            wait_for(lambda: attempts(caplog) >= 1, "an attempt that fails")
            triton.unbind("other")
            triton.rebind("m", lambda requests: double(requests))
        wait_for(lambda: triton.is_connected() and answers(free_config), "the model to be served again")
        assert [each.name for each in triton.statistics()] == ["m"]


@pytest.mark.parametrize("way", ["stop", "signal"])
def test_a_stop_ends_the_wait_between_two_attempts(free_config, caplog, monkeypatch, way):
    monkeypatch.setattr("pytriton.triton.PORTS_TIMEOUT_S", 0.2)
    triton = serving(free_config)
    triton._restarts = RestartPolicy(None, 1000.0, 1000.0)
    with in_serve(triton):
        wait_for(triton.is_connected, "the server")
        with taken_port(triton, free_config):
            wait_for(lambda: attempts(caplog) >= 1, "an attempt that fails")
            if way == "stop":
                assert triton.stop()
            else:
                triton._serving.on_signal(signal.SIGTERM)
                wait_for(lambda: not triton.is_alive(), "the stop")


def test_an_error_of_any_kind_at_a_restart_is_an_attempt_that_failed(free_config, monkeypatch):
    failed, start = [], Triton._start_server

    def failing(triton):
        if len(failed) < 3:
            failed.append((MemoryError, KeyError, SystemExit)[len(failed)])
            raise failed[-1]
        return start(triton)

    with serving(free_config) as triton:
        monkeypatch.setattr(Triton, "_start_server", failing)
        kill_server(free_config)
        wait_for(lambda: answers(free_config), "the model to be served again")
        assert len(failed) == 3
        assert triton.is_alive()


def test_a_model_that_cannot_be_loaded_at_a_restart_is_no_end(free_config, caplog):
    with serving(free_config) as triton:
        config = triton._workspace.model_store_path / "m" / "config.pbtxt"
        text = config.read_text()
        with triton._lock:
            kill_server(free_config)
            config.write_text("nonsense {")
        wait_for(lambda: caplog.text.count("launching the server again") >= 2, "an attempt that fails")
        assert triton.is_alive()
        config.write_text(text)
        wait_for(lambda: answers(free_config), "the model to be served again")


@pytest.mark.parametrize("policy", [None, STORE], ids=["loads its models", "starts with its models"])
def test_the_other_models_are_served_while_one_cannot_be_loaded_at_a_restart(free_config, caplog, policy):
    with serving(free_config, triton_lifecycle_policy=policy) as triton:
        triton.bind("other", double, *TENSORS)
        config = triton._workspace.model_store_path / "m" / "config.pbtxt"
        text = config.read_text()
        with triton._lock:
            kill_server(free_config)
            config.write_text("nonsense {")
        wait_for(lambda: answers(free_config, model="other"), "the other model to be served again")
        pid = server_of(free_config)
        wait_for(lambda: caplog.text.count("model m cannot be loaded again") == 1, "the warning")
        assert triton.is_alive()
        assert not triton.is_connected()
        triton.bind("later", double, *TENSORS)
        assert answers(free_config, model="later")
        config.write_text(text)
        wait_for(lambda: answers(free_config), "the model to be served again")
        wait_for(triton.is_connected, "all models to be connected")
        assert server_of(free_config) == pid


def test_a_model_that_cannot_be_loaded_at_a_restart_can_be_unbound(free_config, caplog):
    with serving(free_config) as triton:
        triton.bind("other", double, *TENSORS)
        with triton._lock:
            kill_server(free_config)
            (triton._workspace.model_store_path / "m" / "config.pbtxt").write_text("nonsense {")
        wait_for(lambda: answers(free_config, model="other"), "the other model to be served again")
        triton.unbind("m")
        assert triton.is_connected()
        triton.bind("m", double, *TENSORS)
        assert answers(free_config)


def test_a_service_whose_workspace_a_cleaner_has_removed_comes_back(free_config, tmp_path):
    with Triton(config=free_config, workspace=tmp_path / ("long" * 25)) as triton:
        triton.bind("m", double, *TENSORS)
        triton.bind("workers", Processes(doubling, count=2), *TENSORS)
        for _ in range(2):
            shutil.rmtree(triton._workspace.path)
            kill_server(free_config)
            for model in ("m", "workers"):
                wait_for(lambda: answers(free_config, model=model), "the model to be served again")  # noqa: B023
        triton.bind("later", double, *TENSORS)
        assert answers(free_config, model="later")
        triton.unbind("later")
    assert not triton._workspace.exists()


def test_an_unrecoverable_error_is_final_although_the_server_was_killed(free_config):
    entered, killed = threading.Event(), threading.Event()

    def fatal(requests):
        entered.set()
        killed.wait(DEADLINE_S)
        raise PyTritonUnrecoverableError("the device is lost")

    triton = serving(free_config, fatal)
    with in_serve(triton), ThreadPoolExecutor(1) as pool:
        wait_for(triton.is_connected, "the server")
        call = pool.submit(infer, free_config)
        entered.wait(DEADLINE_S)
        kill_server(free_config)
        killed.set()
        with pytest.raises(PyTritonClientError):
            call.result()
    assert not servers_of(free_config)


def test_a_stop_ends_a_restart_whose_server_hangs(free_config, tmp_path):
    workspace = tmp_path / "workspace"
    with serving(free_config, workspace=workspace) as triton, ThreadPoolExecutor(1) as pool:
        kill_server(free_config)
        wait_for(lambda: servers_of(free_config), "the next server")
        os.kill(server_of(free_config), signal.SIGSTOP)
        assert pool.submit(triton.stop).result(DEADLINE_S) is True
    assert not triton.is_alive()
    assert not servers_of(free_config)
    assert not workspace.exists()


@pytest.fixture
def cloud_port():
    with reserved_ports(1) as (port,):
        yield port


@pytest.fixture
def routes(monkeypatch):
    """What Vertex AI says in the environment of its containers."""
    monkeypatch.setenv("AIP_PREDICT_ROUTE", "/v1/predict")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "/v1/health")
    return monkeypatch


def fetch(port, path, inputs=False):
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
    data = json.dumps(body).encode() if inputs else None
    request = Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=DEADLINE_S) as answer:
        text = answer.read()
    return json.loads(text)["outputs"][0]["data"] if inputs else answer.status


@pytest.mark.parametrize("default", ["m", None])  # with one model, it is that
def test_vertex_ai_predicts_with_the_default_model(free_config, cloud_port, routes, default):
    config = replace(free_config, allow_vertex_ai=True, vertex_ai_port=cloud_port, vertex_ai_default_model=default)
    with serving(config) as triton:
        assert not servers_of(free_config)  # VertextAILifecyclePolicy
        triton.run()
        assert fetch(cloud_port, "/v1/health") == 200
        assert fetch(cloud_port, "/v1/predict", inputs=True) == [2, 4]
        assert np.array_equal(infer(config), X * 2)


def test_in_a_container_of_vertex_ai_nothing_need_be_configured(free_config, cloud_port, routes):
    routes.setenv("AIP_MODE", "PREDICTION")
    routes.setenv("AIP_HTTP_PORT", str(cloud_port))
    config = replace(free_config, http_address=None, grpc_address=None, metrics_address=None)
    with serving(config) as triton:
        triton.run()
        assert fetch(cloud_port, "/v1/health") == 200
        assert fetch(cloud_port, "/v1/predict", inputs=True) == [2, 4]
        assert fetch(config.http_port, "/v2/health/ready") == 200
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", config.grpc_port)) != 0
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.2", config.http_port)) != 0  # another address of this machine


@pytest.mark.parametrize("missing", ["AIP_PREDICT_ROUTE", "AIP_HEALTH_ROUTE"])
def test_vertex_ai_without_a_route_is_refused_before_the_server_starts(free_config, cloud_port, routes, missing):
    routes.delenv(missing)
    triton = serving(replace(free_config, allow_vertex_ai=True, vertex_ai_port=cloud_port))
    with pytest.raises(PyTritonValidationError, match=f"in the environment, such as {missing}=/"):
        triton.run()
    assert triton.stop() is False


@pytest.mark.parametrize(
    ("options", "policy", "text"),
    [
        ({"vertex_ai_default_model": "other"}, None, "'other', which the server does not load .*; it loads: m"),
        ({"vertex_ai_default_model": "m"}, AT_RUN, "'m', which the server does not load .*; it loads: none"),
        ({}, AT_RUN, r"loads 0 models at its start \(none\)"),
        ({}, "two models", r"loads 2 models at its start \(m, n\)"),
    ],
)
def test_vertex_ai_without_its_default_model_is_refused(free_config, cloud_port, routes, options, policy, text):
    config = replace(free_config, allow_vertex_ai=True, vertex_ai_port=cloud_port, **options)
    several = policy == "two models"
    triton = serving(config, triton_lifecycle_policy=None if several else policy)
    if several:
        triton.bind("n", double, *TENSORS)
    with pytest.raises(PyTritonValidationError, match=text):
        triton.run()
    triton.stop()


def test_the_policy_of_vertex_ai_is_to_start_late_and_with_models():
    assert VertextAILifecyclePolicy == TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)


def test_sagemaker_invokes_the_model_that_its_variable_names(free_config, cloud_port, monkeypatch):
    monkeypatch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "m")
    with serving(replace(free_config, allow_sagemaker=True, sagemaker_port=cloud_port)):
        assert fetch(cloud_port, "/ping") == 200
        assert fetch(cloud_port, "/invocations", inputs=True) == [2, 4]


def test_sagemaker_without_its_variable_is_warned_about(free_config, cloud_port, monkeypatch, caplog):
    monkeypatch.delenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", raising=False)
    with serving(replace(free_config, allow_sagemaker=True, sagemaker_port=cloud_port)):
        assert fetch(cloud_port, "/ping") == 200
    assert "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME" in caplog.text
