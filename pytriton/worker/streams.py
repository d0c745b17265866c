"""Several batches at a time, for plain functions and generators: the generators take turns on one thread."""

from __future__ import annotations

import logging
import threading

from pytriton.proxy.arena import ArenaFullError
from pytriton.proxy.channel import Channel
from pytriton.proxy.frames import CANCEL, END, REQUEST, Frame, FrameError
from pytriton.worker.activity import Activity
from pytriton.worker.inference import Inference, Replies

LOGGER = logging.getLogger("pytriton.worker")


class Streams:
    """Answers each frame with any number of replies. The callable never runs twice at once.

    Args:
        inference: Calls the callable.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._turn = threading.Lock()
        self._activity = Activity()
        self.quiet_s = self._activity.quiet_s

    def serve(self, channel: Channel) -> None:
        """Answer batches until the proxy has gone; generators that still run then are closed.

        Raises:
            PeerGoneError: The proxy has gone.
            FrameError: It sent what is no frame.
        """
        running: dict[int, tuple[Frame, Replies]] = {}
        try:
            while True:
                ready = running and not channel.is_congested()
                frame = channel.receive_ready() if ready else channel.receive()
                if frame is None:
                    self._step(channel, running)
                elif frame.kind == REQUEST:
                    self._activity.begin()
                    running[frame.sequence] = frame, self._inference.stream(frame)
                elif frame.kind == CANCEL and frame.sequence in running:
                    frame, replies = running.pop(frame.sequence)
                    self._close(replies)
                    channel.send(Frame(END, frame.sequence, frame.requests))
                del frame
        finally:
            for _, replies in running.values():
                self._close(replies)

    def _step(self, channel: Channel, running: dict[int, tuple[Frame, Replies]]) -> None:
        """Send the next reply of the batch that has waited longest for its turn."""
        sequence = next(iter(running))
        frame, replies = running.pop(sequence)
        with self._turn:
            reply, tensors = next(replies)
        try:
            channel.send(reply, tensors)
        except (ArenaFullError, FrameError) as error:
            channel.send(*self._inference.error(frame, error))
            self._close(replies)
        except BaseException:
            self._close(replies)
            raise
        else:
            if reply.more:
                running[sequence] = frame, replies
            else:
                self._close(replies)

    def _close(self, replies: Replies) -> None:
        try:
            with self._turn:
                replies.close()
        except BaseException:  # the callable's own clean-up
            LOGGER.warning("the inference callable could not be closed", exc_info=True)
        finally:
            self._activity.end()

    def close(self) -> None:
        """Give back what the callable's coroutines used. After the last :meth:`serve`."""
        self._inference.close()
