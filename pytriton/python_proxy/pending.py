"""A batch whose requests are answered later, each through the server's sender for it, and its cancelled requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb_utils

from ..wire.channel import Channel
from .codec import failure


class PendingBatch:
    """The requests of one call, until each has had its last response. For any thread.

    Args:
        requests: The server's; their inputs stay valid as long as they are referenced.
        senders: The server's ways to answer them, one each.
        decoupled: Whether a request may get no response; else it must get one.
    """

    def __init__(self, requests: list[Any], senders: Sequence[Any], decoupled: bool) -> None:
        self.requests = requests
        self.channel: Channel | None = None  # that it is sent over
        self.is_sent = False  # until then, it may still be sent over another one
        self.since = time.monotonic()
        self._decoupled = decoupled
        self._lock = threading.Lock()
        self._senders: list[Any] = list(senders)  # None in place of those that are done with

    def send(self, responses: Sequence[Any], final: bool) -> None:
        """Send a response to each request; an error is its last one."""
        with self._lock:
            for index, response in enumerate(responses):
                self._send(index, response, final or response.has_error())

    def end(self) -> None:
        """Say to each request that no response follows."""
        with self._lock:
            for index in range(len(self._senders)):
                self._send(index, None, last=True)

    def fail(self, message: str, code: str = "INTERNAL") -> None:
        """Answer each request with an error."""
        self.send([failure(message, code) for _ in self.requests], final=True)

    def refuse(self, reasons: dict[int, str]) -> None:
        """Before the batch is sent: answer requests that cannot travel, by their index, and forget them."""
        with self._lock:
            for index, reason in reasons.items():
                self._send(index, failure(reason, "INVALID_ARG"), last=True)
            left = [index for index in range(len(self.requests)) if index not in reasons]
            self.requests = [self.requests[index] for index in left]
            self._senders = [self._senders[index] for index in left]

    def alone(self) -> list[PendingBatch]:
        """Each request as a batch of its own, in place of this one."""
        with self._lock:
            return [
                PendingBatch([request], [sender], self._decoupled)
                for request, sender in zip(self.requests, self._senders, strict=True)
                if sender is not None
            ]

    def drop_cancelled(self) -> list[int]:
        """Answer requests that were cancelled since the last time; returns their indices."""
        dropped = []
        with self._lock:
            for index, sender in enumerate(self._senders):
                if sender is not None and is_cancelled(sender):
                    cancelled = failure("the request was cancelled", "CANCELLED")
                    # The server may keep a model for ever of which it got a response to a cancelled stream.
                    self._send(index, None if self._decoupled else cancelled, last=True)
                    dropped.append(index)
        return dropped

    def is_done(self) -> bool:
        """Whether each request has had its last response."""
        return not any(self._senders)

    def _send(self, index: int, response: Any, last: bool) -> None:
        sender = self._senders[index]
        if sender is None:
            return
        if last:
            self._senders[index] = None
        try:
            sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)
        except pb_utils.TritonModelException as error:  # the server's; other requests shall not suffer from it
            self._senders[index] = None
            pb_utils.Logger.log_warn(f"pytriton: a response could not be sent: {error}")


def is_cancelled(asked: Any) -> bool:
    """Ask the server's request, or the sender of its responses, which takes 20 to 200 us."""
    try:
        return bool(asked.is_cancelled())
    except pb_utils.TritonModelException:
        return False
