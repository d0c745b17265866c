"""Every way in which a host with an app ends: nothing is left, and no request is lost that need not be."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.server.processes import Host, is_alive, wait_for
from tests.server.rest.apps import app_config, app_processes, url_of

pytestmark = pytest.mark.either_proxy


class AppHost:
    """host.py with an app, which it takes from its environment."""

    def __init__(self, folder, config, rest):
        variables = {"PYTRITON_REST_PORT": str(rest.port), "PYTRITON_REST_ADDRESS": rest.address}
        self.host = Host(folder, config, environment=os.environ | variables | {"PYTRITON_REST_PROCESSES": "2"})
        self.rest = rest
        self.apps = app_processes(rest, self.host.process.pid)
        assert len(self.apps) == 2

    def call(self, model):
        return httpx.post(url_of(self.rest, f"/predict/{model}"), json={"x": [1.5, 2.5]}, timeout=60)

    def refuses(self):
        try:
            httpx.get(url_of(self.rest, "/health/live"), timeout=60)
        except httpx.TransportError:
            return True
        return False

    def assert_nothing_left(self):
        self.host.assert_nothing_left()
        assert not any(map(is_alive, self.apps))
        assert self.refuses()


@pytest.fixture
def with_app(tmp_path, free_config):
    with app_config() as rest:
        with_app = AppHost(tmp_path, free_config, rest)
        yield with_app
        with_app.host.kill()


def test_a_host_that_is_killed_leaves_no_app(with_app):
    assert with_app.call("double").json() == {"y": [3, 5]}
    with_app.host.end(signal.SIGKILL)
    with_app.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_at_once_lets_requests_in_flight_be_answered(with_app, number):
    """As service managers send it: systemd to the control group, for one."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(with_app.call, "gated")
        wait_for((with_app.host.folder / "entered").exists, "the callable to be entered")
        for pid in with_app.host.family:
            os.kill(pid, number)
        with_app.host.process.send_signal(number)
        wait_for(with_app.refuses, "new requests to be refused")
        (with_app.host.folder / "open").touch()
        assert answer.result().json() == {"y": [3, 5]}
    output = with_app.host.output()
    assert "died" not in output
    assert with_app.host.process.returncode == 0
    with_app.assert_nothing_left()


def test_a_second_signal_ends_requests_that_do_not_finish(with_app):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(with_app.call, "gated")
        wait_for((with_app.host.folder / "entered").exists, "the callable to be entered")
        with_app.host.process.send_signal(signal.SIGTERM)
        wait_for(with_app.refuses, "the first signal to be handled")
        with_app.host.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            answer.result()
    output = with_app.host.output()
    assert with_app.host.process.returncode == 0, output
    with_app.assert_nothing_left()


def test_a_child_that_a_callable_forks_does_not_keep_the_port(with_app):
    child = int(with_app.call("forking").json()["y"][0])
    try:
        with_app.host.process.kill()
        wait_for(with_app.refuses, "the port to be closed")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_callable_that_stops_the_server_gets_its_answer_out(with_app):
    assert with_app.call("stopper").json() == {"y": [3, 5]}
    assert with_app.host.output().count("Traceback") == 0
    assert with_app.host.process.returncode == 0
    with_app.assert_nothing_left()


def test_a_fatal_error_of_a_callable_ends_the_host_and_its_app(with_app):
    assert with_app.call("fatal").status_code == 500
    with_app.host.output()
    with_app.assert_nothing_left()
