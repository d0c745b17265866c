"""Every way in which a host with a REST front ends: nothing is left, and no request is lost that need not be."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.server.processes import Host, is_alive, wait_for
from tests.server.rest.fronts import front_config, front_processes, url_of

pytestmark = pytest.mark.either_proxy


class FrontedHost:
    """host.py with a front, which it takes from its environment."""

    def __init__(self, folder, config, rest):
        variables = {"PYTRITON_REST_PORT": str(rest.port), "PYTRITON_REST_ADDRESS": rest.address}
        self.host = Host(folder, config, environment=os.environ | variables | {"PYTRITON_REST_PROCESSES": "2"})
        self.rest = rest
        self.fronts = front_processes(rest, self.host.process.pid)
        assert len(self.fronts) == 2

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
        assert not any(map(is_alive, self.fronts))
        assert self.refuses()


@pytest.fixture
def fronted(tmp_path, free_config):
    with front_config() as rest:
        fronted = FrontedHost(tmp_path, free_config, rest)
        yield fronted
        fronted.host.kill()


def test_a_host_that_is_killed_leaves_no_front(fronted):
    assert fronted.call("double").json() == {"y": [3, 5]}
    fronted.host.end(signal.SIGKILL)
    fronted.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_at_once_lets_requests_in_flight_be_answered(fronted, number):
    """As service managers send it: systemd to the control group, for one."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fronted.call, "gated")
        wait_for((fronted.host.folder / "entered").exists, "the callable to be entered")
        for pid in fronted.host.family:
            os.kill(pid, number)
        fronted.host.process.send_signal(number)
        wait_for(fronted.refuses, "new requests to be refused")
        (fronted.host.folder / "open").touch()
        assert answer.result().json() == {"y": [3, 5]}
    output = fronted.host.output()
    assert "died" not in output
    assert fronted.host.process.returncode == 0
    fronted.assert_nothing_left()


def test_a_second_signal_ends_requests_that_do_not_finish(fronted):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fronted.call, "gated")
        wait_for((fronted.host.folder / "entered").exists, "the callable to be entered")
        fronted.host.process.send_signal(signal.SIGTERM)
        wait_for(fronted.refuses, "the first signal to be handled")
        fronted.host.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            answer.result()
    output = fronted.host.output()
    assert fronted.host.process.returncode == 0, output
    fronted.assert_nothing_left()


def test_a_child_that_a_callable_forks_does_not_keep_the_port(fronted):
    child = int(fronted.call("forking").json()["y"][0])
    try:
        fronted.host.process.kill()
        wait_for(fronted.refuses, "the port to be closed")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_callable_that_stops_the_server_gets_its_answer_out(fronted):
    assert fronted.call("stopper").json() == {"y": [3, 5]}
    assert fronted.host.output().count("Traceback") == 0
    assert fronted.host.process.returncode == 0
    fronted.assert_nothing_left()


def test_a_fatal_error_of_a_callable_ends_the_host_and_its_front(fronted):
    assert fronted.call("fatal").status_code == 500
    fronted.host.output()
    fronted.assert_nothing_left()
