"""FuturesModelClient as programs use it, on a small HTTP server that echoes one input."""

import concurrent.futures
import logging
import threading

import numpy as np
import pytest
import tritonclient.http

from pytriton.client import FuturesModelClient
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientInputError,
    PyTritonClientInvalidUrlError,
    PyTritonClientModelUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from tests.unit.loopback import KNOWN, X, paths
from tests.unit.loops import PATIENCE_S

pytestmark = pytest.mark.usefixtures("no_threads_left")


def test_sample_and_batch_come_back(server):
    with FuturesModelClient(server.url, "m") as client:
        batch, sample = client.infer_batch(X), client.infer_sample(x=X[1])
        assert isinstance(batch, concurrent.futures.Future)
        np.testing.assert_array_equal(batch.result(PATIENCE_S)["x"], X)
        np.testing.assert_array_equal(sample.result(PATIENCE_S)["x"], X[1])


def test_constructor_connects_to_nothing_and_starts_no_thread(server):
    before = set(threading.enumerate())
    with FuturesModelClient(server.url, "m"):
        assert set(threading.enumerate()) <= before
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


def test_connection_problems_come_out_of_the_future(server, closed_port):
    with (
        FuturesModelClient(closed_port, "m", **KNOWN) as unreachable,
        FuturesModelClient(closed_port, "m", init_timeout_s=0.05) as absent,
        FuturesModelClient(server.url, "other", init_timeout_s=2) as unknown,
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


def test_bare_client_is_the_synchronous_one():
    with FuturesModelClient("localhost", "m") as client:
        assert client.get_lib() is tritonclient.http
        with client.create_client_from_url("localhost") as bare:
            assert isinstance(bare, tritonclient.http.InferenceServerClient)
