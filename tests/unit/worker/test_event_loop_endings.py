"""Callables that end the event loop of their instance: it goes on, and every request gets an answer."""

import asyncio
import gc
import json
import logging
import sys
import threading

import numpy as np
import pytest

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.wire.connect import connect
from pytriton.wire.frames import REQUEST, RESPONSE, Frame
from pytriton.wire.tensors import tensor
from pytriton.worker.concurrent import MOST_BEATS, InstanceLoop
from pytriton.worker.context import Binding, TritonContext
from pytriton.worker.failures import FailureLog
from pytriton.worker.inference import Inference, Options
from pytriton.worker.instance import Instance, make_executor
from tests.server.processes import wait_for

TIMEOUT_S = 30.0
CONFIG = TritonModelConfig(
    "m", inputs=[TensorSpec("x", (-1,), np.float32)], outputs=[TensorSpec("y", (-1,), np.float32)]
)
WAIT, END, DOUBLE = 1.0, 2.0, 3.0


class Interrupted(BaseException):
    """Neither an Exception nor an exit."""


async def raising(error):
    raise error


async def in_a_task(error):
    await asyncio.create_task(raising(error))


async def in_a_group(error):
    await asyncio.gather(raising(error), asyncio.sleep(0))


async def in_a_task_that_is_left_alone(error):
    asyncio.get_running_loop().create_task(raising(error))
    await asyncio.sleep(0)  # the loop runs it before this goes on


async def in_a_callback(error):
    def raise_error():
        raise error

    asyncio.get_running_loop().call_soon(raise_error)
    await asyncio.sleep(0)  # the loop runs it before this goes on


async def stopping(error):
    asyncio.get_running_loop().stop()


async def cancelling_all_tasks(error):
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def closing(error):
    loop = asyncio.get_running_loop()
    loop.is_running = lambda: False  # as libraries do that run one loop within another
    loop.close()


class Served:
    """An instance with a callable that ends its loop in some way, and a proxy."""

    def __init__(self, path, end, error=None):
        self.open, self.end_loop, self.error = None, end, error
        self.executor = make_executor(self.infer, Inference(self.infer, CONFIG, Options(), lambda: None), True, "loop")
        binding = Binding(self.infer, CONFIG, TritonContext())
        self.instance = Instance(str(path), binding, self.executor, lambda: None)
        self.proxy = connect(str(path), {}, TIMEOUT_S)

    async def infer(self, requests):
        value = requests[0]["x"][0, 0]
        if value == WAIT:
            self.open = asyncio.Event()
            await self.open.wait()
        elif value == END:
            await self.end_loop(self.error)
        return [{"y": requests[0]["x"] * 2}]

    def send(self, number, value):
        self.proxy.send(Frame(REQUEST, number, 1), [tensor(0, np.full((1, 1), value, np.float32), 0)])

    def receive(self):
        """The number of the next reply, and its output or error."""
        reply = self.proxy.receive()
        if reply.kind == RESPONSE:
            return reply.number, reply.array(reply.tensors[0]).item()
        return reply.number, json.loads(reply.metadata)["message"] if reply.metadata else "cancelled"

    def close(self):
        self.proxy.close()
        self.instance.close()
        self.instance.wait_ended()


@pytest.fixture
def serve(tmp_path):
    served = []

    def start(*arguments):
        served.append(Served(tmp_path / "socket", *arguments))
        return served[-1]

    yield start
    for each in served:
        each.close()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Interrupted()], ids=lambda error: repr(error))
@pytest.mark.parametrize("end", [raising, in_a_task, in_a_group])
def test_a_request_that_ends_the_loop_fails_and_the_others_are_answered(serve, end, error):
    served = serve(end, error)
    served.send(1, WAIT)
    served.send(2, END)
    number, message = served.receive()
    assert (number, message.partition(":")[0]) == (2, type(error).__name__)
    served.send(3, DOUBLE)
    assert served.receive() == (3, 2 * DOUBLE)
    served.executor._events.loop.call_soon_threadsafe(served.open.set)
    assert served.receive() == (1, 2 * WAIT)
    assert served.instance.is_alive()


@pytest.mark.parametrize(("end", "message"), [(raising, "GeneratorExit: "), (in_a_task, ""), (in_a_group, "")])
def test_a_request_that_raises_what_closes_coroutines_fails(serve, end, message):
    served = serve(end, GeneratorExit())
    served.send(2, END)
    number, text = served.receive()
    assert number == 2
    assert text.startswith(message)
    served.send(3, DOUBLE)
    assert served.receive() == (3, 2 * DOUBLE)


