"""Clients of models of a server in their process: the same checks, answers and errors as over a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientModelUnavailableError,
    PyTritonClientQueueFullError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
)
from pytriton.decorators import batch
from pytriton.inprocess import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
    Server,
)
from tests.server.gated import Gated
from tests.server.inprocess_models import STRINGS, Models, inprocess_models, row
from tests.server.processes import DEADLINE_S
from tests.server.proxies import native_part_only
from tests.unit.children import in_child
from tests.unit.generators import Endless, count_up

pytestmark = [pytest.mark.either_proxy, native_part_only]


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    with inprocess_models() as models:
        yield models


@pytest.fixture(scope="module")
def doubler(models: Models) -> str:
    return models.bind(batch(lambda x: {"y": 2 * x}), max_batch_size=4)


@pytest.fixture(scope="module")
def counter(models: Models) -> str:
    return models.bind(count_up, decoupled=True, max_batch_size=4)


def test_a_client_infers_samples_and_batches(models: Models, doubler: str):
    with models.triton.client(doubler) as client:
        answer = client.infer_sample(row(3)[0])
        assert answer["y"].tolist() == [6, 6]
        assert not answer["y"].flags.writeable
        assert client.infer_batch(x=row(3))["y"].tolist() == [[6, 6]]
        assert client.is_batching_supported
        assert client.model_config.model_name == doubler
        twenty = np.arange(20, dtype=np.float32)[:, np.newaxis]
        split = client.with_options(split_batches=True)
        assert split.infer_batch(twenty)["y"].tolist() == (2 * twenty).tolist()


def test_ids_of_any_length_leave_the_answers_alone(models: Models, doubler: str):
    ids = ["a", "b", "", "ab", "x" * 100, "\N{SNOWMAN}"]

    async def infer() -> None:
        async with AsyncioModelClient(models.triton.server, doubler) as client:
            for number, each in enumerate(ids * 2):
                answer = await client.with_options(request_id=each or None).infer_sample(row(number)[0])
                assert answer["y"].tolist() == [2 * number] * 2

    asyncio.run(infer())
    with ModelClient(models.triton.server, doubler) as client:
        for number, each in enumerate(ids * 2):
            batch = np.concatenate([row(number)] * (1 + number % 3))
            answer = client.with_options(request_id=each or None).infer_batch(batch)
            assert answer["y"].tolist() == [[2 * number] * 2] * len(batch)


def test_strings_are_bytes(models: Models):
    name = models.bind(batch(lambda x: {"y": x}), STRINGS, max_batch_size=4)
    with models.triton.client(name) as client:
        assert client.infer_sample(np.array([b"a\0", b""], object))["y"].tolist() == [b"a\0", b""]


def test_what_a_client_says_beside_its_inputs_reaches_the_callable(models: Models):
    seen = []

    def infer(requests: Any) -> Any:
        seen.extend((request.request_id, request.parameters) for request in requests)
        return [{"y": request["x"]} for request in requests]

    with models.triton.client(models.bind(infer, max_batch_size=4)) as client:
        client.with_options(request_id="mine").infer_sample(row(1)[0], parameters={"a": 1, "b": "text", "c": True})
    assert seen == [("mine", {"a": 1, "b": "text", "c": True})]


def test_what_does_not_fit_the_model_is_refused_before_it_is_sent(models: Models, doubler: str, counter: str):
    with models.triton.client(doubler) as client, models.triton.client(counter) as wrong:
        with pytest.raises(PyTritonClientInputError, match="has dtype float64"):
            client.infer_sample(np.ones(2))
        with pytest.raises(PyTritonClientInputError, match="has 5 rows"):
            client.infer_batch(np.ones((5, 2), np.float32))
        with pytest.raises(PyTritonClientInferenceServerError, match="is decoupled"):
            wrong.infer_sample(row(1)[0])


def test_errors_are_those_of_clients_over_a_network(models: Models):
    def infer(requests: Any) -> Any:
        raise ValueError("on purpose")

    name = models.bind(infer, max_batch_size=4)
    with models.triton.client(name) as client:
        with pytest.raises(PyTritonClientInferenceServerError, match="ValueError: on purpose"):
            client.infer_sample(row(1)[0])
        models.triton.unbind(name)
        with pytest.raises(PyTritonClientServerUnavailableError):
            client.infer_sample(row(1)[0])
    with pytest.raises(PyTritonClientClosedError):
        client.infer_sample(row(1)[0])
    with pytest.raises(PyTritonClientModelUnavailableError, match="'nothing'"):
        ModelClient(models.triton.server, "nothing", lazy_init=False, init_timeout_s=2.5)


def test_a_server_that_does_not_run_cannot_be_reached(doubler: str):
    with (
        ModelClient(Server(model_repository="/"), doubler, init_timeout_s=0.1) as client,
        pytest.raises(PyTritonClientTimeoutError, match="not started"),
    ):
        client.infer_sample(row(1)[0])


def test_a_client_in_a_forked_child_says_at_once_that_the_server_is_the_parents(models: Models, doubler: str):
    def call() -> str:
        with ModelClient(models.triton.server, doubler) as client, pytest.raises(PyTritonClientClosedError) as caught:
            client.infer_batch(row(1))
        return str(caught.value)

    assert "was forked from process" in in_child(call)


def test_a_call_that_takes_too_long_is_cancelled(models: Models):
    gated = Gated()
    with models.triton.client(models.bind(gated, max_batch_size=1)) as client:
        client.wait_for_model(DEADLINE_S)
        hurried = client.with_options(inference_timeout_s=0.05)
        with pytest.raises(PyTritonClientTimeoutError, match=r"within 0\.05 s"):
            hurried.infer_sample(row(1)[0])
        gated.gate.open()
        assert client.infer_sample(row(2)[0])["y"].tolist() == [4, 4]


def test_calls_may_return_futures(models: Models, doubler: str):
    with FuturesModelClient(models.triton.server, doubler, max_workers=8) as client:
        assert client.model_config().result(DEADLINE_S).model_name == doubler
        futures = [client.infer_sample(row(number)[0]) for number in range(100)]
        assert [future.result(DEADLINE_S)["y"][0] for future in futures] == [2 * number for number in range(100)]
        with pytest.raises(PyTritonClientInputError, match="has dtype float64"):
            client.infer_sample(np.ones(2)).result(DEADLINE_S)
    with pytest.raises(PyTritonClientClosedError):
        client.infer_sample(row(1)[0])


def test_a_futures_client_sends_as_many_at_once_as_it_may(models: Models):
    gated = Gated()
    name = models.bind(gated, max_batch_size=1)
    with FuturesModelClient(models.triton.server, name, max_workers=1, max_queue_size=1, non_blocking=True) as client:
        first = client.infer_sample(row(1)[0])
        gated.wait_called()
        waiting = client.infer_sample(row(2)[0])
        with pytest.raises(PyTritonClientQueueFullError):
            client.infer_sample(row(3)[0])
        assert waiting.cancel()
        with FuturesModelClient.from_existing_client(client) as other:
            later = [other.infer_sample(row(number)[0]) for number in (4, 5)]
            with pytest.raises(PyTritonClientQueueFullError):
                other.infer_sample(row(6)[0])
            gated.gate.open()
            assert [future.result(DEADLINE_S)["y"][0] for future in (first, *later)] == [2, 8, 10]
    assert gated.seen == [1, 4, 5]


def test_a_model_is_unloaded_and_loaded_by_a_client(models: Models, doubler: str):
    with models.triton.client(doubler) as client:
        client.load_model()
        assert client.infer_sample(row(1)[0])["y"].tolist() == [2, 2]


def test_responses_of_a_stream_come_one_by_one(models: Models, counter: str, doubler: str):
    with DecoupledModelClient(models.triton.server, counter) as client:
        assert [answer["y"][0] for answer in client.infer_sample(row(3)[0])] == [0, 1, 2]
        assert [*client.infer_batch(row(0))] == []
        endless = client.infer_batch(row(1e6))
        assert next(endless)["y"].tolist() == [[0, 0]]
        with pytest.raises(PyTritonClientInferenceServerError, match="earlier request"):
            client.infer_batch(row(1))
        endless.close()
        assert len([*client.infer_batch(row(2))]) == 2
        last = client.infer_batch(row(1e6))
        next(last)
    with pytest.raises(PyTritonClientClosedError):
        for _ in last:
            pass
    with (
        DecoupledModelClient(models.triton.server, doubler) as wrong,
        pytest.raises(PyTritonClientInferenceServerError, match="is not decoupled"),
    ):
        wrong.infer_sample(row(1)[0])


def test_a_stream_that_is_left_is_closed_in_the_callable(models: Models):
    endless = Endless()
    name = models.bind(endless, decoupled=True, max_batch_size=4)
    with DecoupledModelClient(models.triton.server, name) as client:
        for _ in client.infer_sample(row(1)[0]):
            break
        assert endless.closed.wait(DEADLINE_S)


def test_coroutines_call_at_the_same_time(models: Models, doubler: str, counter: str):
    async def main() -> None:
        async with AsyncioModelClient(models.triton.server, doubler, lazy_init=False) as client:
            answers = await asyncio.gather(*(client.infer_sample(row(number)[0]) for number in range(50)))
            assert [answer["y"][0] for answer in answers] == [2 * number for number in range(50)]
            assert (await client.model_config).max_batch_size == 4
        with pytest.raises(PyTritonClientClosedError):
            await client.infer_sample(row(1)[0])
        async with AsyncioDecoupledModelClient(models.triton.server, counter) as client:
            assert [answer["y"][0] async for answer in client.infer_sample(row(3)[0])] == [0, 1, 2]
            async with aclosing(client.infer_sample(row(1e6)[0])) as endless:
                assert (await anext(endless))["y"].tolist() == [0, 0]

    asyncio.run(main())


def test_a_call_of_a_coroutine_that_takes_too_long_is_cancelled(models: Models):
    gated = Gated()
    name = models.bind(gated, max_batch_size=1)

    async def main() -> None:
        async with AsyncioModelClient(models.triton.server, name, inference_timeout_s=0.05) as client:
            with pytest.raises(PyTritonClientTimeoutError, match=r"within 0\.05 s"):
                await client.infer_sample(row(1)[0])

    asyncio.run(main())
    gated.gate.open()


def test_a_client_is_made_of_another_one(models: Models, doubler: str):
    with models.triton.client(doubler, inference_timeout_s=7) as client:
        client.wait_for_model(DEADLINE_S)
        splitting = client.with_options(split_batches=True)
        with ModelClient.from_existing_client(splitting) as other:
            assert len(other.infer_batch(np.ones((9, 2), np.float32))["y"]) == 9
