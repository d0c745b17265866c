"""FuturesModelClient as programs use it, on a small HTTP server that echoes one input."""

import concurrent.futures
import gc
import logging
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tritonclient.http

from pytriton.client import FuturesModelClient
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientInputError,
    PyTritonClientInvalidUrlError,
    PyTritonClientModelUnavailableError,
    PyTritonClientQueueFullError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from pytriton.model_config.parser import ModelConfigParser
from tests.unit.loopback import CONFIG, ModelServer, listening, serving, unused_address

X = np.arange(6, dtype=np.float32).reshape(3, 2)
PATIENCE_S = 30.0
KNOWN = {"model_config": ModelConfigParser.from_dict(CONFIG), "ensure_model_is_ready": False}


class Turnstile:
    """Holds inferences up: each one that comes in waits until it is let through."""

    def __init__(self):
        self.came, self._open = threading.Semaphore(0), threading.Semaphore(0)
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def __call__(self):
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.came.release()
        assert self._open.acquire(timeout=PATIENCE_S)
        with self._lock:
            self.inside -= 1

    def await_one(self):
        assert self.came.acquire(timeout=PATIENCE_S)

    def let_through(self, count=1):
        self._open.release(count)


@pytest.fixture
def server():
    with serving(ModelServer()) as server:
        yield server


@pytest.fixture
def turnstile(server):
    server.hold = turnstile = Turnstile()
    yield turnstile
    turnstile.let_through(1000)


@pytest.fixture(autouse=True)
def no_threads_left():
    before = {*threading.enumerate()}
    yield
    gc.collect()
    end = time.monotonic() + PATIENCE_S
    while left := {*threading.enumerate()} - before:
        assert time.monotonic() < end, left
        time.sleep(0.01)


def paths(server):
    return [path for path, _ in server.requests]


def test_sample_and_batch_come_back(server):
    with FuturesModelClient(server.url, "m") as client:
        batch, sample = client.infer_batch(X), client.infer_sample(x=X[1])
        assert isinstance(batch, concurrent.futures.Future)
        np.testing.assert_array_equal(batch.result(PATIENCE_S)["x"], X)
        np.testing.assert_array_equal(sample.result(PATIENCE_S)["x"], X[1])


def test_constructor_connects_to_nothing_and_starts_no_thread(server):
    before = threading.active_count()
    with FuturesModelClient(server.url, "m"):
        assert threading.active_count() == before
    assert server.requests == []


def test_first_calls_at_once_get_ready_once(server):
    with FuturesModelClient(server.url, "m") as client:
        futures = [client.infer_sample(X[i % 3]) for i in range(64)]
        assert not concurrent.futures.wait(futures, PATIENCE_S).not_done
        np.testing.assert_array_equal([future.result()["x"] for future in futures[:3]], X)
    asked = paths(server)
    assert len(asked) == 66
    assert asked.count("/v2/models/m/config") == asked.count("/v2/models/m/ready") == 1


def test_description_and_readiness_are_futures_too(server):
    with FuturesModelClient(server.url, "m") as client:
        assert client.wait_for_model(5).result(PATIENCE_S) is None
        assert client.model_config().result(PATIENCE_S).max_batch_size == 4
        assert client.model_config().result(PATIENCE_S) is client.model_config().result(PATIENCE_S)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda client: client.infer_sample(), PyTritonClientValueError),
        (lambda client: client.infer_sample(X[0], x=X[0]), PyTritonClientValueError),
        (lambda client: client.infer_sample(X[0], parameters=1), PyTritonClientValueError),
        (lambda client: client.infer_batch(X[0]), PyTritonClientInputError),
        (lambda client: client.wait_for_model(-1), PyTritonClientValueError),
    ],
)
def test_wrong_arguments_come_out_of_the_future(server, call, error):
    with FuturesModelClient(server.url, "m") as client:
        future = call(client)
        with pytest.raises(error):
            future.result(PATIENCE_S)


