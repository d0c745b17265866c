"""One batch at a time: ``execute`` returns the responses. The fastest way, for callables that answer at once.

What costs time in ``triton_python_backend_utils`` was measured: response senders take 50 to 118 us a request and are
not used here. Nor is the server asked for cancelled requests, which takes as long, unless the worker asks.
"""

from __future__ import annotations

from typing import Any

from ..wire.arena import ArenaFullError
from ..wire.channel import Channel, PeerGoneError, UnreadError, gone_message
from ..wire.connect import WorkerConnection
from ..wire.frames import ASK, RESPONSE, Frame, cancellation
from ..wire.tensors import BadRequestError, FrameError
from .codec import Codec, failure, message_of, status_of
from .pending import is_cancelled


class SerialExecutor:
    """Answers each batch before the next."""

    def __init__(self, worker: WorkerConnection, codec: Codec) -> None:
        self._worker = worker
        self._codec = codec

    def close(self) -> None:
        """Close the connection: the worker learns that no batch is in flight any more."""
        self._worker.channel.say_goodbye()
        self._worker.channel.close()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Have the worker answer a batch; every request gets a response, an error if need be."""
        try:
            reply = self._exchange(requests)
            if reply.kind == RESPONSE:
                return self._codec.decode(reply)
            status = status_of(reply)
            if status["isolate"] and len(requests) > 1:  # only the request at fault shall fail
                return [self.execute([request])[0] for request in requests]
            return _fail(requests, message_of(status), status["code"])
        except PeerGoneError as error:
            return _fail(requests, gone_message(error), "UNAVAILABLE")
        except BadRequestError:  # one client's; nothing was sent
            return self._execute_others(requests, self._codec.refused(requests))
        except (ArenaFullError, TypeError) as error:
            return _fail(requests, str(error))
        except (LookupError, ValueError) as error:  # FrameError or a reply that makes no sense
            self._worker.channel.shutdown()  # the next batch starts on a new connection
            return _fail(requests, f"{type(error).__name__}: {error}")

    def _execute_others(self, requests: list[Any], refused: dict[int, str]) -> list[Any]:
        """Answer a batch of which some requests were refused, for these reasons."""
        others = [request for index, request in enumerate(requests) if index not in refused]
        answers = iter(self.execute(others) if others else ())
        return [
            failure(refused[index], "INVALID_ARG") if index in refused else next(answers)
            for index in range(len(requests))
        ]

    def _exchange(self, requests: list[Any]) -> Frame:
        frame, tensors = self._codec.encode(requests)
        self._worker.number(frame)
        reply = self._receive(self._worker.send(frame, tensors), frame, requests)
        if reply is None:
            reply = self._receive(self._worker.send_anew(frame, tensors), frame, requests)
        if reply is None:
            raise PeerGoneError("two workers have died")
        if reply.number != frame.number or reply.requests != frame.requests:
            raise FrameError("the reply belongs to another batch")
        return reply

    def _receive(self, channel: Channel, frame: Frame, requests: list[Any]) -> Frame | None:
        """Wait for the reply to a batch; None if the worker died before it had read the batch."""
        was_read = False
        try:
            while (reply := channel.receive()).kind == ASK:
                was_read = True  # what the worker leaves unread from now on is our answer
                cancelled = [index for index, request in enumerate(requests) if is_cancelled(request)]
                channel.send(cancellation(frame.number, len(requests), cancelled, len(cancelled) == len(requests)))
        except UnreadError:
            if was_read:
                raise
            return None
        return reply


def _fail(requests: list[Any], message: str, code: str = "INTERNAL") -> list[Any]:
    return [failure(message, code) for _ in requests]
