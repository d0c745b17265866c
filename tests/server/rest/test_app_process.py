"""The app in processes of its own: what it serves, asks for, limits, counts and logs."""

import os
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pytriton.exceptions import PyTritonBadParameterError, PyTritonServerError, PyTritonValidationError
from pytriton.rest import RestConfig
from pytriton.triton import Triton, TritonLifecyclePolicy
from tests.server.conftest import local_config
from tests.server.own_server import server_of
from tests.server.processes import DEADLINE_S, is_alive, wait_for
from tests.server.proxies import HAS_EDGE
from tests.server.rest.apps import app_config, app_processes, url_of, with_app
from tests.server.tls import Certificates
from tests.server.traffic import Gate

pytestmark = pytest.mark.either_proxy

TOKEN = "secret-of-the-app"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ORIGIN = "https://shop.example"
AT_RUN = TritonLifecyclePolicy(launch_triton_on_startup=False)


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture(scope="module")
def rest():
    """Options of an app with two processes, a token and an origin."""
    with with_app(shout, processes=2, access_token=TOKEN, cors=[ORIGIN]) as triton:
        yield triton._rest


@pytest.fixture(scope="module")
def app(rest):
    return url_of(rest)


def answer(app, text="hello", **headers):
    return httpx.post(f"{app}/predict/shout", json={"text": text}, headers=BEARER | headers, timeout=60)


def test_a_typed_function_answers_json(app):
    response = answer(app)
    assert response.status_code == 200
    assert response.json() == {"result": "HELLO"}


@pytest.mark.skipif(not HAS_EDGE, reason="about the edge, which answers /predict without the app")
def test_a_call_that_comes_before_its_model_does_not_wait_for_an_app_that_starts_later():
    def is_live():
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{config.http_port}/v2/health/live", timeout=60).status_code == 200

    with (
        local_config() as config,
        app_config() as rest,
        Triton(config=config, rest=rest, triton_lifecycle_policy=AT_RUN) as triton,
        ThreadPoolExecutor() as pool,
    ):
        triton.launch()
        wait_for(lambda: app_processes(rest), "the app's process")
        (pid,) = app_processes(rest)
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_for(is_live, "the server to be live")
            answered = pool.submit(httpx.post, url_of(rest, "/predict/shout"), json={"text": "a"}, timeout=60)
            triton.bind(shout)
            triton.connect()
            assert answered.result().json() == {"result": "A"}
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.skipif(not HAS_EDGE, reason="about the edge, which waits for models")
def test_a_model_that_is_not_there_yet_is_told_to_be_tried_again_while_models_are_loaded():
    with (
        local_config() as config,
        app_config() as rest,
        Triton(config=config, rest=rest, triton_lifecycle_policy=AT_RUN) as triton,
    ):
        triton.launch()
        early = httpx.post(url_of(rest, "/predict/shout"), json={"text": "a"}, timeout=60)
        assert early.status_code == 503
        assert early.headers["Retry-After"] == "1"
        assert "models may still be loading" in early.json()["error"]["message"]
        triton.bind(shout)
        triton.run()
        assert httpx.post(url_of(rest, "/predict/shout"), json={"text": "a"}, timeout=60).status_code == 200
        assert httpx.post(url_of(rest, "/predict/other"), json={"text": "a"}, timeout=60).status_code == 404


def test_a_start_that_has_failed_can_be_tried_again_with_the_app():
    with (
        local_config() as config,
        app_config() as rest,
        Triton(config=config, rest=rest, triton_lifecycle_policy=AT_RUN) as triton,
    ):
        triton.bind(shout)
        with socket.create_server(("127.0.0.1", config.http_port)), pytest.raises(PyTritonServerError, match="port"):
            triton.run()
        triton.run()
        response = httpx.post(url_of(rest, "/predict/shout"), json={"text": "a"}, timeout=60)
        assert response.json() == {"result": "A"}


def test_all_processes_of_an_app_with_a_port_of_its_own_serve():
    with (
        local_config(http_frontend="triton") as config,
        with_app(shout, config, processes=2) as triton,
        ExitStack() as stack,
    ):
        pids = app_processes(triton._rest)
        assert len(pids) == 2
        before = [sockets_of(pid) for pid in pids]
        for _ in range(32):  # the kernel divides connections by their ports
            client = stack.enter_context(httpx.Client(timeout=DEADLINE_S))
            assert client.get(url_of(triton._rest, "/health/live")).status_code == 200
        assert all(sockets_of(pid) > count for pid, count in zip(pids, before, strict=True))


