"""Observing one batch."""

from __future__ import annotations

from collections.abc import Sequence

from pytriton.proxy.types import Request

__all__ = ["Watch"]


class Watch:
    """Observes one batch, from its arrival at the worker to its last reply. Does nothing by itself.

    The callable runs between :meth:`resume` and :meth:`pause`: once if it answers at once, and once for each response
    if it is a generator, in the same thread or task each time.
    """

    def begin(self, requests: Sequence[Request]) -> None:
        """The callable is about to get these; not told of callables that take whole batches without requests."""

    def resume(self) -> None:
        """The callable runs."""

    def pause(self) -> None:
        """The callable has returned, yielded or raised."""

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """A request has failed, or with None all of them.

        Args:
            error: Why.
            request: Its index in the batch.
            again: The requests will come again, each alone, instead of being told.
        """

    def end(self, cancelled: bool = False) -> None:
        """No reply follows, because the last one was made, or because nobody waits for it any more."""
