"""How streams to clients of decoupled models end: stopped, timed out, closed, or with their server."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import pytest

from pytriton.client import AsyncioDecoupledModelClient, DecoupledModelClient
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientTimeoutError,
)
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig
from pytriton.triton import Triton
from tests.server.counting import collect, of
from tests.server.own_server import TENSORS, address, server_of
from tests.server.processes import DEADLINE_S, wait_for

STOPPED_STREAMS = 100  # of each client


class Endless:
    """A generator that waits for :attr:`go_on` before each response but the first two."""

    def __init__(self):
        self.closed = threading.Semaphore(0)
        self.go_on = threading.Event()

    @batch
    def __call__(self, x):
        try:
            for number in range(1_000_000):
                yield [x * 0 + number]
                if number >= 1:
                    self.go_on.wait(0.02)
        finally:
            self.closed.release()


@pytest.fixture
def endless(bind):
    function = Endless()
    yield function, bind(function, decoupled=True, max_batch_size=8)
    function.go_on.set()


@pytest.mark.parametrize("stop", ["close", "with", "break", "drop"])
def test_stopping_early_closes_the_callables_generator_and_frees_the_client(grpc_url, endless, stop):
    function, model = endless
    with DecoupledModelClient(grpc_url, model) as client:
        for _ in range(2):
            responses = client.infer_batch(of(1))
            assert next(responses)["y"].tolist() == [[0, 0]]
            if stop == "close":
                responses.close()
                responses.close()
                assert list(responses) == []
            elif stop == "with":
                with responses:
                    pass
            elif stop == "break":
                for _ in responses:
                    break
                del responses
            else:
                del responses
                gc.collect()
            assert function.closed.acquire(timeout=DEADLINE_S)


def test_an_iterator_that_was_never_started_leaves_the_client_free_when_it_is_dropped(grpc_url, counter):
    with DecoupledModelClient(grpc_url, counter) as client:
        client.infer_batch(of(3))
        assert len(list(client.infer_batch(of(3)))) == 3


def test_stopping_an_asynchronous_iteration_closes_the_callables_generator(grpc_url, endless):
    function, model = endless

    async def run():
        async with AsyncioDecoupledModelClient(grpc_url, model) as client:
            async with aclosing(client.infer_batch(of(1))) as responses:
                async for _ in responses:
                    break
            assert await asyncio.to_thread(function.closed.acquire, timeout=DEADLINE_S)
            await anext(client.infer_batch(of(1)))  # and nobody refers to it any more
            assert await asyncio.to_thread(function.closed.acquire, timeout=DEADLINE_S)
            begun = asyncio.Event()
            streaming = asyncio.ensure_future(drain(client.infer_batch(of(1)), begun))
            await begun.wait()
            streaming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await streaming
            assert await asyncio.to_thread(function.closed.acquire, timeout=DEADLINE_S)

    asyncio.run(run())


async def drain(responses, begun):
    async for _ in responses:
        begun.set()


def test_a_response_that_does_not_come_in_time_is_a_timeout_and_the_client_goes_on(grpc_url, bind):
    release = threading.Event()

    @batch
    def function(x):
        yield [x]
        if x[0, 0]:
            release.wait(DEADLINE_S)

    model = bind(function, decoupled=True)
    with DecoupledModelClient(grpc_url, model) as client:
        responses = client.with_options(inference_timeout_s=3).infer_batch(of(1))
        next(responses)
        with pytest.raises(PyTritonClientTimeoutError, match=r"within 3 s"):
            next(responses)
        assert list(responses) == []
        release.set()
        assert len(list(client.infer_batch(of(0)))) == 1
        release.clear()
        with pytest.raises(PyTritonClientTimeoutError, match=r"within 0\.2 s"):
            list(client.with_options(inference_timeout_s=0.2).infer_batch(of(1)))
        with pytest.raises(PyTritonClientTimeoutError, match=r"within 0\.3 s"):
            collect(grpc_url, model, of(1), inference_timeout_s=0.3)
        release.set()
        assert len(list(client.infer_batch(of(0)))) == 1


def test_closing_a_client_in_mid_stream_says_so_and_closes_the_generator(grpc_url, endless):
    function, model = endless
    client = DecoupledModelClient(grpc_url, model)
    responses = client.infer_batch(of(1))
    next(responses)
    client.close()
    client.close()
    with pytest.raises(PyTritonClientClosedError):
        next(responses)
    assert function.closed.acquire(timeout=DEADLINE_S)
    with pytest.raises(PyTritonClientClosedError):
        client.infer_batch(of(1))


def test_a_client_can_be_closed_from_another_thread_while_it_waits(grpc_url, bind):
    release = threading.Event()

    @batch
    def function(x):
        yield [x]
        release.wait(DEADLINE_S)

    model = bind(function, decoupled=True)
    client = DecoupledModelClient(grpc_url, model)
    responses = client.infer_batch(of(1))
    next(responses)
    timer = threading.Timer(0.1, client.close)
    timer.start()
    try:
        with pytest.raises(PyTritonClientClosedError):
            next(responses)
    finally:
        timer.join()
    release.set()


@batch
async def unhurried(x):
    """As many responses as the first number of ``x`` says, and slow from the fifth on."""
    for number in range(int(x[0, 0])):
        await asyncio.sleep(0.02 if number > 3 else 0)
        yield {"y": x * 0 + number}


@pytest.mark.parametrize("edge", ["edge", "triton"])
def test_a_server_outlives_many_streams_that_are_stopped_while_their_responses_come(free_config, edge):
    # They are stopped long before they end by themselves: the server's own endpoint has a weakness where both happen at
    # once.
    free_config.grpc_frontend = edge
    with Triton(config=free_config) as triton:
        triton.bind("slow", unhurried, *TENSORS, config=ModelConfig(decoupled=True, max_batch_size=1))
        url, server = address(free_config, "grpc"), server_of(free_config)

        def stop_streams():
            with DecoupledModelClient(url, "slow", inference_timeout_s=90) as client:
                for number in range(STOPPED_STREAMS):
                    with client.infer_batch(of(1000)) as responses:
                        for _ in range(1 + number % 3):
                            next(responses)
                return len(list(client.infer_batch(of(20))))

        with ThreadPoolExecutor(4) as threads:
            ended = [threads.submit(stop_streams) for _ in range(4)]
            assert [each.result() for each in ended] == [20] * 4
        assert server_of(free_config) == server


def test_a_server_that_ends_in_mid_stream_is_a_connection_error(free_config):
    function = Endless()
    with Triton(config=free_config) as triton:
        triton.bind("endless", function, *TENSORS, config=ModelConfig(decoupled=True))
        client = DecoupledModelClient(address(free_config, "grpc"), "endless")
        responses = client.infer_batch(of(1))
        next(responses)
        function.go_on.set()
        os.kill(server_of(free_config), signal.SIGKILL)
        with pytest.raises(PyTritonClientConnectionError):
            for _ in responses:
                pass
        client.close()
    assert function.closed.acquire(timeout=DEADLINE_S)


def test_a_server_that_was_restarted_between_two_requests_answers_the_second(free_config):
    @batch
    def count_to_two(x):
        yield [x]
        yield [x * 2]

    with DecoupledModelClient(address(free_config, "grpc"), "model") as client:
        for _ in range(2):
            with Triton(config=free_config) as triton:
                triton.bind("model", count_to_two, *TENSORS, config=ModelConfig(decoupled=True))
                client.wait_for_model(DEADLINE_S)
                assert [response["y"].tolist() for response in client.infer_batch(of(1))] == [[[1, 1]], [[2, 2]]]


def test_clients_leave_no_thread_and_no_socket_behind(grpc_url, counter):
    def once():
        with DecoupledModelClient(grpc_url, counter) as client:
            assert len(list(client.infer_batch(of(2)))) == 2
            next(client.infer_batch(of(10_000)))  # stopped before it ends by itself, where the server has a weakness

    once()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        once()
    wait_for(lambda: threading.active_count() <= threads, "the clients' threads to end")
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "the clients' sockets to be closed")
