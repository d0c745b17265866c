"""Which requests of a batch nobody waits for any more."""

from __future__ import annotations

import json
from collections.abc import Callable

from pytriton.proxy.frames import Frame
from pytriton.proxy.tensors import FrameError

__all__ = ["Cancellation"]


class Cancellation:
    """What is known of the cancelled requests of one batch. For any thread.

    Args:
        look: Called before an answer is given, to have news passed to :meth:`tell`. It must not wait long, nor raise.

    Attributes:
        is_complete: Whether nobody waits for any request of the batch.
    """

    __slots__ = ("_look", "_requests", "is_complete")

    def __init__(self, look: Callable[[Cancellation], None]) -> None:
        self._look = look
        self._requests: frozenset[int] = frozenset()
        self.is_complete = False

    def includes(self, request: int) -> bool:
        """Whether a request is cancelled, by its index in the batch."""
        if not self.is_complete and request not in self._requests:
            self._look(self)
        return self.is_complete or request in self._requests

    def tell(self, frame: Frame) -> None:
        """Take in what the proxy told.

        Args:
            frame: A CANCEL frame.

        Raises:
            FrameError: Its metadata make no sense.
        """
        try:
            told = json.loads(frame.metadata)
            requests, is_complete = self._requests.union(told["requests"]), bool(told["all"])
        except (LookupError, TypeError, ValueError) as error:
            raise FrameError(f"a cancellation says {frame.metadata!r}") from error
        self._requests, self.is_complete = requests, self.is_complete or is_complete

    def complete(self) -> None:
        """Nobody waits any more, because the proxy has gone."""
        self.is_complete = True
