"""AsyncioModelClient on a real server: what runs at once, what it waits for and survives, and what it leaves behind."""

import asyncio
import os
import signal

import numpy as np
import pytest

from pytriton.client import AsyncioModelClient, ModelClient
from pytriton.client.asyncio_utils import (
    asyncio_get_model_config,
    asyncio_get_model_state,
    asyncio_wait_for_model_ready,
    asyncio_wait_for_model_status_loaded,
    asyncio_wait_for_server_ready,
)
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientModelUnavailableError,
    PyTritonClientTimeoutError,
)
from pytriton.client.utils import ModelState
from pytriton.model_config import Tensor
from tests.server.arrays import assert_same, filled, strings
from tests.server.gated import Gated
from tests.server.leftovers import nothing_left
from tests.server.own_server import address, double, server_of, serving
from tests.unit.loops import in_loop

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def model(bind):
    return bind(double, max_batch_size=8)


@in_loop
async def test_many_calls_at_once_get_their_own_answers(url, model):
    async with AsyncioModelClient(url, model) as client:
        answers = await asyncio.gather(*(client.infer_batch(filled(i)) for i in range(64)))
        for i, answer in enumerate(answers):
            assert_same(answer["y"], filled(2 * i))
        assert_same((await client.infer_sample(x=filled(3)[0]))["y"], filled(6)[0])


@in_loop
async def test_large_tensors_and_bytes_pass(url, bind):
    echo = bind(lambda requests: [{"y": request["x"]} for request in requests])
    texts = bind(
        lambda requests: [{"y": request["x"]} for request in requests],
        [Tensor(name="x", shape=(-1,), dtype=np.bytes_)],
        [Tensor(name="y", shape=(-1,), dtype=np.bytes_)],
    )
    large = np.random.default_rng(0).random((2, 2**20), np.float32)
    async with AsyncioModelClient(url, echo) as client, AsyncioModelClient(url, texts) as other:
        answers = await asyncio.gather(*(client.infer_batch(large) for _ in range(4)))
        for answer in answers:
            assert_same(answer["y"], large)
        words = strings((2, 8))
        assert_same((await other.infer_batch(words))["y"], words)


@in_loop
async def test_eager_client_knows_the_model_on_entering(url, model):
    async with AsyncioModelClient(url, model, lazy_init=False) as client:
        assert (await client.model_config).model_name == model
        assert await client.is_batching_supported is True
        await client.wait_for_server(10)
        await client.wait_for_model(10)
    with pytest.raises(PyTritonClientModelUnavailableError, match="'absent'"):
        async with AsyncioModelClient(url, "absent", lazy_init=False, init_timeout_s=2.5):
            pass


@in_loop
async def test_model_without_batching_takes_samples_alone(url, bind):
    async with AsyncioModelClient(url, bind(double, batching=False)) as client:
        assert await client.is_batching_supported is False
        assert_same((await client.infer_sample(filled(1)[0]))["y"], filled(2)[0])
        with pytest.raises(PyTritonClientModelDoesntSupportBatchingError, match="infer_sample"):
            await client.infer_batch(filled(1))


@in_loop
async def test_error_of_the_callable_fails_its_own_call_alone(url, bind):
    def picky(requests):
        return [ValueError("three!") if request["x"][0, 0] == 3 else {"y": request["x"]} for request in requests]

    async with AsyncioModelClient(url, bind(picky)) as client:
        answers = await asyncio.gather(*(client.infer_batch(filled(i)) for i in range(6)), return_exceptions=True)
    assert [i for i, answer in enumerate(answers) if isinstance(answer, BaseException)] == [3]
    assert isinstance(answers[3], PyTritonClientInferenceServerError)
    assert "three!" in str(answers[3])