def test_all_processes_serve_what_the_native_edge_forwards(rest, app):
    pids = app_processes(rest)
    assert len(pids) == 2
    before = [sockets_of(pid) for pid in pids]
    with ThreadPoolExecutor(32) as pool:

        def all_serve():
            calls = [pool.submit(httpx.get, f"{app}/health/live", timeout=60) for _ in range(32)]
            assert {call.result().status_code for call in calls} == {200}
            return all(sockets_of(pid) > count for pid, count in zip(pids, before, strict=True))

        wait_for(all_serve, "both processes to serve")


def sockets_of(pid):
    """How many sockets a process has open."""
    return len([each for each in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(each).startswith("socket")])


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_the_token_is_needed(app, authorization):
    response = httpx.post(
        f"{app}/predict/shout", json={"text": "a"}, headers={"Authorization": authorization}, timeout=60
    )
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert response.json()["error"]["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize("path", ["/metrics", "/no-such-route", "/healthy", "/health/../metrics"])
def test_all_other_routes_need_the_token(app, path):
    connection = httpx.get(f"{app}{path}", timeout=60)
    assert connection.status_code == 401


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_health_needs_no_token(app, path):
    assert httpx.get(f"{app}{path}", timeout=60).status_code == 200


def test_the_token_is_not_on_a_command_line_or_in_an_environment(rest):
    for pid in (os.getpid(), *app_processes(rest)):
        for file in ("cmdline", "environ"):
            with open(f"/proc/{pid}/{file}") as text:
                assert TOKEN not in text.read()


def test_a_page_of_an_allowed_origin_may_call(app):
    asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization,content-type"
    response = httpx.options(f"{app}/predict/shout", headers=asked, timeout=DEADLINE_S)
    assert response.status_code == 200
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "authorization" in response.headers["Access-Control-Allow-Headers"]
    called = answer(app, Origin=ORIGIN)
    assert called.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "X-Request-ID" in called.headers["Access-Control-Expose-Headers"]


def test_a_page_of_another_origin_may_not(app):
    asked = {"Origin": "https://other.example", "Access-Control-Request-Method": "POST"}
    response = httpx.options(f"{app}/predict/shout", headers=asked, timeout=DEADLINE_S)
    assert response.status_code == 400
    assert "Access-Control-Allow-Origin" not in response.headers


def test_the_id_of_a_request_is_returned_and_made_where_it_is_missing_or_malformed(app):
    assert answer(app, **{"X-Request-ID": "order-7"}).headers["X-Request-ID"] == "order-7"
    made = {answer(app).headers["X-Request-ID"], answer(app, **{"X-Request-ID": "a b"}).headers["X-Request-ID"]}
    assert len(made) == 2
    assert all(len(each) == 32 for each in made)


def metrics(app):
    text = httpx.get(f"{app}/metrics", headers=BEARER, timeout=60).text
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))


def test_the_metrics_of_all_processes_follow_those_of_the_server(app):
    name = 'pytriton_rest_requests_total{route="/predict/{model}",model="shout",status="200"}'
    before = float(metrics(app).get(name, 0))
    for _ in range(20):
        assert answer(app).status_code == 200
    for _ in range(5):  # whichever process is asked
        found = metrics(app)
        assert float(found[name]) == before + 20
    assert any(each.startswith("nv_inference_request_success") for each in found)
    assert 'pytriton_rest_request_duration_seconds_bucket{route="/predict/{model}",model="shout",le="+Inf"}' in found


def test_the_counters_of_a_killed_process_go_on(app, rest):
    answer(app)
    name = 'pytriton_rest_requests_total{route="/predict/{model}",model="shout",status="200"}'
    before = float(metrics(app)[name])
    killed = app_processes(rest)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, killed)), "the app to die")
    assert answer(app).status_code == 200  # waits in the kernel's queue for the next process
    assert float(metrics(app)[name]) == before + 1


def test_names_of_unknown_models_make_no_metrics(app):
    assert httpx.post(f"{app}/predict/made-up", json={}, headers=BEARER, timeout=60).status_code == 404
    assert not any("made-up" in name for name in metrics(app))


def test_a_killed_app_is_started_again_and_no_connection_is_refused():
    with with_app() as triton:
        url = url_of(triton._rest)
        for _ in range(2):
            wait_for(lambda: app_processes(triton._rest), "the app")  # the edge answers alone, too
            (pid,) = app_processes(triton._rest)
            os.kill(pid, signal.SIGKILL)
            response = httpx.post(f"{url}/predict/shout", json={"text": "a"}, timeout=60)
            assert response.json() == {"result": "A"}
        assert triton.is_alive()


