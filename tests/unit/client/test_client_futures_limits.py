"""How many calls of FuturesModelClient run and wait, and what becomes of them when it is closed."""

import concurrent.futures
import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

from pytriton.client import FuturesModelClient
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientQueueFullError,
)
from tests.unit.loopback import CONFIG, KNOWN, X, listening, paths
from tests.unit.loops import PATIENCE_S
from tests.unit.turnstile import Turnstile

pytestmark = pytest.mark.usefixtures("no_threads_left")


def test_no_more_workers_run_than_allowed_and_the_rest_follow(server, turnstile):
    with FuturesModelClient(server.url, "m", max_workers=2, max_queue_size=None, **KNOWN) as client:
        futures = [client.infer_sample(X[0]) for _ in range(5)]
        for _ in futures:
            turnstile.await_one()
            turnstile.let_through()
        assert not concurrent.futures.wait(futures, PATIENCE_S).not_done
    assert turnstile.most <= 2


def test_unlimited_workers_all_run_at_once(server, turnstile):
    with FuturesModelClient(server.url, "m", max_workers=None, max_queue_size=1, **KNOWN) as client:
        futures = [client.infer_sample(X[0]) for _ in range(40)]
        for _ in futures:
            turnstile.await_one()
        turnstile.let_through(40)
        assert not concurrent.futures.wait(futures, PATIENCE_S).not_done


def test_full_queue_refuses_at_once_where_calls_must_not_block(server, turnstile):
    limits = {"max_workers": 1, "max_queue_size": 1, "non_blocking": True}
    with FuturesModelClient(server.url, "m", **limits, **KNOWN) as client:
        futures = [client.infer_sample(X[0])]
        turnstile.await_one()
        futures.append(client.infer_sample(X[0]))
        with pytest.raises(PyTritonClientQueueFullError, match="1 requests under way and 1 waiting"):
            client.infer_sample(X[0])
        turnstile.let_through(2)
        assert not concurrent.futures.wait(futures, PATIENCE_S).not_done
        turnstile.let_through()
        client.infer_sample(X[0]).result(PATIENCE_S)


def test_full_queue_refuses_when_no_place_came_free_in_time(server, turnstile):
    with FuturesModelClient(
        server.url, "m", max_workers=1, max_queue_size=1, inference_timeout_s=0.2, **KNOWN
    ) as client:
        first = client.with_options(inference_timeout_s=PATIENCE_S).infer_sample(X[0])
        turnstile.await_one()  # the queue is empty again
        client.infer_sample(X[0])
        with pytest.raises(PyTritonClientQueueFullError):
            client.infer_sample(X[0])
        assert first.running()
        turnstile.let_through(2)


def test_blocked_call_goes_on_when_a_place_comes_free(server, turnstile):
    with FuturesModelClient(server.url, "m", max_workers=1, max_queue_size=1, **KNOWN) as client:
        futures = [client.infer_sample(X[0]), client.infer_sample(X[0])]
        blocked = threading.Thread(target=lambda: futures.append(client.infer_sample(X[0])))
        blocked.start()
        turnstile.await_one()
        assert len(futures) == 2
        turnstile.let_through()
        blocked.join(PATIENCE_S)
        assert len(futures) == 3
        turnstile.let_through(2)
        assert not concurrent.futures.wait(futures, PATIENCE_S).not_done


@pytest.mark.parametrize("wait", [True, False])
def test_blocked_call_ends_when_the_client_is_closed(server, turnstile, wait):
    client = FuturesModelClient(server.url, "m", max_workers=1, max_queue_size=1, **KNOWN)
    client.infer_sample(X[0])
    client.infer_sample(X[0])
    errors = []

    def call():
        try:
            client.infer_sample(X[0])
        except PyTritonClientClosedError as error:
            errors.append(error)

    blocked = threading.Thread(target=call)
    blocked.start()
    turnstile.await_one()
    closing = threading.Thread(target=client.close, args=(wait,))
    closing.start()
    blocked.join(PATIENCE_S)
    assert len(errors) == 1
    turnstile.let_through(2)
    closing.join(PATIENCE_S)


