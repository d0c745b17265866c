"""Every way in which serving ends: the exit status is right, and nothing is left behind."""

import os
import re
import signal
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInferenceServerError
from tests.server.processes import Host, descendants, is_alive, is_worker, wait_for
from tests.server.proxies import native_part_only, python_proxy_only

X = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture
def host(tmp_path, free_config):
    host = Host(tmp_path, free_config)
    yield host
    host.kill()


def infer(host, model, inference_timeout_s=60.0):
    with ModelClient(host.url, model, inference_timeout_s=inference_timeout_s) as client:
        return client.infer_batch(X)["y"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_idle_host_with_status_0(host, number):
    assert np.array_equal(infer(host, "double"), X * 2)
    output = host.end(number)
    assert host.process.returncode == 0
    assert f"{number.name} received, exiting." in output
    assert "serve returned" in output
    assert "Traceback" not in output
    host.assert_nothing_left()


def test_requests_in_flight_and_queued_are_answered_before_the_end(host):
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(infer, host, "gated")]
        wait_for((host.folder / "entered").exists, "the callable to be entered")
        answers += [pool.submit(infer, host, "gated") for _ in range(7)]  # else the first call may have several
        wait_for(lambda: pending(host, "gated") == 7, "the other requests to be queued")
        host.process.send_signal(signal.SIGTERM)
        wait_for(lambda: refuses(host, "double"), "new requests to be refused")
        (host.folder / "open").touch()
        assert all(np.array_equal(answer.result(), X * 2) for answer in answers)
    host.output()
    assert host.process.returncode == 0
    host.assert_nothing_left()


@pytest.mark.either_proxy
def test_an_idle_connection_does_not_hold_the_end_up(host):
    address = host.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in connection.recv(1000)
        host.process.send_signal(signal.SIGTERM)
        wait_for(lambda: host.process.poll() is not None, "the host to end", deadline_s=15)  # the server waits for 30 s
    assert host.process.returncode == 0
    host.assert_nothing_left()


def test_a_second_signal_ends_requests_that_do_not_finish(host):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(infer, host, "gated")
        wait_for((host.folder / "entered").exists, "the callable to be entered")
        host.process.send_signal(signal.SIGTERM)
        wait_for(lambda: refuses(host, "double"), "the first signal to be handled")
        host.process.send_signal(signal.SIGTERM)
        with pytest.raises(PyTritonClientError):
            answer.result()
    host.output()
    assert host.process.returncode == 0
    host.assert_nothing_left()


