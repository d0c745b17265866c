"""A callable that is replaced: what answers which frame, and what it knows of its model meanwhile."""

import asyncio
from contextlib import closing
from contextvars import copy_context

import numpy as np
import pytest

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.wire.frames import REQUEST, Frame, pack, unpack
from pytriton.wire.tensors import tensor
from pytriton.worker.context import Binding, TritonContext, current_binding
from pytriton.worker.inference import Inference, Options

CONFIG = TritonModelConfig(
    "model",
    decoupled=True,
    inputs=[TensorSpec("x", (-1,), np.float32)],
    outputs=[TensorSpec("y", (-1,), np.float32)],
)
CONTEXT = TritonContext()


def frame():
    x = np.ones((1, 1), np.float32)
    return unpack(memoryview(bytearray(pack(Frame(REQUEST, 1, 1), [tensor(0, x, 0)]))))


def counting(number, seen):
    """A generator function that answers twice and notes the callable that its thread serves."""

    def count(requests):
        try:
            for _ in range(2):
                seen.append(current_binding.get().callable)
                yield [{"y": request["x"] * number} for request in requests]
        finally:
            seen.append(current_binding.get().callable)

    return count


@pytest.fixture
def seen():
    return []


def test_streams_that_take_turns_each_know_their_own_callable(seen):
    first, second = counting(2, seen), counting(3, seen)
    inference = Inference(first, CONFIG, Options(), lambda: None, False, Binding(first, CONFIG, CONTEXT))

    def take_turns():
        with closing(inference), closing(inference.stream(frame())) as old:
            next(old)
            inference.rebind(Binding(second, CONFIG, CONTEXT), False)
            with closing(inference.stream(frame())) as new:
                next(new)
                next(old)
                next(new)  # and is closed, before the old one

    copy_context().run(take_turns)
    assert seen == [first, second, first, second, second, first]


def test_coroutines_each_know_their_own_callable(seen):
    def waiting(event):
        async def infer(requests):
            await event.wait()
            seen.append(current_binding.get().callable)
            return [{"y": request["x"]} for request in requests]

        return infer

    async def run():
        event = asyncio.Event()
        first, second = waiting(event), waiting(event)
        inference = Inference(first, CONFIG, Options(), lambda: None, False, Binding(first, CONFIG, CONTEXT))

        async def answer():
            return [reply async for reply in inference.stream_async(frame())]

        old = asyncio.create_task(answer())
        await asyncio.sleep(0)
        inference.rebind(Binding(second, CONFIG, CONTEXT), False)
        new = asyncio.create_task(answer())
        await asyncio.sleep(0)
        event.set()
        await asyncio.gather(old, new)
        inference.close()
        return [first, second]

    assert asyncio.run(run()) == seen