@in_loop
async def test_cancelled_call_leaves_the_client_usable(url, gated):
    async with AsyncioModelClient(url, gated.model) as client:
        calls = [asyncio.create_task(client.infer_batch(filled(i))) for i in range(3)]
        await asyncio.to_thread(gated.wait_called)
        calls[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[1]
        gated.gate.open()
        for i in (0, 2):
            assert_same((await calls[i])["y"], filled(2 * i))
        assert_same((await client.infer_batch(filled(4)))["y"], filled(8))


@pytest.mark.parametrize("timeout_s", [0.1, 0.5])
@in_loop
async def test_timeouts_below_a_second_end_calls(url, gated, timeout_s):
    async with AsyncioModelClient(url, gated.model, inference_timeout_s=timeout_s) as client:
        await client.model_config
        for _ in range(3):
            with pytest.raises(PyTritonClientTimeoutError, match=f"within {timeout_s}"):
                await client.infer_batch(filled(1))  # the model does not answer before the gate opens
        gated.gate.open()
        assert_same((await client.with_options(inference_timeout_s=60).infer_batch(filled(2)))["y"], filled(4))


@in_loop
async def test_closing_ends_calls_under_way(url, gated):
    client = AsyncioModelClient(url, gated.model)
    calls = [asyncio.create_task(client.infer_batch(filled(i))) for i in range(3)]
    await asyncio.to_thread(gated.wait_called)
    await client.close()
    for call in calls:
        with pytest.raises(PyTritonClientClosedError):
            await call


@in_loop
async def test_client_waits_for_a_server_that_is_not_up_yet(free_config, protocol):
    async with AsyncioModelClient(address(free_config, protocol), "m") as client:
        with pytest.raises(PyTritonClientTimeoutError):
            await client.wait_for_server(0.2)
        calls = [asyncio.create_task(client.infer_batch(filled(i))) for i in range(3)]
        with await asyncio.to_thread(serving(free_config).__enter__) as triton:
            for i, call in enumerate(calls):
                assert_same((await call)["y"], filled(2 * i))
            await asyncio.to_thread(triton.stop)


@in_loop
async def test_client_survives_a_server_that_is_killed_in_the_middle_of_calls(free_config, protocol):
    gated = Gated()
    async with AsyncioModelClient(address(free_config, protocol), "m") as client:
        with serving(free_config, gated):
            calls = [asyncio.create_task(client.infer_batch(filled(i))) for i in range(3)]
            await asyncio.to_thread(gated.wait_called)
            os.kill(server_of(free_config), signal.SIGKILL)
            for call in calls:
                with pytest.raises(PyTritonClientConnectionError):
                    await call
            gated.gate.open()
        with pytest.raises(PyTritonClientConnectionError):
            await client.infer_batch(filled(1))
        with serving(free_config):
            assert_same((await client.infer_batch(filled(2)))["y"], filled(4))


@in_loop
async def test_client_in_a_running_loop_lives_beside_synchronous_ones(url, model):
    """As in a notebook, where cells run within a loop."""
    async with AsyncioModelClient(url, model) as client:
        with ModelClient.from_existing_client(client) as synchronous:
            assert_same((await client.infer_batch(filled(1)))["y"], synchronous.infer_batch(filled(1))["y"])
        async with AsyncioModelClient.from_existing_client(client) as other:
            assert await other.model_config is await client.model_config
            assert_same((await other.infer_batch(filled(2)))["y"], filled(4))


def test_client_serves_one_event_loop_after_the_other(url, model):
    client = AsyncioModelClient(url, model)
    for i in range(3):
        answers = []

        async def use(i=i, answers=answers):
            answers.append(await client.infer_batch(filled(i)))

        in_loop(use)()
        assert_same(answers[0]["y"], filled(2 * i))
    in_loop(client.close)()


@in_loop
async def test_functions_on_a_bare_client(url, model):
    async with AsyncioModelClient(url, model) as client, client.create_client_from_url(url) as bare:
        await asyncio_wait_for_server_ready(bare, 0.01)
        await asyncio_wait_for_model_status_loaded(bare, model, 0.01, headers=None)
        await asyncio_wait_for_model_ready(bare, model, "1")
        assert (await asyncio_get_model_config(bare, model)).max_batch_size == 8
        assert await asyncio_get_model_state(bare, model) is ModelState.READY
        assert await asyncio_get_model_state(bare, "absent") is ModelState.UNAVAILABLE


def test_hundreds_of_clients_leave_nothing_behind(url, model):
    @in_loop
    async def use(count):
        async def once():
            async with AsyncioModelClient(url, model, lazy_init=False) as client:
                await client.infer_batch(filled(1))

        for _ in range(count // 20):
            await asyncio.gather(*(once() for _ in range(20)))

    use(20)  # what the libraries keep for ever
    with nothing_left():
        use(200)


def test_clients_that_are_not_closed_leave_nothing_behind(url, model):
    @in_loop
    async def use(count):
        for _ in range(count):
            await AsyncioModelClient(url, model).infer_batch(filled(1))

    use(2)
    with nothing_left():
        use(50)