def test_an_app_that_dies_again_and_again_comes_back_and_the_server_does_not_notice(caplog):
    with with_app() as triton:
        url, server = url_of(triton._rest), server_of(triton._config)
        for _ in range(7):
            (pid,) = app_processes(triton._rest)
            os.kill(pid, signal.SIGKILL)
            assert triton._server.is_ready()
            wait_for(lambda: {*app_processes(triton._rest)} - {pid}, "the next process")  # noqa: B023
        assert httpx.post(f"{url}/predict/shout", json={"text": "a"}, timeout=60).json() == {"result": "A"}
        assert triton.is_alive()
        assert server_of(triton._config) == server
    assert "the app died and is started again in 0.4 s: process" in caplog.text
    assert "signal SIGKILL" in caplog.text


def test_an_app_that_hangs_is_killed_and_started_again(caplog, monkeypatch):
    monkeypatch.setattr("pytriton.rest.launched_app.MOST_MISSED", 2)
    with with_app() as triton:
        wait_for(lambda: app_processes(triton._rest), "the app")
        (pid,) = app_processes(triton._rest)
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: {*app_processes(triton._rest)} - {pid}, "the next process")
        body = {"instances": ["a"]}  # which the app answers
        response = httpx.post(f"{url_of(triton._rest)}/v1/models/shout:predict", json=body, timeout=60)
        assert response.json() == {"predictions": ["A"]}
        assert not is_alive(pid)
    assert f"(process {pid}) hangs and is killed" in caplog.text


def test_an_app_goes_on_when_a_cleaner_has_removed_the_workspace():
    with with_app() as triton:
        url = url_of(triton._rest)
        shutil.rmtree(triton._workspace.path)
        server = server_of(triton._config)
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: not is_alive(server), "its end")
        for path in ("/predict/shout", "/v1/models/shout:predict"):  # by the edge, and by the application
            body = {"text": "a"} if "v1" not in path else {"instances": ["a"]}
            post = lambda: httpx.post(f"{url}{path}", json=body, timeout=60).status_code  # noqa: B023, E731
            wait_for(lambda: post() == 200, "an answer")  # noqa: B023
        token = {"authorization": f"Bearer {triton.get_access_token()}"}
        assert httpx.get(f"{url}/metrics", headers=token, timeout=60).status_code == 200


def test_a_killed_server_is_503_until_it_is_launched_again_for_an_app_with_a_port_of_its_own():
    with local_config(http_frontend="triton") as config, with_app(config=config) as triton:
        url = url_of(triton._rest)
        predict = lambda: httpx.post(f"{url}/predict/shout", json={"text": "a"}, timeout=60)  # noqa: E731
        assert predict().status_code == 200
        statuses = set()
        with triton._lock:  # so that it is not launched again before we have asked
            os.kill(server_of(config), signal.SIGKILL)
            wait_for(lambda: httpx.get(f"{url}/health/ready", timeout=60).status_code == 503, "not to be ready")
            assert httpx.get(f"{url}/health/live", timeout=60).status_code == 200
            response = predict()
            assert response.status_code == 503
            assert response.headers["Retry-After"] == "1"
        wait_for(lambda: statuses.add(predict().status_code) or 200 in statuses, "the server to be launched again")
        assert statuses <= {200, 503}
        assert httpx.get(f"{url}/health/ready", timeout=60).status_code == 200


def test_too_many_requests_are_refused_while_health_answers():
    gate = Gate()

    def held(text: str) -> str:
        gate.wait()
        return text

    with with_app(held, max_requests=2) as triton, ThreadPoolExecutor(2) as pool:
        url = url_of(triton._rest)
        call = lambda: httpx.post(f"{url}/predict/held", json={"text": "a"}, timeout=60)  # noqa: E731
        calls = [pool.submit(call) for _ in range(2)]
        wait_for(lambda: in_progress(triton) == 2, "two requests in progress")
        refused = call()
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "1"
        assert refused.json()["error"]["code"] == "TOO_MANY_REQUESTS"
        assert httpx.get(f"{url}/health/ready", timeout=60).status_code == 200
        gate.open()
        assert [each.result().status_code for each in calls] == [200, 200]
        assert call().status_code == 200


def in_progress(triton):
    """Requests in progress but the one that asks."""
    headers = {"Authorization": f"Bearer {triton.get_access_token()}"}
    lines = httpx.get(url_of(triton._rest, "/metrics"), headers=headers, timeout=60).text.splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("pytriton_rest_requests_in_progress")) - 1


