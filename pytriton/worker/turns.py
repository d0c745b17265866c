"""One batch at a time: each is answered, by a plain function, on the thread that received it."""

from __future__ import annotations

import math
import threading
import time

from pytriton.proxy.arena import ArenaFullError
from pytriton.proxy.channel import Channel
from pytriton.proxy.frames import FrameError
from pytriton.worker.inference import Inference


class Turns:
    """Answers frames with a callable that never runs twice at once.

    Args:
        inference: Calls it.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._turn = threading.Lock()
        self._last_batch = -math.inf

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return 0.0 if self._turn.locked() else time.monotonic() - self._last_batch

    def serve(self, channel: Channel) -> None:
        """Answer batch after batch.

        Raises:
            PeerGoneError: The proxy has gone.
            FrameError: It sent what is no frame.
        """
        while True:
            self._step(channel)

    def _step(self, channel: Channel) -> None:
        """Answer one batch. Nothing of it may stay referenced here while the next one is awaited."""
        frame = channel.receive()
        with self._turn:
            reply, tensors = self._inference.answer(frame)
            try:
                channel.send(reply, tensors)
            except (ArenaFullError, FrameError) as error:
                channel.send(*self._inference.error(frame, error))
            self._last_batch = time.monotonic()

    def close(self) -> None:
        """Give back what the callable's coroutines used. After the last :meth:`serve`."""
        self._inference.close()
