"""Several batches at a time, for ``async def`` callables: each is a task of the instance's event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import aclosing, suppress
from contextvars import Context
from typing import Any

from pytriton import forks
from pytriton.logs import get_logger
from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import HandOverError, PeerGoneError
from pytriton.wire.frames import CANCEL, END, REQUEST, Frame
from pytriton.wire.tensors import FrameError
from pytriton.worker.context import current_binding
from pytriton.worker.failures import FailureLog
from pytriton.worker.inference import Inference
from pytriton.worker.interfaces import Activity, Channel
from pytriton.worker.requests import Cancellation
from pytriton.worker.results import close_loop

LOGGER = get_logger("pytriton.worker")

BEAT_S, MOST_BEATS = 5.0, 6  # a loop that has not run for so many beats is blocked


class EventLoopError(RuntimeError):
    """The event loop of an ``async def`` callable ended before a request was answered."""


class InstanceLoop:
    """An event loop on a thread of its own, which goes on until it is closed, whatever a callable does on it.

    Args:
        failures: Logs errors that no code awaits.

    Attributes:
        loop: The event loop.
        ended: Done when it runs no more: after :meth:`close`, or if the callable has closed or broken it.
    """

    def __init__(self, name: str, failures: FailureLog) -> None:
        self.ended: Future[None] = Future()
        get_logger("asyncio")  # has a line for each loop: a handler that raises would leave none
        self.loop = Context().run(asyncio.new_event_loop)  # the loop would keep the current context
        self.loop.set_exception_handler(self._report)
        self._failures = failures
        self._name = name
        self._closing = False
        self._missed = 0  # beats since the loop last ran
        self._missed_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Whether the calling thread is that of the loop."""
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._run_once()
        except BaseException:
            LOGGER.exception("%s was closed by its callable or failed; another one takes its place", self._name)
        finally:
            self.ended.set_result(None)

    def _run_once(self) -> None:
        """Run until something stops the loop, as exits in tasks and callbacks do: asyncio raises them in the thread."""
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            self._failures.add(error, f"a task of the callable raised {type(error).__name__}; the event loop goes on")
        else:
            if not self._closing:
                self._failures.add(EventLoopError(), "the callable stopped its event loop; the event loop goes on")

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log errors that no code awaits, such as that of a task that the callable did not await."""
        error = context.get("exception")
        if error is None:
            if not self.ended.done():  # else it is about tasks that were lost with the loop, whose requests have failed
                with suppress(Exception):  # of handlers of the program's log
                    loop.default_exception_handler(context)
        # gRPC before 1.80, which callables may use, wakes all event loops of a process when data for one arrives.
        elif not isinstance(error, BlockingIOError):
            self._failures.add(error, f"its event loop says: {context['message']}")

    def beat(self) -> None:
        """Check that the loop runs, every ``BEAT_S`` seconds; a line of the log tells of one that a callable blocks."""
        with self._missed_lock:
            self._missed += 1  # first, since the loop may answer before the next line
            missed = self._missed
        if missed == 1:
            with suppress(RuntimeError):  # it is closed
                self.loop.call_soon_threadsafe(self._answer_beat)
        if missed == MOST_BEATS:
            blocked_s = MOST_BEATS * BEAT_S
            what = "%s has not run for %.0f s: a callable blocks it, and all of its requests wait; have it await"
            LOGGER.warning(what, self._name, blocked_s)

    def _answer_beat(self) -> None:
        with self._missed_lock:
            missed, self._missed = self._missed, 0
        if missed >= MOST_BEATS:
            LOGGER.warning("%s runs again", self._name)

    def close(self) -> None:
        """Cancel the tasks that still run, and end the thread."""
        self._closing = True
        with suppress(RuntimeError):  # it is closed
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        try:
            close_loop(self.loop)
        except BaseException as error:
            self._failures.add(error, "a task of the callable raised while the event loop was closed")


class ConcurrentExecutor:
    """Answers frames on an event loop in a thread of its own, which is the same for all connections."""

    answer = None

    def __init__(self, inference: Inference, name: str) -> None:
        self._inference = inference
        self._activity = Activity()
        self.quiet_s, self.batches = self._activity.quiet_s, self._activity.batches
        self._name = name
        self._lock = threading.Lock()
        self._events: InstanceLoop | None = None
        forks.register(self)
        self._draining = threading.Event()

    def serve(self, channel: Channel) -> None:
        """Answer batches until the proxy has gone; tasks that still run then are cancelled.

        Raises:
            PeerGoneError: The proxy has gone.
            FrameError: It sent what is no frame.
        """
        current_binding.set(None)  # this thread only waits, and would keep a replaced callable alive
        while True:
            events = self._started()
            batches = ConnectionBatches(events.loop, channel, self._inference, self._activity, self._draining)
            done = asyncio.run_coroutine_threadsafe(batches.run(), events.loop)
            while not wait((done, events.ended), BEAT_S, FIRST_COMPLETED).done:
                events.beat()
                if channel.is_handed_over():
                    batches.hand_over()
            if done.done():
                try:
                    return done.result()
                finally:
                    del done  # its error has a traceback that leads back here, and to memory that is mapped
            batches.fail(EventLoopError("the callable has closed the event loop that runs it, or made it fail"))

    def _started(self) -> InstanceLoop:
        with self._lock:
            if self._events is None or self._events.ended.done():
                self._events = InstanceLoop(self._name, self._inference.failures)
            return self._events

    def drain(self) -> None:
        """Let tasks finish, instead of cancelling them, when no more batches can arrive."""
        self._draining.set()

    def after_fork(self) -> None:
        """In a child that a coroutine forks, exit when the coroutine yields: the loop's selector is the parent's."""
        if self._events is not None and self._events.is_current():
            self._events.loop.call_soon(os._exit, 0)

    def close(self) -> None:
        """Cancel the tasks that still run, and end the thread. Call it after the last :meth:`serve`."""
        if self._events is not None:
            self._events.close()
        self._inference.close()


class ConnectionBatches:
    """One connection's batches.

    Args:
        loop: Runs everything here.
        draining: Set if the end of the connection does not mean that the proxy died.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: Channel,
        inference: Inference,
        activity: Activity,
        draining: threading.Event,
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._inference = inference
        self._activity = activity
        self._draining = draining
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._frames: dict[int, Frame] = {}
        self._thread = 0
        self._ended: asyncio.Future[Any] | None = loop.create_future()
        self._uncongested = asyncio.Event()

    async def run(self) -> None:
        """Answer batches until the proxy has gone.

        Raises:
            PeerGoneError, FrameError: Why it ended.
        """
        self._thread = threading.get_ident()
        self._loop.add_reader(self._channel.fileno(), self._receive)
        try:
            while self._ended is not None and not self._ended.done():
                with suppress(asyncio.CancelledError):  # by a callable that cancels all tasks that it finds
                    await asyncio.wait([self._ended])
            assert self._ended is not None
            self._ended.result()
        finally:
            self._ended = None  # its error has a traceback that leads back here, and to memory that is mapped
            if not self._loop.is_closed():
                self._loop.remove_reader(self._channel.fileno())
                tasks = [*self._tasks.values()]
                for task in () if self._draining.is_set() else tasks:
                    task.cancel()
                self._uncongested.set()
                await asyncio.gather(*tasks, return_exceptions=True)

    def hand_over(self) -> None:
        """Have :meth:`run` end with HandOverError, if no batch is being answered. From any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end_if_idle)

    def _end_if_idle(self) -> None:
        if not self._tasks and self._ended is not None and not self._ended.done():
            self._ended.set_exception(HandOverError("another process goes on with the connection"))

    def _receive(self) -> None:
        """Receive all frames that have arrived."""
        if self._ended is None or self._ended.done():  # they are for the process that goes on
            return
        try:
            while (frame := self._channel.receive_ready()) is not None:
                if frame.kind == REQUEST:
                    self._start(frame)
                elif frame.kind == CANCEL and frame.number in self._tasks:
                    self._cancel(frame)
            if not self._channel.is_congested():
                self._uncongested.set()
        except (PeerGoneError, FrameError) as error:
            if not self._ended.done():
                self._ended.set_exception(error)

    def _cancel(self, frame: Frame) -> None:
        cancellation = self._frames[frame.number].cancellation
        if cancellation is not None:
            cancellation.update(frame)
            if cancellation.is_complete:
                self._tasks[frame.number].cancel()

    def _look(self, _: Cancellation) -> None:
        """Receive the frames that have arrived, for a coroutine that does not let the event loop run."""
        if threading.get_ident() == self._thread:
            self._receive()

    def _start(self, frame: Frame) -> None:
        number, requests = frame.number, frame.requests
        self._inference.enter()
        frame.cancellation = Cancellation(self._look)
        self._frames[number] = frame

        def done(task: asyncio.Task[None]) -> None:
            del self._tasks[number], self._frames[number]
            self._activity.end()
            with suppress(PeerGoneError):
                if task.cancelled():  # outside the callable, so the task sent no last reply
                    self._channel.send(Frame(END, number, requests))
                elif (error := task.exception()) is not None:  # GeneratorExit, which Python may throw in from outside
                    self._inference.failures.add(error, "the inference call failed")
                    self._channel.send(*self._inference.error(frame, error))

        self._activity.begin()
        self._tasks[number] = self._loop.create_task(self._answer(frame))
        self._tasks[number].add_done_callback(done)

    def fail(self, error: Exception) -> None:
        """Fail all batches that are not answered, once the event loop runs no more; raises PeerGoneError."""
        for number, frame in [*self._frames.items()]:
            task = self._tasks[number]
            self._activity.end()
            if not task.done() or task.cancelled():
                with suppress(RuntimeError):  # it awaits in its clean-up
                    task.get_coro().close()
                self._channel.send(*self._inference.error(frame, error))

    async def _answer(self, frame: Frame) -> None:
        try:
            async with aclosing(self._inference.stream_async(frame)) as replies:
                async for reply, tensors in replies:
                    while self._channel.is_congested() and not self._draining.is_set():
                        self._uncongested.clear()
                        await self._uncongested.wait()
                    self._channel.send(reply, tensors)
        except (ArenaFullError, FrameError) as error:
            self._channel.send(*self._inference.error(frame, error))
        except PeerGoneError:
            pass  # _receive notices it too
