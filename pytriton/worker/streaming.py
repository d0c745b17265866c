"""Several batches at a time, for plain functions and generators: the generators take turns on one thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.frames import CANCEL, END, REQUEST, Frame
from pytriton.wire.tensors import FrameError
from pytriton.worker.inference import Inference
from pytriton.worker.interfaces import Activity, Channel, Replies
from pytriton.worker.requests import Cancellation


class StreamExecutor:
    """Answers each frame with any number of replies. The callable never runs twice at once."""

    answer = None

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._turn = threading.Lock()
        self._activity = Activity()
        self.quiet_s, self.batches = self._activity.quiet_s, self._activity.batches
        self._draining = threading.Event()

    def serve(self, channel: Channel) -> None:
        """Answer batches until the proxy has gone; generators that still run then are closed.

        Raises:
            PeerGoneError: The proxy has gone.
            FrameError: It sent what is no frame.
        """
        ConnectionBatches(channel, self._inference, self._activity, self._turn, self._draining).run()

    def drain(self) -> None:
        """Let generators finish, instead of closing them, when no more batches can arrive."""
        self._draining.set()

    def close(self) -> None:
        """Close the event loop of the callable's coroutines. Call it after the last :meth:`serve`."""
        self._inference.close()


class Running(NamedTuple):
    """A batch without its last reply."""

    frame: Frame
    replies: Replies


class ConnectionBatches:
    """One connection's batches.

    Args:
        turn: Held while the callable runs.
        draining: Set if the end of the connection does not mean that the proxy died.
    """

    def __init__(
        self,
        channel: Channel,
        inference: Inference,
        activity: Activity,
        turn: threading.Lock,
        draining: threading.Event,
    ) -> None:
        self._channel = channel
        self._inference = inference
        self._activity = activity
        self._turn = turn
        self._draining = draining
        self._running: dict[int, Running] = {}
        self._arrived: deque[Frame] = deque()
        self._cancelled: deque[int] = deque()
        self._receiving = threading.Lock()
        self._cancellations: dict[int, Cancellation] = {}

    def run(self) -> None:
        """Answer batches until the proxy has gone.

        Raises:
            PeerGoneError, FrameError: Why it ended.
        """
        try:
            while True:
                self._receive()
                self._begin_arrived()
                self._end_cancelled()
                if self._running and not self._channel.is_congested():
                    self._step()
        except PeerGoneError:
            while self._draining.is_set() and self._running:
                self._step()
            raise
        finally:
            for running in self._running.values():
                self._close(running)

    def _receive(self) -> None:
        """Receive a frame; wait for it only if there is nothing else to do."""
        with self._receiving:
            busy = self._arrived or self._cancelled or (self._running and not self._channel.is_congested())
            frame = self._channel.receive_ready() if busy else self._channel.receive(not self._running)
            if frame is not None:
                self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.kind == REQUEST:
            self._arrived.append(frame)
        elif frame.kind == CANCEL and (cancellation := self._cancellations.get(frame.number)) is not None:
            cancellation.update(frame)
            if cancellation.is_complete:
                self._cancelled.append(frame.number)

    def _look(self, cancellation: Cancellation) -> None:
        """Receive the frames that have arrived, for a callable that asks about cancelled requests. Thread-safe."""
        if cancellation.is_complete or not self._receiving.acquire(blocking=False):
            return
        try:
            while (frame := self._channel.receive_ready()) is not None:
                self._take(frame)
        except PeerGoneError:
            cancellation.complete()
        except FrameError:
            self._channel.shutdown()  # so that the serving thread notices
            cancellation.complete()
        finally:
            self._receiving.release()

    def _begin_arrived(self) -> None:
        while self._arrived:
            frame = self._arrived.popleft()
            self._activity.begin()
            frame.cancellation = self._cancellations[frame.number] = Cancellation(self._look)
            self._running[frame.number] = Running(frame, self._inference.stream(frame))

    def _end_cancelled(self) -> None:
        """Close the generators of cancelled batches."""
        while self._cancelled:
            number = self._cancelled.popleft()
            running = self._running.pop(number, None)
            if running is not None:
                self._close(running)
                self._channel.send(Frame(END, number, running.frame.requests))

    def _step(self) -> None:
        """Send the next reply of the batch that has waited longest for its turn."""
        number = next(iter(self._running))
        running = self._running.pop(number)
        with self._turn:
            reply, tensors = next(running.replies)
        try:
            self._channel.send(reply, tensors)
        except (ArenaFullError, FrameError) as error:
            self._channel.send(*self._inference.error(running.frame, error))
            self._close(running)
        except BaseException:
            self._close(running)
            raise
        else:
            if reply.more:
                self._running[number] = running
            else:
                self._close(running)

    def _close(self, running: Running) -> None:
        self._cancellations.pop(running.frame.number, None)
        try:
            with self._turn:
                running.replies.close()
        except BaseException as error:  # the callable's own clean-up
            self._inference.failures.add(error, "the callable's generator raised while it was closed")
        finally:
            self._activity.end()