@pytest.mark.parametrize("end", [in_a_task_that_is_left_alone, in_a_callback, stopping])
def test_the_loop_goes_on_after_an_exit_that_is_no_part_of_a_request(serve, end, caplog):
    served = serve(end, SystemExit(3))
    served.send(1, WAIT)
    served.send(2, END)
    assert served.receive() == (2, 2 * END)
    served.send(3, DOUBLE)
    assert served.receive() == (3, 2 * DOUBLE)
    served.executor._events.loop.call_soon_threadsafe(served.open.set)
    assert served.receive() == (1, 2 * WAIT)
    assert "the event loop goes on" in caplog.text


def test_the_log_tells_of_a_loop_that_a_callable_blocks_and_that_it_runs_again(serve, monkeypatch, caplog):
    monkeypatch.setattr("pytriton.worker.concurrent.BEAT_S", 0.01)
    gate = threading.Event()

    async def blocking(error):
        gate.wait(TIMEOUT_S)

    served = serve(blocking)
    served.send(1, END)
    wait_for(lambda: "loop has not run for 0 s: a callable blocks it" in caplog.text, "the warning")
    gate.set()
    assert served.receive() == (1, 2 * END)
    wait_for(lambda: "loop runs again" in caplog.text, "the loop to run")
    assert caplog.text.count("has not run") == 1


def test_the_log_does_not_tell_of_a_loop_that_answers_each_beat_at_once(caplog):
    events = InstanceLoop("loop", FailureLog("m"))
    call_soon = events.loop.call_soon_threadsafe

    def run_at_once(callback, *arguments):  # as where the thread of the loop runs before the one that beats goes on
        call_soon(callback, *arguments)
        ran = threading.Event()
        call_soon(ran.set)
        assert ran.wait(TIMEOUT_S)

    events.loop.call_soon_threadsafe = run_at_once
    for _ in range(2 * MOST_BEATS):
        events.beat()
    events.loop.call_soon_threadsafe = call_soon
    events.close()
    assert "has not run" not in caplog.text


class Raising(logging.Handler):
    def emit(self, record):
        raise RuntimeError("a handler of the program")


def test_a_loop_starts_though_a_handler_of_the_log_raises_on_asyncios_line_about_it(monkeypatch):
    asyncios = logging.getLogger("asyncio")
    for name in ("handle", "makeRecord"):  # which other tests may have replaced
        monkeypatch.delitem(vars(asyncios), name, raising=False)
    monkeypatch.setattr(asyncios, "handlers", [Raising()])
    monkeypatch.setattr(asyncios, "level", logging.DEBUG)
    monkeypatch.setattr(asyncios, "_cache", {})
    events = InstanceLoop("loop", FailureLog("m"))
    assert asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "ran"), events.loop).result(TIMEOUT_S) == "ran"
    events.close()


def test_a_callable_that_cancels_all_tasks_cancels_the_requests_alone(serve):
    served = serve(cancelling_all_tasks)
    served.send(1, WAIT)
    served.send(2, END)
    assert sorted(number for number, _ in (served.receive(), served.receive())) == [1, 2]
    served.send(3, DOUBLE)
    assert served.receive() == (3, 2 * DOUBLE)


def test_a_loop_that_was_closed_is_replaced_and_its_requests_fail(serve, caplog):
    served = serve(closing)
    served.send(1, WAIT)
    served.send(2, END)
    answers = dict([served.receive(), served.receive()])
    assert answers[2] == 2 * END  # it has gone on to its end
    assert answers[1].startswith("EventLoopError: ")
    served.send(3, DOUBLE)
    assert served.receive() == (3, 2 * DOUBLE)
    wait_for(lambda: served.executor.batches() == 0, "the end of all batches")
    assert served.instance.is_alive()
    assert "another one takes its place" in caplog.text


def test_the_log_does_not_tell_of_each_task_that_is_lost_with_a_loop(caplog):
    async def leave_a_task():
        asyncio.get_running_loop().create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        await closing(None)

    with caplog.at_level(logging.CRITICAL, "pytriton"):  # the record of the closed loop would keep it
        events = InstanceLoop("loop", FailureLog("m"))
        asyncio.run_coroutine_threadsafe(leave_a_task(), events.loop)
        events.ended.result(TIMEOUT_S)
    del events
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]  # others may be of other loops


def test_an_exit_while_the_loop_is_closed_does_not_prevent_the_end(serve, caplog):
    async def leaving_a_task(error):
        async def exit_when_cancelled():
            try:
                await asyncio.Event().wait()
            finally:
                sys.exit(3)

        self.task = asyncio.get_running_loop().create_task(exit_when_cancelled())
        await asyncio.sleep(0)

    self = serve(leaving_a_task)
    self.send(2, END)
    assert self.receive() == (2, 2 * END)
    self.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "loop"]
