"""The synchronous client on a real server: what it waits for, what it survives, and what it leaves behind."""

import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientModelUnavailableError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
)
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import VALID_TRITON_ENDPOINTS, Triton, TritonSecurityConfig
from tests.server.arrays import assert_same, filled
from tests.server.conftest import LOCALHOST, local_config
from tests.server.gated import Gated
from tests.server.processes import command_line, descendants, wait_for

pytestmark = pytest.mark.either_proxy

TENSORS = [[Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in ("x", "y")]
TOKEN = "secret"


def double(requests):
    return [{"y": request["x"] * 2} for request in requests]


def serving(config, function=double, **options):
    """A server with the model ``m``; options are those of Triton."""
    triton = Triton(config=config, **options)
    triton.bind("m", function, *TENSORS, config=ModelConfig(max_batch_size=4))
    return triton


def address(config, protocol):
    return f"{protocol}://{LOCALHOST}:{config.http_port if protocol == 'http' else config.grpc_port}"


def server_of(config):
    """Process id of the server with this configuration."""
    (pid,) = [
        pid
        for pid in descendants(os.getpid())
        if command_line(pid)[0].endswith("/tritonserver") and f"--http-port={config.http_port}" in command_line(pid)
    ]
    return pid


def test_client_waits_for_a_server_that_is_not_up_yet(free_config, protocol):
    with (
        ModelClient(address(free_config, protocol), "m") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with pytest.raises(PyTritonClientTimeoutError, match="failed"):
            client.wait_for_server(0.2)
        answer = pool.submit(client.infer_batch, filled(1))
        with serving(free_config):
            assert_same(answer.result()["y"], filled(2))


def test_client_survives_a_server_that_is_killed_in_the_middle_of_a_call(free_config, protocol):
    gated = Gated()
    with (
        ModelClient(address(free_config, protocol), "m") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with serving(free_config, gated):
            answer = pool.submit(client.infer_batch, filled(1))
            gated.wait_called()
            os.kill(server_of(free_config), signal.SIGKILL)
            with pytest.raises(PyTritonClientConnectionError):
                answer.result()
            gated.gate.open()
        with pytest.raises(PyTritonClientConnectionError):
            client.infer_batch(filled(1))
        with serving(free_config):
            assert_same(client.infer_batch(filled(2))["y"], filled(4))


def test_retries_wait_for_a_server_that_comes_back(free_config, protocol):
    with (
        ModelClient(address(free_config, protocol), "m") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with serving(free_config):
            client.infer_batch(filled(1))
        answer = pool.submit(client.with_options(retries=20).infer_batch, filled(2))
        with serving(free_config):
            assert_same(answer.result()["y"], filled(4))


@pytest.fixture(scope="module")
def model(bind):
    return bind(double, max_batch_size=4)


@pytest.mark.parametrize("timeout_s", [0.1, 0.5])
def test_timeouts_below_a_second_are_kept(bind, url, timeout_s):
    gated = Gated()
    model = bind(gated)
    try:
        with ModelClient(url, model, inference_timeout_s=timeout_s) as client:
            assert client.model_config.model_name == model
            with pytest.raises(PyTritonClientTimeoutError, match=f"within {timeout_s}"):
                client.infer_batch(filled(1))
    finally:
        gated.gate.open()


def test_client_is_usable_after_a_timeout(bind, url):
    gated = Gated()
    model = bind(gated)
    with ModelClient(url, model) as client:
        with pytest.raises(PyTritonClientTimeoutError):
            client.with_options(inference_timeout_s=0.05).infer_batch(filled(1))
        gated.gate.open()
        assert_same(client.infer_batch(filled(2))["y"], filled(4))


def test_model_without_batching_takes_samples_alone(bind, url):
    with ModelClient(url, bind(double, batching=False)) as client:
        assert client.is_batching_supported is False
        assert_same(client.infer_sample(filled(1)[0])["y"], filled(2)[0])
        with pytest.raises(PyTritonClientModelDoesntSupportBatchingError, match="infer_sample"):
            client.infer_batch(filled(1))


def test_views_and_client_answer_in_turn(model, url):
    with ModelClient(url, model) as client:
        views = [client, client.with_options(priority=1), client.with_options(compression="gzip", retries=1)]
        for number in range(9):
            assert_same(views[number % 3].infer_batch(filled(number))["y"], filled(2 * number))


def test_client_made_from_another_answers_after_that_was_closed(model, url):
    with ModelClient(url, model) as first:
        config = first.model_config
        second = ModelClient.from_existing_client(first)
    with second:
        assert second.model_config is config
        assert_same(second.infer_batch(filled(1))["y"], filled(2))


def test_unloaded_model_answers_again_once_it_is_loaded(bind, url):
    with ModelClient(url, bind(double)) as client:
        assert_same(client.infer_batch(filled(1))["y"], filled(2))
        client.unload_model()
        with (
            ModelClient.from_existing_client(client) as hasty,
            pytest.raises((PyTritonClientModelUnavailableError, PyTritonClientTimeoutError)),
        ):
            hasty.wait_for_model(0.1)
        client.load_model()
        assert_same(client.infer_batch(filled(1))["y"], filled(2))


def test_model_is_loaded_with_a_configuration_that_changes_only_some_of_its_own(bind, url):
    sizes = []

    def infer(requests):
        sizes.append(sum(len(request["x"]) for request in requests))
        return double(requests)

    with ModelClient(url, bind(infer, max_batch_size=4)) as client:
        client.load_model(config='{"max_batch_size": "16"}')
        assert client.model_config.max_batch_size == 16
        assert_same(client.infer_batch(filled(1, rows=12))["y"], filled(2, rows=12))
        assert sizes == [12]
        client.load_model(config='{"dynamicBatching": {"maxQueueDelayMicroseconds": 7}}')
        assert (client.model_config.max_batch_size, client.model_config.batcher.max_queue_delay_microseconds) == (16, 7)
        client.unload_model()
        with pytest.raises(PyTritonClientInferenceServerError):  # the server does not tell its configuration any more
            client.load_model(config='{"max_batch_size": 8}')


def test_token_opens_every_call_of_a_restricted_server():
    security = TritonSecurityConfig(TOKEN, VALID_TRITON_ENDPOINTS)
    with local_config() as config, serving(config, security_config=security):
        url = address(config, "grpc")
        with ModelClient(url, "m", access_token=TOKEN) as client:
            client.wait_for_server(10)
            client.wait_for_model(10)
            model_config = client.model_config
            assert_same(client.infer_batch(filled(1))["y"], filled(2))
            client.unload_model()
            client.load_model()
            assert_same(client.infer_batch(filled(1))["y"], filled(2))
        known = {"model_config": model_config, "ensure_model_is_ready": False}
        with (
            ModelClient(url, "m", **known) as stranger,
            pytest.raises(PyTritonClientInferenceServerError, match="restricted") as caught,
        ):
            stranger.infer_batch(filled(1))
        assert not isinstance(caught.value, PyTritonClientServerUnavailableError)


def held():
    """Descriptors and threads of this process."""
    return np.array([len(os.listdir("/proc/self/fd")), threading.active_count()])


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_two_hundred_clients_leave_nothing_behind(model, url):
    def use(count):
        for _ in range(count):
            with ModelClient(url, model) as client:
                client.infer_batch(filled(1))
        gc.collect()

    use(20)  # what the libraries make once
    before = held()
    use(80)
    memory = resident_bytes()
    use(100)
    wait_for(lambda: (held() <= before).all(), "sockets and threads to be given back")
    assert resident_bytes() - memory < 4 * 2**20
