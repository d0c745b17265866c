"""Clients that go away while a callable works for them, and how the callable learns of it."""

import asyncio
import socket
import threading
import time
from contextlib import closing

import pytest
import tritonclient.grpc

from pytriton.decorators import batch, with_requests
from pytriton.model_config import DynamicBatcher
from tests.server.arrays import filled
from tests.server.conftest import LOCALHOST
from tests.server.processes import DEADLINE_S, wait_for


class Patient:
    """Waits in its callables until the first request of its batch is cancelled.

    Attributes:
        requests: That it was called with.
        entered: Set while it waits.
        left: Whether each request was cancelled then; None before.
    """

    def __init__(self):
        self.requests = []
        self.entered = threading.Event()
        self.left = None

    def _enter(self, requests):
        self.requests = list(requests)
        self.entered.set()

    def _leave(self):
        self.left = [request.is_cancelled() for request in self.requests]

    def plain(self, requests):
        self._enter(requests)
        wait_for(requests[0].is_cancelled, "the request to be cancelled")
        self._leave()
        return [{"y": request["x"]} for request in requests]

    @with_requests
    @batch
    def batched(self, x, requests):
        self.plain(requests)
        return {"y": x}

    def in_another_thread(self, requests):
        thread = threading.Thread(target=self.plain, args=[requests])
        thread.start()
        thread.join()
        return [{"y": request["x"]} for request in requests]

    def generator(self, requests):
        yield [{"y": request["x"]} for request in requests]
        self.plain(requests)

    def endless(self, requests):
        self._enter(requests)
        try:
            while not requests[0].is_cancelled():
                yield [{"y": request["x"]} for request in requests]
                time.sleep(0.01)
        finally:  # a generator whose requests are all cancelled is closed, maybe before it asks
            self._leave()

    async def async_endless(self, requests):
        self._enter(requests)
        try:
            while not requests[0].is_cancelled():
                yield [{"y": request["x"]} for request in requests]
                await asyncio.sleep(0.01)
        finally:
            self._leave()

    async def coroutine(self, requests):
        self._enter(requests)
        try:
            await requests[0].wait_cancelled()
        finally:
            self._leave()
        return [{"y": request["x"]} for request in requests]

    async def blocking_coroutine(self, requests):
        return self.plain(requests)

    async def async_generator(self, requests):
        yield [{"y": request["x"]} for request in requests]
        await self.coroutine(requests)


COUPLED = ["plain", "batched", "in_another_thread", "coroutine", "blocking_coroutine"]
DECOUPLED = ["plain", "batched", "generator", "coroutine", "async_generator"]


@pytest.fixture
def grpc_client(triton_config):
    with tritonclient.grpc.InferenceServerClient(f"{LOCALHOST}:{triton_config.grpc_port}") as client:
        yield client


def tensors(value):
    tensor = tritonclient.grpc.InferInput("x", [1, 1], "FP32")
    tensor.set_data_from_numpy(filled(value, 1, 1))
    return [tensor]


def start(client, model, value=0):
    """Start a request, and return what cancels it."""
    return client.async_infer(model, tensors(value), callback=lambda result, error: None)


@pytest.mark.parametrize("form", COUPLED)
def test_a_callable_sees_that_its_client_has_cancelled(bind, grpc_client, form):
    patient = Patient()
    call = start(grpc_client, bind(getattr(patient, form)))
    assert patient.entered.wait(DEADLINE_S)
    assert not patient.requests[0].is_cancelled()
    call.cancel()
    wait_for(lambda: patient.left == [True], "the callable to notice")


@pytest.mark.parametrize("form", DECOUPLED)
def test_a_callable_of_a_decoupled_model_sees_that_its_stream_was_cancelled(bind, grpc_client, form):
    patient = Patient()
    model = bind(getattr(patient, form), decoupled=True)
    grpc_client.start_stream(callback=lambda result, error: None)
    grpc_client.async_stream_infer(model, tensors(0))
    assert patient.entered.wait(DEADLINE_S)
    assert not patient.requests[0].is_cancelled()
    grpc_client.stop_stream(cancel_requests=True)
    wait_for(lambda: patient.left == [True], "the callable to notice")


@pytest.mark.parametrize("form", ["endless", "async_endless"])
def test_a_generator_sees_that_an_http_connection_was_closed_to_which_it_sends(bind, triton_config, form):
    patient = Patient()
    model = bind(getattr(patient, form), decoupled=True, batching=False)
    with closing(socket.create_connection((LOCALHOST, triton_config.http_port))) as connection:
        body = b'{"x":[1]}'
        head = f"POST /v2/models/{model}/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert patient.entered.wait(DEADLINE_S)
        assert not patient.requests[0].is_cancelled()
    wait_for(lambda: patient.left == [True], "the callable to notice")


@pytest.mark.parametrize("form", ["plain", "coroutine"])
def test_others_of_a_merged_batch_are_not_cancelled_and_get_their_answers(bind, grpc_client, form):
    patient, answers = Patient(), {}
    two = DynamicBatcher(preferred_batch_size=[2], max_queue_delay_microseconds=60_000_000)
    model = bind(getattr(patient, form), max_batch_size=2, batcher=two)
    calls = [
        grpc_client.async_infer(
            model, tensors(value), callback=lambda result, error, value=value: answers.update({value: result})
        )
        for value in range(2)
    ]
    assert patient.entered.wait(DEADLINE_S)
    first, other = (int(request["x"][0, 0]) for request in patient.requests)  # as they came to the server
    calls[first].cancel()
    wait_for(lambda: answers.get(other) is not None, "the other one's answer")
    assert answers[other].as_numpy("y")[0, 0] == other
    assert patient.left == [True, False]


def test_asking_after_the_answer_repeats_the_last_one_and_disturbs_nothing(bind, traffic):
    kept = []

    def keep(requests):
        kept.extend(requests)
        return [{"y": request["x"]} for request in requests]

    model = bind(keep)
    for value in range(3):
        assert traffic.infer(model, filled(value))["y"][0, 0] == value
        assert not any(request.is_cancelled() for request in kept)
