"""Nothing keeps the inputs of a batch once it is answered, whatever the callable did: their memory is used again."""

import asyncio
import gc
import logging
import weakref
from contextlib import aclosing, closing
from dataclasses import replace

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.decorators.batching import whole_batch_form
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.wire.frames import REQUEST, Frame, pack, unpack
from pytriton.wire.tensors import joined, tensor
from pytriton.worker.inference import Inference, Options
from pytriton.worker.results import is_async

CONFIG = TritonModelConfig(
    "model", inputs=[TensorSpec("x", (-1,), np.float32)], outputs=[TensorSpec("y", (-1,), np.float32)]
)
X = [np.ones((2, 4), np.float32), np.ones((1, 4), np.float32)]


@pytest.fixture(autouse=True)
def no_collector(monkeypatch):
    """Without the collector of cycles, and without pytest's log handler, which keeps tracebacks."""
    monkeypatch.setattr(logging.getLogger("pytriton.worker"), "disabled", True)
    gc.disable()
    yield
    gc.enable()


def received(whole):
    """A frame whose data lies in a region, and a reference to the region that dies with it."""
    tensors = [joined(0, X, 3)] if whole else [tensor(0, x, index) for index, x in enumerate(X)]
    frame = unpack(memoryview(pack(Frame(REQUEST, 1, 2, [2, 1] if whole else None, region=0), tensors)))
    frame.data = np.zeros(frame.data_bytes, np.uint8)
    return frame, weakref.ref(frame.data)


def of_requests(requests):
    return [{"y": request["x"]} for request in requests]


def copies(requests):
    return [{"y": request["x"] * 2} for request in requests]


def values(requests):
    return [ValueError(f"no {request['x']}") for request in requests]


def fails(requests):
    x = [request["x"] for request in requests]
    raise ValueError(f"no {x}")


def fails_with_a_cause(requests):
    try:
        fails(requests)
    except ValueError as error:
        raise RuntimeError("no") from error


def unrecoverable(requests):
    x = [request["x"] for request in requests]
    raise PyTritonUnrecoverableError(f"no {x}")


def wrong(requests):
    return [{"y": request["x"][0]} for request in requests]


def generator(requests):
    yield of_requests(requests)


def generator_of_two(requests):
    yield of_requests(requests)
    yield of_requests(requests)


async def coroutine(requests):
    await asyncio.sleep(0)
    return of_requests(requests)


async def coroutine_fails(requests):
    await asyncio.sleep(0)
    x = [request["x"] for request in requests]
    raise ValueError(f"no {x}")


async def coroutine_fails_in_a_task(requests):
    return await asyncio.gather(asyncio.create_task(coroutine_fails(requests)))


async def async_generator(requests):
    yield of_requests(requests)


async def async_generator_of_two(requests):
    yield of_requests(requests)
    yield of_requests(requests)


@batch
def batched(x):
    return {"y": x}


@batch
def batched_fails(x):
    raise ValueError("no")


@batch
async def batched_async(x):
    await asyncio.sleep(0)
    return {"y": x + 1}


CALLABLES = [
    of_requests,
    copies,
    values,
    fails,
    fails_with_a_cause,
    unrecoverable,
    wrong,
    generator,
    generator_of_two,
    coroutine,
    coroutine_fails,
    coroutine_fails_in_a_task,
    async_generator,
    async_generator_of_two,
    batched,
    batched_fails,
    batched_async,
]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "split"])
@pytest.mark.parametrize("options", [Options(), Options(False, False, True)], ids=["plain", "verbose"])
@pytest.mark.parametrize("function", CALLABLES, ids=lambda function: function.__name__)
def test_the_inputs_die_with_the_answer(function, whole, options):
    with closing(Inference(function, CONFIG, options, lambda: None, whole_batch_form(function))) as inference:
        frame, region = received(whole)
        inference.answer(frame)
        del frame
        assert region() is None


def test_inputs_that_the_callable_keeps_live_on():
    kept = []

    def keep(requests):
        kept.append(requests[0]["x"][:1])
        return of_requests(requests)

    inference = Inference(keep, CONFIG, Options(), lambda: None)
    frame, region = received(True)
    inference.answer(frame)
    del frame
    assert region() is not None
    kept.clear()
    assert region() is None


def stream(inference, frame):
    """All replies, of which none is kept."""
    with closing(inference.stream(frame)) as replies:
        for _ in replies:
            pass


def stream_async(inference, frame):
    async def run():
        async with aclosing(inference.stream_async(frame)) as replies:
            async for _ in replies:
                pass

    asyncio.run(run())


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, decoupled=True)], ids=["coupled", "decoupled"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "split"])
@pytest.mark.parametrize("function", CALLABLES, ids=lambda function: function.__name__)
def test_the_inputs_die_with_the_last_reply(function, whole, config):
    ways = [stream_async] if is_async(function) else [stream, stream_async]
    for way in ways:
        with closing(Inference(function, config, Options(), lambda: None, whole_batch_form(function))) as inference:
            frame, region = received(whole)
            way(inference, frame)
            del frame
            assert region() is None, way.__name__
