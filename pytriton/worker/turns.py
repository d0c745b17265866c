"""One batch at a time: each is answered, by a plain function, on the thread that received it."""

from __future__ import annotations

import math
import threading
import time
from functools import partial

from pytriton.proxy.arena import ArenaFullError
from pytriton.proxy.channel import PeerGoneError
from pytriton.proxy.frames import ASK, CANCEL, Frame
from pytriton.proxy.tensors import FrameError
from pytriton.worker.cancellation import Cancellation
from pytriton.worker.channel import Channel, LocalChannel
from pytriton.worker.inference import Inference, Reply
from pytriton.worker.plain import PlainBatches

ASK_S = 0.05  # between two questions to the proxy; each takes it 20 to 200 us a request
ASK_SHARE = 0.1  # of a callable's time, at most, is spent on asking


class Turns:
    """Answers frames with a callable that never runs twice at once.

    Nobody tells of cancelled requests. While a callable runs that wants to know, the proxy waits for the reply, and
    answers questions.

    Args:
        inference: Calls it.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._plain = PlainBatches(inference)
        self._turn = threading.Lock()
        self._last_batch = -math.inf
        self._asking = threading.Lock()
        self._asked: tuple[Channel, Frame] | None = None  # while a callable may ask
        self._next_question = -math.inf

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return 0.0 if self._turn.locked() else time.monotonic() - self._last_batch

    def serve(self, channel: Channel) -> None:
        """Answer batch after batch.

        Raises:
            PeerGoneError: The proxy has gone.
            FrameError: It sent what is no frame.
        """
        answer = partial(self._answer_plain, channel)
        while True:  # nothing of a batch may stay referenced here while the next one is awaited
            self._answer_frame(channel, channel.receive(answer))

    def answer(self, channel: LocalChannel, message: bytearray) -> bytes:
        """Answer one batch, on the calling thread.

        Returns:
            The reply; empty if it was sent.

        Raises:
            PeerGoneError: The proxy has gone.
            FrameError: It sent what is no frame.
        """
        with self._turn:
            answer = self._plain.answer(message)
            if isinstance(answer, bytes):
                self._last_batch = time.monotonic()
                return answer
            if answer is not None:
                self._send(channel, *answer)
                self._last_batch = time.monotonic()
                return b""
        self._answer_frame(channel, channel.frame_of(message))
        return b""

    def _answer_plain(self, channel: Channel, message: bytearray) -> bool:
        with self._turn:
            answer = self._plain.answer(message)
            if isinstance(answer, bytes):
                channel.send_message(answer)
            elif answer is not None:
                self._send(channel, *answer)
            else:
                return False
            self._last_batch = time.monotonic()
            return True

    def _answer_frame(self, channel: Channel, frame: Frame) -> None:
        with self._turn:
            self._plain.learn(frame)
            frame.cancellation = Cancellation(self._look)
            self._asked = channel, frame
            reply = self._inference.answer(frame)
            with self._asking:
                self._asked = None
            self._send(channel, frame, reply)
            self._last_batch = time.monotonic()

    def _send(self, channel: Channel, frame: Frame, reply: Reply) -> None:
        try:
            channel.send(*reply)
        except (ArenaFullError, FrameError) as error:
            channel.send(*self._inference.error(frame, error))

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
                channel.send(Frame(ASK, frame.sequence, frame.requests))
                answer = channel.receive()
                if answer.kind != CANCEL or answer.sequence != frame.sequence:
                    raise FrameError(f"a frame of kind {answer.kind} is no answer to a question")
                cancellation.tell(answer)
            except PeerGoneError:
                cancellation.complete()
            except FrameError:
                channel.shutdown()
                cancellation.complete()
            end = time.monotonic()
            self._next_question = end + max(ASK_S, (end - start) / ASK_SHARE)

    def drain(self) -> None:
        """Nothing more: each batch is answered before the end of its proxy is seen."""

    def close(self) -> None:
        """Give back what the callable's coroutines used. After the last :meth:`serve`."""
        self._inference.close()
