"""One batch at a time: a plain function answers each on the thread that received it; or one per connection."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.frames import ASK, CANCEL, Frame
from pytriton.wire.tensors import FrameError
from pytriton.worker.inference import Inference
from pytriton.worker.interfaces import Channel, Reply
from pytriton.worker.requests import Cancellation

ASK_S = 0.05  # seconds between two questions to the proxy; each costs 20 to 200 us per request
ASK_SHARE = 0.1  # of a callable's time, at most, is spent on asking


class SerialExecutor:
    """Answers batches with a callable that never runs twice at once.

    The proxy does not report cancelled requests by itself. While the callable runs, the proxy waits for the reply and
    answers questions.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._running = threading.Lock()  # the callable
        self._last_batch = -math.inf
        self._asking = threading.Lock()
        self._asked: tuple[Channel, Frame] | None = None  # while a callable may ask
        self._next_question = -math.inf

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return 0.0 if self._running.locked() else time.monotonic() - self._last_batch

    def batches(self) -> int:
        """How many batches are being answered: one at most."""
        return int(self._running.locked())

    def serve(self, channel: Channel) -> None:
        """Answer batch after batch.

        Raises:
            PeerGoneError: The proxy has gone.
            FrameError: It sent what is no frame.
        """
        while True:  # nothing of a batch may stay referenced here while the next one is awaited
            self._serve(channel, channel.receive(between_batches=True))

    def _serve(self, channel: Channel, frame: Frame) -> None:
        with self._running:
            reply = self._answer(channel, frame)
            try:
                channel.send(*reply)
            except (ArenaFullError, FrameError) as error:
                channel.send(*self._inference.error(frame, error))
            self._last_batch = time.monotonic()

    def answer(self, channel: Channel, frame: Frame) -> Reply:
        """Answer one batch, on the calling thread."""
        with self._running:
            try:
                return self._answer(channel, frame)
            finally:
                self._last_batch = time.monotonic()

    def _answer(self, channel: Channel, frame: Frame) -> Reply:
        self._asked = channel, frame
        reply = self._inference.answer(frame, self._look)
        if frame.cancellation is None:  # the callable could not ask
            self._asked = None
        else:
            with self._asking:
                self._asked = None
        return reply

    def _look(self, cancellation: Cancellation) -> None:
        """Ask the proxy, unless that was done a moment ago, or the batch is answered. From any thread."""
        with self._asking:
            start = time.monotonic()
            if self._asked is None or start < self._next_question:
                return
            channel, frame = self._asked
            if frame.cancellation is not cancellation:
                return
            try:
                channel.send(Frame(ASK, frame.number, frame.requests))
                answer = channel.receive()
                if answer.kind != CANCEL or answer.number != frame.number:
                    raise FrameError(f"a frame of kind {answer.kind} is not the answer to a question")
                cancellation.update(answer)
            except PeerGoneError:
                cancellation.complete()
            except FrameError:
                channel.shutdown()
                cancellation.complete()
            end = time.monotonic()
            self._next_question = end + max(ASK_S, (end - start) / ASK_SHARE)

    def drain(self) -> None:
        """Does nothing: each batch is answered before the end of the connection is noticed."""

    def close(self) -> None:
        """Close the event loop of the callable's coroutines. Call it after the last :meth:`serve`."""
        self._inference.close()


class ParallelExecutor:
    """Answers as many batches at once as there are connections: each has an executor of its own.

    Args:
        make: Makes an executor; all are of the same callable, which runs on several threads.
    """

    answer = None  # there is no proxy in a worker process

    def __init__(self, make: Callable[[], SerialExecutor]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._executors = [make()]
        self._free = [*self._executors]

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return min(executor.quiet_s() for executor in [*self._executors])

    def batches(self) -> int:
        """How many batches are being answered."""
        return sum(executor.batches() for executor in [*self._executors])

    def serve(self, channel: Channel) -> None:
        """As :meth:`SerialExecutor.serve`."""
        with self._lock:
            if not self._free:
                self._free.append(self._make())
                self._executors.append(self._free[0])
            executor = self._free.pop()
        try:
            executor.serve(channel)
        finally:
            with self._lock:
                self._free.append(executor)

    def drain(self) -> None:
        """As :meth:`SerialExecutor.drain`."""

    def close(self) -> None:
        """As :meth:`SerialExecutor.close`."""
        for executor in self._executors:
            executor.close()
