"""Models that go while the server serves, and names that are bound again."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.conftest import LOCALHOST
from tests.server.gated import Gated
from tests.server.multipliers import IN, OUT, answer, answer_of_version, is_served, times
from tests.server.processes import DEADLINE_S, wait_for


@pytest.fixture(scope="module")
def protocol():
    """One is enough to see models come and go."""
    return "http"


def test_an_unbound_model_is_gone_and_its_name_free_at_once(triton, bind, traffic, url):
    model = bind(times(2))
    assert answer(traffic, model) == 2
    for number in (3, 4):
        triton.unbind(model)
        assert not is_served(url, model)
        triton.bind(model, times(number), IN, OUT)
        assert answer(traffic, model) == number
    assert triton.is_alive()
    assert triton.is_connected()


def test_a_name_may_be_bound_again_to_a_model_of_another_kind(triton, bind, traffic):
    model = bind(times(2))

    async def infer(requests):
        return [{"z": request["w"] + b"!"} for request in requests]

    triton.unbind(model)
    tensors = [[Tensor(name=name, shape=(1,), dtype=bytes)] for name in ("w", "z")]
    triton.bind(model, infer, *tensors, config=ModelConfig(max_batch_size=16))
    assert traffic.infer(model, np.array([[b"hello"]]))["z"].tolist() == [[b"hello!"]]


def test_one_of_several_versions_goes_alone(triton, traffic, url, bind):
    model = bind(times(2))
    triton.bind(model, times(3), IN, OUT, model_version=2, config=ModelConfig())
    assert answer(traffic, model) == 3
    triton.unbind(model, model_version=2)
    assert answer(traffic, model) == 2
    assert not is_served(url, model, "2")
    triton.bind(model, times(5), IN, OUT, model_version=7, config=ModelConfig())
    assert [answer_of_version(url, model, version) for version in ("1", "7")] == [2, 5]
    triton.unbind(model)
    assert not is_served(url, model)


def test_a_request_to_another_version_outlives_the_one_that_goes(triton, bind, url):
    gated = Gated()
    model = bind(gated)
    triton.bind(model, times(3), IN, OUT, model_version=2, config=ModelConfig())
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(answer_of_version, url, model, "1")
        gated.wait_called()
        triton.unbind(model, model_version=2)
        gated.gate.open()
        assert made.result(DEADLINE_S) == 2


def test_unbinding_refuses_new_requests_and_answers_those_in_flight_and_queued(triton, gated, traffic, url, pending):
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(answer, traffic, gated.model)]
        gated.wait_called()
        made += [pool.submit(answer, traffic, gated.model) for _ in range(2)]
        wait_for(lambda: pending(gated.model) == 2, "two requests to be queued")
        unbound = pool.submit(triton.unbind, gated.model)
        wait_for(lambda: not is_served(url, gated.model), "new requests to be refused")
        assert not unbound.done()
        gated.gate.open()
        assert [future.result(DEADLINE_S) for future in made] == [2, 2, 2]
        unbound.result(DEADLINE_S)


def test_a_model_bound_before_the_start_may_go_before_it(free_config):
    triton = Triton(config=free_config)
    triton.bind("gone", times(2), IN, OUT)
    triton.bind("kept", times(2), IN, OUT)
    triton.unbind("gone")
    triton.rebind("kept", times(5))
    url = f"http://{LOCALHOST}:{free_config.http_port}"
    triton.run()
    try:
        assert answer_of_version(url, "kept", None) == 5
        assert not is_served(url, "gone")
    finally:
        triton.stop()
    with pytest.raises(PyTritonInvalidOperationError, match="cannot unbind model 'kept': this Triton object was stopp"):
        triton.unbind("kept")
    with pytest.raises(PyTritonInvalidOperationError, match="cannot rebind model 'kept': this Triton object was stopp"):
        triton.rebind("kept", times(2))


def test_a_callable_that_unbinds_its_own_model_is_told_why_not(triton, bind, traffic):
    def infer(requests):
        with pytest.raises(PyTritonInvalidOperationError, match="do it from another thread"):
            triton.unbind(model)
        return [{"y": request["x"] * 2} for request in requests]

    model = bind(infer)
    assert answer(traffic, model) == 2


def test_an_unbound_model_is_reported_missing_not_late(triton, bind, url):
    model = bind(times(2))
    with ModelClient(url, model) as client:
        assert client.infer_batch(filled(1))["y"][0, 0] == 2
        triton.unbind(model)
        with pytest.raises(PyTritonClientError, match=f"unknown model: '{model}'"):
            client.infer_batch(filled(1))


@pytest.mark.either_proxy
def test_the_server_stays_alive_while_models_come_change_and_go(triton):
    """Or serve() would end."""
    gone = threading.Event()

    def watch():
        while not gone.is_set():
            if not triton.is_alive():
                return False
        return True

    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(watch)
        try:
            for _ in range(3):
                triton.bind("passing", times(2), IN, OUT)
                triton.unbind("passing")
            triton.bind("scaled", Processes(partial(times, 2), count=1), IN, OUT)
            triton.scale("scaled", 2)
            triton.scale("scaled", 1)
            triton.unbind("scaled")
        finally:
            gone.set()
        assert watched.result(DEADLINE_S)