def test_endless_headers_are_refused(app, rest):
    with socket.create_connection((rest.address, rest.port)) as client:
        client.sendall(b"GET /health/live HTTP/1.1\r\nX-Long: ")
        with suppress(ConnectionError):
            for _ in range(100):
                client.sendall(b"x" * 10_000)
        assert not client_is_served(client)


def test_long_headers_below_the_limit_are_read(app):
    assert answer(app, **{"X-Long": "x" * 60_000}).status_code == 200


def client_is_served(client):
    try:
        return b" 200 " in client.recv(1000)
    except ConnectionError:
        return False


def test_an_app_speaks_https(tmp_path):
    files = Certificates.in_folder(tmp_path)
    with with_app(certificate=files.chain, key=files.key) as triton:
        url, trust = url_of(triton._rest), ssl.create_default_context(cafile=files.root)
        with httpx.Client(verify=trust, timeout=DEADLINE_S) as client:
            assert client.post(f"{url}/predict/shout", json={"text": "a"}).json() == {"result": "A"}
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(url.replace("https", "http"), timeout=60)


@pytest.mark.parametrize("way", ["removed", "kept"])
def test_an_app_is_served_below_the_path_of_a_proxy_that_removes_it_or_not(way):
    with with_app(root_path="/models") as triton:
        prefix = "" if way == "removed" else "/models"
        response = httpx.post(f"{url_of(triton._rest)}{prefix}/predict/shout", json={"text": "a"}, timeout=60)
        assert response.json() == {"result": "A"}
        assert httpx.get(f"{url_of(triton._rest)}{prefix}/health/ready", timeout=60).status_code == 200


def test_each_request_is_logged_in_one_line(capfd):
    with with_app(access_log=True) as triton:
        url = url_of(triton._rest)
        headers = {"X-Request-ID": "order-8"}
        httpx.post(f"{url}/predict/shout?secret=1", json={"text": "a"}, headers=headers, timeout=60)
        httpx.get(f"{url}/a%0AFAKE%22b", headers=headers, timeout=60)
    lines = [line for line in capfd.readouterr().out.splitlines() if "order-8" in line]
    assert len(lines) == 2
    assert ' POST "/predict/shout" 200 ' in lines[0]
    assert r' GET "/a\nFAKE\"b" 404 ' in lines[1]
    assert "secret" not in lines[0]


def test_a_port_that_is_taken_is_an_error_at_once():
    with app_config() as rest, local_config() as config, socket.socket() as other:
        other.bind((rest.address, rest.port))
        other.listen()
        triton = Triton(config=config, rest=rest)
        with pytest.raises(
            PyTritonServerError, match=f"cannot listen on 127.0.0.1:{rest.port}: Address already in use"
        ):
            triton.run()
        triton.stop()
        assert not app_processes(rest)


def test_a_port_that_others_share_is_taken_too():
    with app_config(processes=2) as rest, local_config() as config, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((rest.address, rest.port))
        other.listen()
        with (
            pytest.raises(PyTritonServerError, match="Choose another port in RestConfig"),
            Triton(config=config, rest=rest),
        ):
            pytest.fail("it has started")


def test_a_port_of_the_server_is_an_error():
    with (
        local_config() as config,
        pytest.raises(PyTritonServerError, match=r"RestConfig\.port and metrics_port are both"),
    ):
        Triton(config=config, rest=RestConfig(port=config.metrics_port))


@pytest.mark.parametrize("files", [("root", "key"), ("chain", "root"), ("missing", "key")])
def test_certificates_that_cannot_be_used_are_an_error(tmp_path, files):
    Certificates.in_folder(tmp_path)
    certificate, key = (tmp_path / f"{name}.pem" for name in files)
    with pytest.raises(PyTritonValidationError, match="give PEM files of a certificate and of its key"):
        Triton(rest=RestConfig(certificate=certificate, key=key))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 0}, "port must be an integer from 1 to 65535, got 0"),
        ({"processes": 0}, "processes must be an integer of at least 1, got 0"),
        ({"access_token": "a b"}, "access_token must be printable ASCII"),
        ({"address": 1}, "address must be one such as '127.0.0.1', got 1"),
        ({"cors": "*"}, "cors must be a list of origins"),
        ({"root_path": "models"}, "root_path must be like '/models'"),
    ],
)
def test_options_out_of_range_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Triton(rest=RestConfig(**options))