@pytest.mark.either_proxy
@pytest.mark.parametrize("form", [(), ("workers",)], ids=["threads", "workers"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_at_once_lets_requests_in_flight_be_answered(tmp_path, free_config, form, number):
    """As service managers send it: systemd to the control group, for one."""
    host = Host(tmp_path, free_config, *form)
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(infer, host, "gated")
            wait_for((host.folder / "entered").exists, "the callable to be entered")
            for pid in host.family:
                os.kill(pid, number)
            host.process.send_signal(number)
            wait_for(lambda: refuses(host, "double"), "new requests to be refused")
            (host.folder / "open").touch()
            assert np.array_equal(answer.result(), X * 2)
        assert "died" not in host.output()
        assert host.process.returncode == 0
        host.assert_nothing_left()
    finally:
        host.kill()


CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


@native_part_only
def test_the_server_has_no_handlers_for_the_signals_of_a_crash_which_end_it_at_once(host):
    """Its own fork and allocate, which waits for ever where the heap is corrupted, or malloc's lock is held."""
    status = Path(f"/proc/{host.server}/status").read_text().splitlines()
    (line,) = [line for line in status if line.startswith("SigCgt")]
    caught = int(line.split()[1], 16)
    assert not [number.name for number in CRASHES if caught >> (number - 1) & 1]
    assert caught >> (signal.SIGTERM - 1) & 1  # others are the server's affair
    os.kill(host.server, signal.SIGABRT)
    wait_for(lambda: not is_alive(host.server), "the server to die")
    wait_for(lambda: serves(host, "double"), "the model to be served again")
    host.family += descendants(host.process.pid)
    output = host.end(signal.SIGTERM)
    assert "exit status 134: SIGABRT" in output
    host.assert_nothing_left()


@pytest.mark.either_proxy
def test_a_second_signal_to_all_processes_ends_requests_in_workers(tmp_path, free_config):
    host = Host(tmp_path, free_config, "workers")
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(infer, host, "gated")
            wait_for((host.folder / "entered").exists, "the callable to be entered")
            for ends in (refuses, lambda *_: answer.done()):
                for pid in (host.process.pid, *host.family):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
                wait_for(lambda ends=ends: ends(host, "double"), "the signal to be handled")
            with pytest.raises(PyTritonClientError):
                answer.result()
            (host.folder / "open").touch()
        host.output()
        assert host.process.returncode == 0
        host.assert_nothing_left()
    finally:
        host.kill()


@pytest.mark.either_proxy
def test_signals_end_a_child_that_a_callable_has_forked_and_not_the_server(host):
    for number in (signal.SIGTERM, signal.SIGINT):
        child = int(infer(host, "forking")[0, 0])
        try:
            # Again and again: Python drops the KeyboardInterrupt of a signal that comes while a child begins.
            wait_for(lambda sent=(child, number): os.kill(*sent) or not is_alive(sent[0]), "the child to end")
        finally:
            os.kill(child, signal.SIGKILL)
    assert np.array_equal(infer(host, "double"), X * 2)
    assert host.process.poll() is None


def test_the_hosts_death_by_sigkill_takes_the_server_down(host):
    host.end(signal.SIGKILL)
    host.assert_nothing_left()


@pytest.mark.either_proxy
def test_the_death_of_a_server_that_is_not_to_be_launched_again_ends_serve(tmp_path, free_config):
    host = Host(tmp_path, free_config, "final")
    try:
        os.kill(host.server, signal.SIGKILL)
        output = host.output()
        assert host.process.returncode == 0
        assert "the server exited with failure: it died (exit status 137: SIGKILL)" in output
        assert "serve returned" in output
        host.assert_nothing_left()
    finally:
        host.kill()


@pytest.mark.parametrize("killed", ["server", "guard"])  # the kernel kills the server of a dead guard
def test_a_killed_server_is_served_again_and_a_signal_still_ends_the_host_with_status_0(host, killed):
    os.kill(getattr(host, killed), signal.SIGKILL)
    wait_for(lambda: not is_alive(host.server), "the server to die")
    wait_for(lambda: serves(host, "double"), "the model to be served again")
    host.family += descendants(host.process.pid)
    output = host.end(signal.SIGINT)
    assert host.process.returncode == 0
    assert output.count("launching the server again (restart 1 in a row): it died (exit status ") == 1
    assert ": SIGKILL)" in output
    assert "serve returned" in output
    assert "Traceback" not in output
    host.assert_nothing_left()


@pytest.mark.either_proxy
@pytest.mark.parametrize("workers", [(), ("workers",)], ids=["threads", "workers"])
@pytest.mark.parametrize("setting", ["blocked", "ignored"])
def test_a_host_that_blocks_signals_or_ignores_sigchld_gets_all_back(tmp_path, free_config, setting, workers):
    host = Host(tmp_path, replace(free_config, exit_timeout_secs=5), setting, *workers)
    try:
        for pid in (host.server, *filter(is_worker, host.family)):
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: not is_alive(pid), "it to die")
            wait_for(lambda: serves(host, "double"), "the model to be served again")
        host.family += descendants(host.process.pid)
        output = host.end(signal.SIGTERM)
        assert host.process.returncode == 0
        assert "SIGKILL" in output
        assert "requests in flight were ended" not in output
        host.assert_nothing_left()
    finally:
        host.kill()


@python_proxy_only
def test_a_dead_proxy_is_replaced(host):
    assert np.array_equal(infer(host, "double"), X * 2)
    old = host.stub("double")
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: not is_alive(old), "the proxy to die")
    wait_for(lambda: serves(host, "double"), "the model to be served again")
    assert host.stub("double") != old
    assert "its proxy in the server died" in host.end(signal.SIGTERM)
    host.assert_nothing_left()


def test_an_unrecoverable_error_reaches_the_client_and_ends_serve(host):
    with pytest.raises(PyTritonClientInferenceServerError, match="the device is lost"):
        infer(host, "fatal")
    output = host.output()
    assert host.process.returncode == 0
    assert "unrecoverable error" in output
    assert output.count("Traceback") == 1
    host.assert_nothing_left()


@pytest.mark.either_proxy
def test_a_callable_may_stop_the_server_and_still_answers(host):
    assert np.array_equal(infer(host, "stopper"), X * 2)
    assert "serve returned" in host.output()
    assert host.process.returncode == 0
    host.assert_nothing_left()


def test_a_hung_callable_holds_the_end_up_only_so_long(tmp_path, free_config):
    host = Host(tmp_path, replace(free_config, exit_timeout_secs=1))
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(infer, host, "gated")
            wait_for((host.folder / "entered").exists, "the callable to be entered")
            output = host.end(signal.SIGTERM)
            with pytest.raises(PyTritonClientError):
                answer.result()
        assert "requests in flight were ended after 1 s" in output
        assert host.process.returncode == 0
        host.assert_nothing_left()
    finally:
        host.kill()


def test_leaving_the_program_without_stop_cleans_up(tmp_path, free_config):
    host = Host(tmp_path, free_config, "leave")
    (host.folder / "seen").touch()
    host.output()
    assert host.process.returncode == 3
    host.assert_nothing_left()


def serves(host, model):
    try:
        with ModelClient(host.url, model, init_timeout_s=1, inference_timeout_s=5) as client:
            return np.array_equal(client.infer_batch(X)["y"], X * 2)
    except PyTritonClientError:
        return False


def refuses(host, model):
    with ModelClient(host.url, model, ensure_model_is_ready=False, init_timeout_s=1, inference_timeout_s=1) as client:
        try:
            client.infer_batch(X)
        except PyTritonClientError:
            return True
    return False


def pending(host, model):
    """Requests of a model that wait for their turn, as the server's metrics count them."""
    with urllib.request.urlopen(host.metrics_url) as answer:
        (line,) = re.findall(rf'nv_inference_pending_request_count{{model="{model}".*}} (.*)', answer.read().decode())
    return float(line)
