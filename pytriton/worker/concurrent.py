"""Several batches at a time, for ``async def`` callables: each is a task of the instance's event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import aclosing, suppress
from contextvars import Context, copy_context
from typing import Any

from pytriton import forks
from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.frames import CANCEL, END, REQUEST, Frame
from pytriton.wire.tensors import FrameError
from pytriton.worker.context import current_binding
from pytriton.worker.inference import Inference
from pytriton.worker.interfaces import Activity, Channel
from pytriton.worker.requests import Cancellation
from pytriton.worker.results import close_loop


class ConcurrentExecutor:
    """Answers frames on an event loop in a thread of its own, which is the same for all connections.

    Args:
        inference: Calls the callable.
        name: Of the thread.
    """

    answer = None

    def __init__(self, inference: Inference, name: str) -> None:
        self._inference = inference
        self._activity = Activity()
        self.quiet_s, self.batches = self._activity.quiet_s, self._activity.batches
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        forks.register(self)
        self._draining = threading.Event()

    def serve(self, channel: Channel) -> None:
        """Answer batches until the proxy has gone; tasks that still run then are cancelled.

        Raises:
            PeerGoneError: The proxy has gone.
            FrameError: It sent what is no frame.
        """
        loop = self._started()
        batches = ConnectionBatches(loop, channel, self._inference, self._activity, self._draining)
        running = batches.run(copy_context())
        current_binding.set(None)  # this thread only waits, and would keep a replaced callable alive
        asyncio.run_coroutine_threadsafe(running, loop).result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = Context().run(asyncio.new_event_loop)  # the loop would keep the current context
                self._loop.set_exception_handler(self._report)
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log errors that no code awaits, such as that of a task that the callable did not await."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        # gRPC before 1.80, which callables may use, wakes all event loops of a process when data for one arrives.
        elif not isinstance(error, BlockingIOError):
            self._inference.failures.add(error, f"its event loop says: {context['message']}")

    def drain(self) -> None:
        """Let tasks finish, instead of cancelling them, when no more batches can arrive."""
        self._draining.set()

    def after_fork(self) -> None:
        """In a child that a coroutine forks, exit when the coroutine yields: the loop's selector is the parent's."""
        if self._loop is not None and self._thread is threading.current_thread():
            self._loop.call_soon(os._exit, 0)

    def close(self) -> None:
        """Cancel the tasks that still run, and end the thread. Call it after the last :meth:`serve`."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            close_loop(self._loop)
        self._inference.close()


class ConnectionBatches:
    """One connection's batches.

    Args:
        loop: Runs everything here.
        channel: To the proxy.
        inference: Calls the callable.
        activity: Counts the batches.
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
        self._cancellations: dict[int, Cancellation] = {}
        self._thread = 0
        self._ended: asyncio.Future[Any] | None = loop.create_future()
        self._uncongested = asyncio.Event()

    async def run(self, context: Context) -> None:
        """Answer batches until the proxy has gone.

        Args:
            context: The context variables of the tasks.

        Raises:
            PeerGoneError, FrameError: Why it ended.
        """
        self._thread = threading.get_ident()
        context.run(self._loop.add_reader, self._channel.fileno(), self._receive)
        del context  # the reader has a copy
        try:
            assert self._ended is not None
            await self._ended
        finally:
            self._ended = None  # its error has a traceback that leads back here, and to memory that is mapped
            self._loop.remove_reader(self._channel.fileno())
            tasks = [*self._tasks.values()]
            for task in () if self._draining.is_set() else tasks:
                task.cancel()
            self._uncongested.set()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _receive(self) -> None:
        """Receive all frames that have arrived."""
        try:
            while (frame := self._channel.receive_ready()) is not None:
                if frame.kind == REQUEST:
                    self._start(frame)
                elif frame.kind == CANCEL and frame.number in self._tasks:
                    self._cancel(frame)
            if not self._channel.is_congested():
                self._uncongested.set()
        except (PeerGoneError, FrameError) as error:
            if self._ended is not None and not self._ended.done():
                self._ended.set_exception(error)

    def _cancel(self, frame: Frame) -> None:
        cancellation = self._cancellations[frame.number]
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
        frame.cancellation = self._cancellations[number] = Cancellation(self._look)

        def done(task: asyncio.Task[None]) -> None:
            del self._tasks[number], self._cancellations[number]
            self._activity.end()
            if task.cancelled():  # outside the callable, so the task sent no last reply
                with suppress(PeerGoneError):
                    self._channel.send(Frame(END, number, requests))

        self._activity.begin()
        self._tasks[number] = self._loop.create_task(self._answer(frame))
        self._tasks[number].add_done_callback(done)

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