def test_something_else_than_options_is_an_error():
    with pytest.raises(PyTritonBadParameterError, match="rest must be True, False or a RestConfig, got 8080"):
        Triton(rest=8080)


def test_options_come_from_the_environment(monkeypatch):
    with app_config() as rest, local_config() as config:
        monkeypatch.setenv("PYTRITON_REST_PORT", str(rest.port))
        monkeypatch.setenv("PYTRITON_REST_ADDRESS", rest.address)
        with Triton(config=config) as triton:
            triton.bind(shout)
            triton.run()
            assert httpx.get(url_of(rest, "/health/ready"), timeout=60).status_code == 200
        with Triton(config=config, rest=False):
            assert not app_processes(rest)


def test_options_that_change_later_have_no_effect():
    with app_config() as rest, local_config() as config:
        given = replace(rest)
        triton = Triton(config=config, rest=given)
        given.port = 0
        with triton:
            wait_for(lambda: httpx.get(url_of(rest, "/health/live"), timeout=60).status_code == 200, "the app")


def test_the_log_says_how_to_call_a_model(caplog):
    caplog.set_level("INFO", "pytriton.triton")
    with with_app(processes=1) as triton:
        url = url_of(triton._rest)
    assert f"app at {url}\n" in caplog.text
    assert f"""curl {url}/predict/shout -d '{{"text": "text"}}'""" in caplog.text


def test_stopping_loses_no_request_of_clients_that_connect_anew_or_stay():
    with with_app(processes=2) as triton:
        url, outcomes, stop = url_of(triton._rest), [], threading.Event()

        def call_on(client):
            while not stop.is_set():
                try:
                    response = client.post(f"{url}/predict/shout", json={"text": "a"}, timeout=60)
                except httpx.ConnectError:
                    return  # refused: the app is closed
                outcomes.append(response.status_code)

        def stay():
            with httpx.Client(timeout=DEADLINE_S) as client:
                call_on(client)

        threads = [threading.Thread(target=stay if index % 2 else lambda: call_on(httpx)) for index in range(6)]
        failed = []
        hook, threading.excepthook = threading.excepthook, lambda args: failed.append(args.exc_value)
        try:
            for thread in threads:
                thread.start()
            wait_for(lambda: len(outcomes) > 50, "requests to be answered")
            triton.stop()
            stop.set()
            for thread in threads:
                thread.join()
        finally:
            threading.excepthook = hook
    assert failed == []
    assert set(outcomes) == {200}


def test_a_request_is_answered_to_its_end_while_the_app_drains():
    started = threading.Event()

    def slow(text: str) -> str:
        started.set()
        time.sleep(1.0)
        return text

    with with_app(slow) as triton, ThreadPoolExecutor(1) as pool:
        url = url_of(triton._rest)
        call = pool.submit(lambda: httpx.post(f"{url}/predict/slow", json={"text": "a"}, timeout=60))
        assert started.wait(60)
        triton.stop()
        assert call.result().json() == {"result": "a"}
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health/live", timeout=60)
    assert not app_processes(triton._rest)


def test_a_stream_is_sent_to_its_end_while_the_app_drains():
    gate = Gate()

    def tell(word: str) -> Iterator[str]:
        yield word
        gate.wait()
        yield word.upper()

    with with_app(tell) as triton, httpx.Client(timeout=60) as client:
        url = url_of(triton._rest)
        with client.stream("POST", f"{url}/predict/tell", json={"word": "a"}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == '{"result":"a"}'
            stopping = threading.Thread(target=triton.stop)
            stopping.start()
            wait_for(lambda: refuses(url), "the port to be closed")
            gate.open()
            assert [*lines] == ['{"result":"A"}']
        stopping.join()


def refuses(url):
    try:
        httpx.get(f"{url}/health/live", timeout=60)
    except httpx.ConnectError:
        return True
    return False


def test_requests_that_take_too_long_are_ended_with_the_app():
    gate = Gate()

    def held(text: str) -> str:
        gate.wait()
        return text

    with local_config(exit_timeout_secs=1) as config, with_app(held, config) as triton, ThreadPoolExecutor(1) as pool:
        url = url_of(triton._rest)
        call = pool.submit(lambda: httpx.post(f"{url}/predict/held", json={"text": "a"}, timeout=60))
        wait_for(lambda: in_progress(triton) == 1, "the request to be in progress")
        triton.stop()
        gate.open()
        failure = call.exception() or call.result().status_code
        assert isinstance(failure, httpx.RemoteProtocolError) or failure >= 500
    assert not app_processes(triton._rest)
