"""Coroutines and generators as callables of models that answer each request once."""

import asyncio
import threading

import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch, sample
from pytriton.triton import Triton
from tests.server.arrays import assert_same, filled
from tests.server.own_server import TENSORS

X, Y = TENSORS


async def coroutine(requests):
    await asyncio.sleep(0)
    return [{"y": request["x"] * 2} for request in requests]


def generator(requests):
    yield [{"y": request["x"] * 2} for request in requests]


async def async_generator(requests):
    await asyncio.sleep(0)
    yield [{"y": request["x"] * 2} for request in requests]


@batch
async def batch_coroutine(x):
    await asyncio.sleep(0)
    return [x * 2]


@batch
def batch_generator(x):
    yield [x * 2]


@batch
async def batch_async_generator(x):
    await asyncio.sleep(0)
    yield {"y": x * 2}


class Awaited:
    async def __call__(self, requests):
        return await coroutine(requests)

    @batch
    async def method(self, x):
        return [x * 2]


def several(requests):
    """Yields as often as the parameter ``count`` says."""
    for _ in range(requests[0].parameters["count"]):
        yield [{"y": request["x"]} for request in requests]


async def several_awaited(requests):
    for response in several(requests):
        yield response


FORMS = {
    "coroutine": coroutine,
    "generator": generator,
    "async generator": async_generator,
    "coroutine below batch": batch_coroutine,
    "generator below batch": batch_generator,
    "async generator below batch": batch_async_generator,
    "object": Awaited(),
    "method": Awaited().method,
    "function that returns a coroutine": lambda requests: coroutine(requests),
}
SAMPLE_FORMS = {"coroutine": coroutine, "generator": generator, "below sample": sample(batch_coroutine.__wrapped__)}


@pytest.fixture(scope="module", params=FORMS)
def model(bind, request):
    return bind(FORMS[request.param])


@pytest.fixture(scope="module", params=SAMPLE_FORMS)
def sample_model(bind, request):
    return bind(SAMPLE_FORMS[request.param], batching=False)


@pytest.fixture(scope="module", params=[several, several_awaited])
def repeater(bind, request):
    return bind(request.param)


def test_callables_of_every_form_answer(model, traffic):
    for rows in (1, 3):
        assert_same(traffic.infer(model, filled(4, rows))["y"], filled(8, rows))


def test_without_a_batch_axis_they_answer_too(sample_model, traffic):
    assert_same(traffic.infer(sample_model, filled(4)[0], sample=True)["y"], filled(8)[0])


@pytest.mark.parametrize(
    ("count", "message"), [(0, "yielded nothing"), (2, "yielded more than once"), (3, "yielded more than once")]
)
def test_a_generator_must_yield_once(repeater, traffic, count, message):
    with pytest.raises(PyTritonClientInferenceServerError, match=message):
        traffic.infer(repeater, filled(1), parameters={"count": count})
    assert_same(traffic.infer(repeater, filled(1), parameters={"count": 1})["y"], filled(1))


def test_a_generator_that_yields_too_often_is_closed(bind, traffic):
    closed = []

    def endless(requests):
        try:
            while True:
                yield [{"y": request["x"]} for request in requests]
        finally:
            closed.append(True)

    with pytest.raises(PyTritonClientInferenceServerError, match="yielded more than once"):
        traffic.infer(bind(endless), filled(1))
    assert closed == [True]


def test_coroutines_of_an_instance_share_one_event_loop(bind, traffic):
    loops, tasks = set(), []

    async def infer(requests):
        loops.add(asyncio.get_running_loop())
        await asyncio.gather(*tasks)  # of the calls before
        tasks.append(asyncio.create_task(asyncio.sleep(0)))
        return [{"y": request["x"]} for request in requests]

    model = bind(infer)
    for number in range(5):
        assert_same(traffic.infer(model, filled(number))["y"], filled(number))
    assert len(loops) == 1


def test_the_event_loop_ends_with_the_server_even_if_another_one_runs_in_the_thread_that_stops_it(free_config):
    loops, cancelled = [], threading.Event()

    async def wait_for_the_end():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def infer(requests):
        loop = asyncio.get_running_loop()
        loops.append((loop, loop.create_task(wait_for_the_end())))
        await asyncio.sleep(0)
        return [{"y": request["x"]} for request in requests]

    async def main():
        with Triton(config=free_config) as triton:
            triton.bind("model", infer, X, Y)
            with ModelClient(f"localhost:{free_config.http_port}", "model") as client:
                client.infer_batch(filled(1))

    before = set(threading.enumerate())
    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        thread.join()
    ((loop, task),) = loops
    assert loop.is_closed()
    assert cancelled.is_set()
    assert task.cancelled()
