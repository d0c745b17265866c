"""FuturesModelClient on a real server: what runs at once, what it survives, and what it leaves behind."""

import concurrent.futures
import os
import signal

import numpy as np
import pytest

from pytriton.client import FuturesModelClient
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientModelUnavailableError,
    PyTritonClientQueueFullError,
    PyTritonClientTimeoutError,
)
from tests.server.arrays import assert_same, filled
from tests.server.gated import Gated
from tests.server.leftovers import nothing_left
from tests.server.own_server import address, double, server_of, serving
from tests.unit.loops import PATIENCE_S, in_loop

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def model(bind):
    return bind(double, max_batch_size=8)


@pytest.mark.parametrize("limits", [{}, {"max_workers": 1, "max_queue_size": None}, {"max_workers": None}])
def test_many_calls_at_once_get_their_own_answers(url, model, limits):
    with FuturesModelClient(url, model, **limits) as client:
        futures = [client.infer_batch(filled(i)) for i in range(200)]
        for i, future in enumerate(futures):
            assert_same(future.result(PATIENCE_S)["y"], filled(2 * i))
        assert client.model_config().result(PATIENCE_S).model_name == model
        assert client.wait_for_model(10).result(PATIENCE_S) is None
        assert_same(client.infer_sample(x=filled(3)[0]).result(PATIENCE_S)["y"], filled(6)[0])


def test_large_tensors_pass(url, model):
    large = np.random.default_rng(0).random((2, 2**20), np.float32)
    with FuturesModelClient(url, model) as client:
        for future in [client.infer_batch(large) for _ in range(4)]:
            assert_same(future.result(PATIENCE_S)["y"], large * 2)


def test_absent_model_is_found_to_be_so(url):
    with FuturesModelClient(url, "absent", init_timeout_s=2.5) as client:
        futures = [client.infer_batch(filled(1)) for _ in range(5)]
        for future in futures:
            assert isinstance(future.exception(PATIENCE_S), PyTritonClientModelUnavailableError)


def test_queued_calls_end_after_a_busy_client_is_closed_without_waiting(url, gated):
    with FuturesModelClient(url, gated.model) as first:  # gRPC opens some files once, and keeps them
        first.model_config().result(PATIENCE_S)
    with nothing_left():
        client = FuturesModelClient(url, gated.model, max_workers=1, max_queue_size=2, non_blocking=True)
        running, *waiting = [client.infer_batch(filled(i)) for i in range(3)]
        gated.wait_called()
        with pytest.raises(PyTritonClientQueueFullError):
            client.infer_batch(filled(1))
        assert waiting[0].cancel()
        client.close(wait=False)
        assert not waiting[1].done()
        gated.gate.open()
        assert_same(running.result(PATIENCE_S)["y"], filled(0))
        assert_same(waiting[1].result(PATIENCE_S)["y"], filled(4))


@pytest.mark.parametrize("timeout_s", [0.1, 0.5])
def test_timeouts_below_a_second_end_calls_and_so_bound_closing(url, gated, timeout_s):
    with FuturesModelClient(url, gated.model) as client:
        client.model_config().result(PATIENCE_S)
        future = client.with_options(inference_timeout_s=timeout_s).infer_batch(filled(1))
    error = future.exception(0)  # closing has waited for it, though the model never answers
    assert isinstance(error, PyTritonClientTimeoutError)
    assert f"within {timeout_s} s" in str(error)


def test_client_survives_a_server_that_is_killed_in_the_middle_of_calls(free_config, protocol):
    gated = Gated()
    with FuturesModelClient(address(free_config, protocol), "m", max_workers=4) as client:
        early = client.infer_batch(filled(1))
        with serving(free_config, gated):
            later = [client.infer_batch(filled(i)) for i in range(3)]
            gated.wait_called()
            os.kill(server_of(free_config), signal.SIGKILL)
            errors = [future.exception(PATIENCE_S) for future in (early, *later)]
            gated.gate.open()
        assert {type(error) for error in errors} == {PyTritonClientConnectionError}
        with serving(free_config):
            assert_same(client.infer_batch(filled(2)).result(PATIENCE_S)["y"], filled(4))


@in_loop
async def test_client_works_within_a_running_loop(url, model):
    """As in a notebook, where cells run within a loop."""
    with FuturesModelClient(url, model) as client:
        assert_same(client.infer_batch(filled(2)).result(PATIENCE_S)["y"], filled(4))


def test_several_clients_run_beside_each_other(url, model):
    clients = [FuturesModelClient(url, model) for _ in range(4)]
    futures = [client.infer_batch(filled(i)) for i in range(50) for client in clients]
    assert not concurrent.futures.wait(futures, PATIENCE_S).not_done
    for client in clients:
        client.close()
    for i, future in enumerate(futures):
        assert_same(future.result()["y"], filled(2 * (i // 4)))


def test_hundreds_of_clients_leave_nothing_behind(url, model):
    def use(count):
        for _ in range(count):
            with FuturesModelClient(url, model) as client:
                client.infer_batch(filled(1)).result(PATIENCE_S)

    use(5)  # what the libraries keep for ever
    with nothing_left():
        use(200)