def test_connection_problems_come_out_of_the_future(server):
    with (
        FuturesModelClient(unused_address(), "m", **KNOWN) as unreachable,
        FuturesModelClient(unused_address(), "m", init_timeout_s=0.05) as absent,
        FuturesModelClient(server.url, "other", init_timeout_s=0.5) as unknown,
    ):
        futures = [client.infer_sample(X[0]) for client in (unreachable, absent, unknown)]
        kinds = [PyTritonClientConnectionError, PyTritonClientTimeoutError, PyTritonClientModelUnavailableError]
        assert [type(future.exception(PATIENCE_S)) for future in futures] == kinds


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("https://localhost", "m"), {}, PyTritonClientInvalidUrlError),
        (("localhost", "m"), {"max_workers": 0}, PyTritonClientValueError),
        (("localhost", "m"), {"max_workers": 1.5}, PyTritonClientValueError),
        (("localhost", "m"), {"max_queue_size": -1}, PyTritonClientValueError),
        (("localhost", "m"), {"max_queue_size": True}, PyTritonClientValueError),
        (("localhost", "m"), {"inference_timeout_s": 0}, PyTritonClientValueError),
    ],
)
def test_wrong_settings_are_refused(arguments, options, error):
    with pytest.raises(error):
        FuturesModelClient(*arguments, **options)


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


def test_closing_without_waiting_cancels_what_waits_and_lets_the_rest_end(server, turnstile):
    client = FuturesModelClient(server.url, "m", max_workers=1, **KNOWN)
    running, waiting = client.infer_sample(X[0]), client.infer_sample(X[1])
    turnstile.await_one()
    client.close(wait=False)
    assert waiting.cancelled()
    assert running.running()
    turnstile.let_through()
    np.testing.assert_array_equal(running.result(PATIENCE_S)["x"], X[0])
    client.close()


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


def test_callbacks_may_block_and_call_the_client(server):
    answers = []
    finished = threading.Event()
    with FuturesModelClient(server.url, "m", max_workers=1, max_queue_size=1) as client:

        def go_on(future):
            answers.append(future.result())
            if len(answers) < 4:
                again = client.infer_sample(X[0])
                again.result(PATIENCE_S)
                again.add_done_callback(go_on)
            else:
                finished.set()

        client.infer_sample(X[0]).add_done_callback(go_on)
        assert finished.wait(PATIENCE_S)


def test_callback_may_close_the_client(server):
    closed = threading.Event()
    client = FuturesModelClient(server.url, "m")

    def close(_):
        client.close()
        closed.set()

    client.infer_sample(X[0]).add_done_callback(close)
    assert closed.wait(PATIENCE_S)


def test_callbacks_have_run_when_closing_returns(server, turnstile):
    seen = []
    with FuturesModelClient(server.url, "m", max_workers=1) as client:
        futures = [client.infer_sample(X[0]) for _ in range(3)]
        for future in futures:
            future.add_done_callback(seen.append)
        turnstile.let_through(3)
    assert seen == futures


def test_callback_of_a_finished_future_runs_at_once(server):
    seen = []
    with FuturesModelClient(server.url, "m") as client:
        future = client.infer_sample(X[0])
        future.result(PATIENCE_S)
        future.add_done_callback(lambda _: seen.append(threading.current_thread()))
        assert seen == [threading.current_thread()]


def test_callback_that_fails_is_logged_and_the_next_one_runs(server, turnstile, caplog):
    seen = []
    with FuturesModelClient(server.url, "m") as client, caplog.at_level(logging.ERROR):
        future = client.infer_sample(X[0])
        future.add_done_callback(lambda _: 1 / 0)
        future.add_done_callback(seen.append)
        turnstile.let_through()
    assert seen == [future]
    assert "ZeroDivisionError" in caplog.text


def test_many_threads_use_one_client(server):
    with FuturesModelClient(server.url, "m", max_workers=3, max_queue_size=3) as client:

        def use(i):
            return client.infer_sample(X[i % 3]).result(PATIENCE_S)["x"].tolist() == X[i % 3].tolist()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(pool.map(use, range(80)))


def test_token_travels_with_every_call(server):
    server.token = "secret"
    with FuturesModelClient(server.url, "m", access_token="secret") as client:
        client.infer_sample(X[0]).result(PATIENCE_S)
        client.wait_for_model(5).result(PATIENCE_S)
    assert [headers.get("triton-access-token") for _, headers in server.requests] == ["secret"] * 4


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


def test_bare_client_is_the_synchronous_one():
    with FuturesModelClient("localhost", "m") as client:
        assert client.get_lib() is tritonclient.http
        with client.create_client_from_url("localhost") as bare:
            assert isinstance(bare, tritonclient.http.InferenceServerClient)


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
