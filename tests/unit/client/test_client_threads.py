"""An event loop in a thread of its own."""

import asyncio
import logging
import threading

from pytriton.client.threads import LoopThread

PATIENCE_S = 30.0


def test_coroutines_run_in_the_thread_and_are_cancelled_at_its_end():
    seen = []
    started = threading.Event()

    async def work():
        seen.append(threading.current_thread().name)
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    thread = LoopThread("the loop")
    thread.start(work)
    assert started.wait(PATIENCE_S)
    thread.stop()
    thread.join(PATIENCE_S)
    thread.stop()
    assert seen == ["the loop", "cancelled"]


def test_thread_may_end_itself():
    ended = threading.Event()

    async def work():
        thread.stop()
        thread.join()
        ended.set()

    thread = LoopThread("the loop")
    thread.start(work)
    assert ended.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


def test_errors_in_the_loop_are_logged_but_for_those_of_grpc_that_mean_nothing(caplog):
    async def work():
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "harmless", "exception": BlockingIOError()})
        loop.call_exception_handler({"message": "serious", "exception": ValueError()})

    thread = LoopThread("the loop")
    with caplog.at_level(logging.ERROR):
        thread.start(work)
        thread.stop()
        thread.join(PATIENCE_S)
    assert [record.message.partition("\n")[0] for record in caplog.records] == ["serious"]
