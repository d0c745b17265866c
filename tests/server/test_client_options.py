"""What single requests may ask for, on a real server."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
)
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, QueuePolicy, Tensor
from tests.server.arrays import assert_same, filled, strings, values
from tests.server.conftest import LOCALHOST
from tests.server.gated import Gated
from tests.server.processes import wait_for
from tests.server.relay import relay

pytestmark = pytest.mark.either_proxy

MANY = 20  # retries, of which the tests need a few


@pytest.fixture
def gated(bind):
    """``gated(**batcher)``: a model that takes one request at a time."""

    def bound(**batcher):
        function = Gated()
        function.model = bind(function, max_batch_size=1, batcher=DynamicBatcher(**batcher))
        return function

    return bound


@pytest.fixture
def recorded(triton_config, protocol):
    """``url, relay``: the way to the server through a relay."""
    port = triton_config.http_port if protocol == "http" else triton_config.grpc_port
    with relay(port) as between:
        yield f"{protocol}://{LOCALHOST}:{between.port}", between


def infer(url, model, x, **options):
    with ModelClient(url, model) as client:
        return client.with_options(**options).infer_batch(x)["y"]


def test_request_of_a_higher_priority_overtakes(gated, url, traffic):
    function = gated(priority_levels=3, default_priority_level=2)
    priorities = {1: 3, 2: 0, 3: 2, 4: 1, 5: 1, 6: 3}  # 0 is the model's default of 2
    calls = [partial(infer, url, function.model, filled(0))]
    calls += [partial(infer, url, function.model, filled(n), priority=level) for n, level in priorities.items()]
    for answer in traffic.merge(function.model, function.gate, calls):
        answer.result()
    assert function.seen == [0, 4, 5, 2, 3, 1, 6]


def test_request_that_waits_in_the_queue_for_too_long_is_refused(gated, url, traffic):
    policy = QueuePolicy(allow_timeout_override=True, default_timeout_microseconds=60_000_000)
    function = gated(default_queue_policy=policy)
    options = [{}, {"server_timeout_s": 1e-6, "retries": MANY}, {"server_timeout_s": 59}]
    calls = [partial(infer, url, function.model, filled(n), **each) for n, each in enumerate(options)]
    first, hasty, patient = traffic.merge(function.model, function.gate, calls)
    with pytest.raises(PyTritonClientQueueTimeoutError, match="Request timeout expired"):
        hasty.result()
    assert [answer.result()[0, 0] for answer in (first, patient)] == [0, 4]
    assert function.seen == [0, 2]


def test_full_queue_is_an_error_that_retries_wait_out(gated, url, recorded, pending):
    function = gated(default_queue_policy=QueuePolicy(max_queue_size=1))
    model = function.model
    to_relay, between = recorded
    with ThreadPoolExecutor(3) as pool:
        try:
            answers = [pool.submit(infer, url, model, filled(0))]
            function.wait_called()
            answers.append(pool.submit(infer, url, model, filled(1)))
            wait_for(lambda: pending(model) == 1, "the queue to be full")
            with pytest.raises(PyTritonClientServerUnavailableError, match="maximum queue size"):
                infer(url, model, filled(8))
            retried = filled(1234.5)
            answers.append(pool.submit(infer, to_relay, model, retried, retries=MANY))
            wait_for(lambda: between.to_server.count(retried.tobytes()) >= 2, "the request to be sent again")
        finally:
            function.gate.open()
        assert [answer.result()[0, 0] for answer in answers] == [0, 2, 2469]


def test_model_that_is_not_loaded_is_an_error_that_retries_wait_out(bind, url):
    model = bind(lambda requests: [{"y": request["x"]} for request in requests])
    with ModelClient(url, model) as client, ModelClient(url, model) as control, ThreadPoolExecutor(1) as pool:
        client.infer_batch(filled(1))
        control.unload_model()
        with pytest.raises(PyTritonClientServerUnavailableError, match="no available versions"):
            client.infer_batch(filled(1))
        answer = pool.submit(client.with_options(retries=MANY).infer_batch, filled(2))
        control.load_model()
        assert_same(answer.result()["y"], filled(2))


def test_errors_of_the_model_are_not_tried_again(bind, url):
    calls = []

    def fail(requests):
        calls.append(1)
        raise ValueError("as always")

    with pytest.raises(PyTritonClientInferenceServerError, match="as always"):
        infer(url, bind(fail), filled(1), retries=MANY)
    assert len(calls) == 1


@pytest.fixture(scope="module")
def echo(bind):
    """A model with numbers and bytes."""

    @batch
    def echo(x, t):
        return {"y": x, "u": t}

    inputs, outputs = (
        [Tensor(name=name, shape=(-1,), dtype=dtype) for name, dtype in zip(names, (np.float32, bytes), strict=True)]
        for names in ("xt", "yu")
    )
    return bind(echo, inputs, outputs, max_batch_size=4)


@pytest.mark.parametrize("rows", [4, 5, 11])
def test_large_batch_is_answered_in_parts(echo, url, rows):
    x, t = values(np.float32, (rows, 3)), strings((rows, 2))
    with ModelClient(url, echo) as client:
        answer = client.with_options(split_batches=True).infer_batch(x=x, t=t)
        assert_same(answer["y"], x)
        assert_same(answer["u"], t)
        if rows > 4:
            with pytest.raises(PyTritonClientInputError, match="split_batches"):
                client.infer_batch(x=x, t=t)


def test_error_in_a_part_names_its_rows(bind, url):
    def infer_func(requests):
        if any((request["x"] == 6).any() for request in requests):
            raise ValueError("six")
        return [{"y": request["x"]} for request in requests]

    x = np.arange(10, dtype=np.float32).reshape(10, 1)
    with pytest.raises(PyTritonClientInferenceServerError, match=r"rows 4 to 7 of the split batch of 10 .*six"):
        infer(url, bind(infer_func, max_batch_size=4), x, split_batches=True)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_and_responses_say_the_same_with_less(echo, recorded, algorithm):
    url, between = recorded
    x, t = np.tile(values(np.float32, (1, 100)), (4, 1000)), np.array([[b"text"] * 1000] * 4, dtype=object)
    with ModelClient(url, echo) as client:
        answer = client.with_options(compression=algorithm).infer_batch(x, t)
        assert_same(answer["y"], x)
        assert_same(answer["u"], t)
        assert len(between.to_server) < x.nbytes / 10
        if url.startswith("http"):  # over gRPC, the server's configuration decides about responses
            assert len(between.to_client) < x.nbytes / 10
        client.infer_batch(x, t)
        assert min(len(between.to_server), len(between.to_client)) > x.nbytes


def test_request_id_travels_and_comes_back(echo, recorded):
    url, between = recorded
    x, t = filled(1), strings((1, 1))
    with ModelClient(url, echo) as client:
        client.with_options(request_id="turtle-17").infer_batch(x, t)
    assert b"turtle-17" in between.to_server
    assert b"turtle-17" in between.to_client
