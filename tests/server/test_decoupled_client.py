"""What decoupled models stream to their clients, against the real server."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from pytriton.client import AsyncioDecoupledModelClient, AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientValueError,
)
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from tests.server.counting import collect, of
from tests.server.own_server import TENSORS
from tests.server.processes import DEADLINE_S
from tests.unit.generators import as_async, count_up_async


@pytest.fixture(scope="module")
def async_counter(bind):
    return bind(count_up_async, decoupled=True, max_batch_size=8, batcher=None)


@pytest.mark.parametrize("count", [0, 1, 500])
@pytest.mark.parametrize("model", ["counter", "async_counter"])
def test_all_responses_come_in_order(grpc_url, request, model, count):
    model = request.getfixturevalue(model)
    expected = [[[number] * 2] * 3 for number in range(count)]
    with DecoupledModelClient(grpc_url, model) as client:
        for _ in range(2):
            assert [response["y"].tolist() for response in client.infer_batch(of(count, rows=3))] == expected
    assert [y.tolist() for y in collect(grpc_url, model, of(count, rows=3))] == expected


def test_samples_have_no_batch_axis(grpc_url, counter):
    with DecoupledModelClient(grpc_url, counter) as client:
        assert [response["y"].shape for response in client.infer_sample(of(2)[0])] == [(2,)] * 2

    async def run():
        async with AsyncioDecoupledModelClient(grpc_url, counter) as client:
            return [response["y"].shape async for response in client.infer_sample(x=of(2)[0])]

    assert asyncio.run(run()) == [(2,)] * 2


def test_responses_of_a_stream_may_have_some_of_the_outputs_each_but_not_none(grpc_url, bind):
    def words_then_total(requests):
        yield [{"word": request["x"]} for request in requests]
        yield [{"total": request["x"] * 2} for request in requests]
        yield [{"undeclared": request["x"]} for request in requests]

    outputs = [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("word", "total")]
    model = bind(words_then_total, outputs=outputs, decoupled=True)
    with DecoupledModelClient(grpc_url, model) as client:
        responses = client.infer_batch(of(1))
        assert [next(responses).keys(), next(responses).keys()] == [{"word"}, {"total"}]
        with pytest.raises(PyTritonClientInferenceServerError, match="but not 'word', 'total'"):
            next(responses)


@pytest.mark.parametrize("model", ["counter", "async_counter"])
def test_many_streams_at_once_on_one_model_keep_their_responses_apart(grpc_url, request, model):
    model = request.getfixturevalue(model)

    async def one(client, count):
        return [float(response["y"][0, 1]) async for response in client.infer_batch(of(count))]

    async def run():
        async with AsyncioDecoupledModelClient(grpc_url, model) as client:
            return await asyncio.gather(*(one(client, count) for count in range(40, 80)))

    assert asyncio.run(run()) == [list(map(float, range(count))) for count in range(40, 80)]


def test_clients_in_many_threads_stream_at_once(grpc_url, counter):
    results = {}

    def work(count):
        with DecoupledModelClient(grpc_url, counter) as client:
            results[count] = len(list(client.infer_batch(of(count))))

    threads = [threading.Thread(target=work, args=(count,)) for count in range(20, 36)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert results == {count: count for count in range(20, 36)}


def test_a_second_request_before_the_end_of_the_first_is_refused(grpc_url, counter):
    with DecoupledModelClient(grpc_url, counter) as client:
        first = client.infer_batch(of(3))
        with pytest.raises(PyTritonClientInferenceServerError, match="have not all been received"):
            client.infer_batch(of(3))
        assert len(list(first)) == 3
        assert len(list(client.infer_batch(of(2)))) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_in_mid_stream_comes_after_the_responses_before_it(grpc_url, bind, is_async):
    def function(requests):
        for number in range(3):
            yield [{"y": request["x"] * 0 + number} for request in requests]
        raise ValueError("no more")

    model = bind(as_async(function) if is_async else function, decoupled=True)
    with DecoupledModelClient(grpc_url, model) as client:
        for _ in range(2):
            responses = client.infer_batch(of(1))
            assert [next(responses)["y"][0, 0] for _ in range(3)] == [0, 1, 2]
            with pytest.raises(PyTritonClientInferenceServerError, match="ValueError: no more"):
                next(responses)
            assert list(responses) == []

    async def run():
        async with AsyncioDecoupledModelClient(grpc_url, model) as client:
            async for response in client.infer_batch(of(1)):
                seen.append(float(response["y"][0, 0]))

    seen: list[float] = []
    with pytest.raises(PyTritonClientInferenceServerError, match="ValueError: no more"):
        asyncio.run(run())
    assert seen == [0, 1, 2]


def test_parameters_version_and_headers_reach_the_callable(grpc_url, triton, bind):
    def function(requests):
        for request in requests:
            seen.append(request.parameters)
        yield [{"y": request["x"]} for request in requests]

    seen: list[dict] = []
    model = bind(function, decoupled=True)

    def second(requests):
        yield [{"y": request["x"] + 1} for request in requests]

    triton.bind(model, second, *TENSORS, model_version=2, config=ModelConfig(decoupled=True))
    with DecoupledModelClient(grpc_url, model, "1") as client:
        responses = client.infer_batch(of(1), parameters={"a": 1, "b": "two", "c": True}, headers={"x-user": "me"})
        assert [response["y"][0, 0] for response in responses] == [1]
        assert len(list(client.infer_batch(of(1), headers={"x-user": "you"}))) == 1
    with DecoupledModelClient(grpc_url, model) as client:
        assert [response["y"][0, 0] for response in client.infer_batch(of(1))] == [2]

    async def run():
        async with AsyncioDecoupledModelClient(grpc_url, model, "1") as client:
            options = {"parameters": {"a": 2}, "headers": {"X-User": "she"}}
            return [float(response["y"][0, 0]) async for response in client.infer_batch(of(1), **options)]

    assert asyncio.run(run()) == [1]
    assert seen == [
        {"a": 1, "b": "two", "c": True, "x-user": "me"},
        {"x-user": "you"},
        {"a": 2, "x-user": "she"},
    ]


@pytest.mark.parametrize("client_class", [DecoupledModelClient, AsyncioDecoupledModelClient])
def test_decoupled_clients_need_grpc(client_class):
    with pytest.raises(PyTritonClientValueError, match="called over gRPC"):
        client_class("http://localhost:8000", "m")


def test_a_coupled_model_is_refused_and_leaves_the_client_usable(grpc_url, bind):
    model = bind(lambda requests: [{"y": request["x"]} for request in requests])
    with DecoupledModelClient(grpc_url, model) as client:
        for _ in range(2):
            with pytest.raises(PyTritonClientInferenceServerError, match="is not decoupled"):
                client.infer_batch(of(1))
    with pytest.raises(PyTritonClientInferenceServerError, match="is not decoupled"):
        collect(grpc_url, model, of(1))


def test_clients_of_single_answers_refuse_a_decoupled_model(url, counter):
    with (
        ModelClient(url, counter) as client,
        pytest.raises(PyTritonClientInferenceServerError, match="use DecoupledModelClient"),
    ):
        client.infer_batch(of(1))

    async def run():
        async with AsyncioModelClient(url, counter) as client:
            await client.infer_batch(of(1))

    with pytest.raises(PyTritonClientInferenceServerError, match="AsyncioDecoupledModelClient"):
        asyncio.run(run())


def test_wrong_inputs_are_refused_at_the_call_and_leave_the_client_usable(grpc_url, counter):
    with DecoupledModelClient(grpc_url, counter) as client:
        with pytest.raises(PyTritonClientInputError):
            client.infer_batch(of(1).astype(np.float64))
        with pytest.raises(PyTritonClientValueError):
            client.infer_batch(of(1), x=of(1))
        assert len(list(client.infer_batch(of(2)))) == 2


def test_a_model_without_batching_streams_samples(grpc_url, bind):
    def function(requests):
        for number in range(3):
            yield [{"y": requests[0]["x"] + number}]

    model = bind(function, decoupled=True, batching=False)
    with DecoupledModelClient(grpc_url, model) as client:
        assert [response["y"].tolist() for response in client.infer_sample(of(1)[0])] == [[1, 1], [2, 2], [3, 3]]
        with pytest.raises(PyTritonClientModelDoesntSupportBatchingError):
            client.infer_batch(of(1))


def test_merged_requests_each_get_their_rows_of_each_response(grpc_url, bind):
    sizes = []

    @batch
    def function(x):
        sizes.append(len(x))
        for number in range(3):
            yield [x + number]

    all_of_them = DynamicBatcher(preferred_batch_size=[4], max_queue_delay_microseconds=60_000_000)
    model = bind(function, decoupled=True, max_batch_size=4, batcher=all_of_them)

    async def one(client, value):
        return [float(response["y"][0, 0]) async for response in client.infer_batch(of(value))]

    async def run():
        async with AsyncioDecoupledModelClient(grpc_url, model) as client:
            return await asyncio.gather(*(one(client, value) for value in (10, 20, 30, 40)))

    assert asyncio.run(run()) == [[value, value + 1, value + 2] for value in (10.0, 20.0, 30.0, 40.0)]
    assert sizes == [4]


def test_large_responses_arrive_unharmed(grpc_url, bind):
    @batch
    def function(x):
        for number in range(30):
            yield [np.repeat(x[:, :1] + number, 250_000, axis=1)]

    model = bind(function, decoupled=True)
    with DecoupledModelClient(grpc_url, model) as client:
        for number, response in enumerate(client.infer_batch(of(5))):
            assert response["y"].shape == (1, 250_000)
            assert (response["y"] == 5 + number).all()
        assert number == 29


def test_strings_can_be_streamed(grpc_url, bind):
    @batch
    def function(text):
        for word in text[0, 0].split():
            yield {"word": np.full((len(text), 1), word, object)}

    strings = [Tensor(name="text", shape=(1,), dtype=bytes)], [Tensor(name="word", shape=(1,), dtype=bytes)]
    model = bind(function, *strings, decoupled=True)
    with DecoupledModelClient(grpc_url, model) as client:
        words = [response["word"][0] for response in client.infer_sample(np.array([b"to be or not"], object))]
    assert words == [b"to", b"be", b"or", b"not"]


def test_a_client_made_from_another_one_streams_too(grpc_url, counter):
    with DecoupledModelClient(grpc_url, counter, inference_timeout_s=30) as first:
        list(first.infer_batch(of(1)))
        with DecoupledModelClient.from_existing_client(first) as second:
            assert len(list(second.infer_batch(of(4)))) == 4

        async def run():
            async with AsyncioDecoupledModelClient.from_existing_client(first) as client:
                return [response async for response in client.infer_batch(of(4))]

        assert len(asyncio.run(run())) == 4