def test_cancelled_call_is_never_sent_and_gives_its_place_back(server, turnstile):
    limits = {"max_workers": 1, "max_queue_size": 1, "non_blocking": True}
    with FuturesModelClient(server.url, "m", **limits, **KNOWN) as client:
        running = client.infer_sample(X[0])
        turnstile.await_one()
        assert not running.cancel()
        waiting = client.infer_sample(X[1])
        assert waiting.cancel()
        following = client.infer_sample(X[2])
        turnstile.let_through(2)
        np.testing.assert_array_equal(following.result(PATIENCE_S)["x"], X[2])
        assert waiting.cancelled()
    assert len(server.requests) == 2


def test_closing_waits_for_what_is_under_way_and_what_waits(server, turnstile):
    client = FuturesModelClient(server.url, "m", max_workers=1, **KNOWN)
    futures = [client.infer_sample(X[i]) for i in range(3)]
    closing = threading.Thread(target=client.close)
    turnstile.await_one()
    closing.start()
    turnstile.let_through(3)
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert all(future.done() for future in futures)
    np.testing.assert_array_equal([future.result()["x"] for future in futures], X)


def test_closing_without_waiting_lets_all_calls_end(server, turnstile):
    client = FuturesModelClient(server.url, "m", max_workers=1, **KNOWN)
    futures = [client.infer_sample(row) for row in X]
    turnstile.await_one()
    client.close(wait=False)
    assert [future.done() for future in futures] == [False] * 3
    with pytest.raises(PyTritonClientClosedError):
        client.infer_sample(X[0])
    turnstile.let_through(3)
    np.testing.assert_array_equal([future.result(PATIENCE_S)["x"] for future in futures], X)
    client.close()


def test_calls_do_not_block_by_default(server, turnstile):
    with FuturesModelClient(server.url, "m", **KNOWN) as client:
        futures = [client.infer_sample(X[0]) for _ in range(600)]
        assert not any(future.done() for future in futures)
        turnstile.let_through(1000)
        assert not concurrent.futures.wait(futures, PATIENCE_S).not_done
    assert turnstile.most <= 256


def test_closed_client_refuses_everything_and_closes_again(server):
    client = FuturesModelClient(server.url, "m")
    client.infer_sample(X[0]).result(PATIENCE_S)
    client.close()
    client.close()
    for use in (
        lambda: client.infer_sample(X[0]),
        lambda: client.infer_batch(X),
        lambda: client.wait_for_model(1),
        lambda: client.model_config(),
        lambda: client.with_options(priority=1).infer_sample(X[0]),
    ):
        with pytest.raises(PyTritonClientClosedError, match="'m' is closed"):
            use()


def test_client_that_nobody_refers_to_finishes_its_calls_and_ends(server, turnstile):
    future = FuturesModelClient(server.url, "m", max_workers=1).infer_sample(X[0])
    gc.collect()
    turnstile.let_through()
    np.testing.assert_array_equal(future.result(PATIENCE_S)["x"], X[0])


def test_client_made_from_another_inherits_limits_and_what_that_has_learned(server):
    limits = {"max_workers": 1, "max_queue_size": 1, "non_blocking": True}
    with FuturesModelClient(server.url, "m", **limits) as first:
        first.infer_sample(X[0]).result(PATIENCE_S)
        asked = len(server.requests)
        server.hold = turnstile = Turnstile()
        with FuturesModelClient.from_existing_client(first) as second:
            futures = [second.infer_sample(X[0])]
            turnstile.await_one()
            futures.append(second.infer_sample(X[0]))
            with pytest.raises(PyTritonClientQueueFullError):
                second.infer_sample(X[0])
            turnstile.let_through(2)
            assert not concurrent.futures.wait(futures, PATIENCE_S).not_done
    assert paths(server)[asked:] == ["/v2/models/m/infer"] * 2


@pytest.mark.parametrize("ending", ["", "client.close(wait=False)", "del client, future"])
def test_interpreter_ends_at_once_though_a_server_hangs(ending):
    asked = threading.Event()
    program = f"""
import sys, numpy
from pytriton.client import FuturesModelClient
from pytriton.model_config.parser import ModelConfigParser
config = ModelConfigParser.from_dict({CONFIG!r})
client = FuturesModelClient(sys.argv[1], "m", max_workers=1, model_config=config, ensure_model_is_ready=False)
future = client.infer_sample(numpy.zeros(2, numpy.float32))
waiting = client.infer_sample(numpy.zeros(2, numpy.float32))
sys.stdin.readline()
{ending}
"""
    with listening(lambda connection, stopped: asked.set()) as address:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert asked.wait(PATIENCE_S)
            output, _ = process.communicate("\n", timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, output) == (0, "")
