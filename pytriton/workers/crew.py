"""Those who answer the batches of a model, one for each of its instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from pytriton.workers.processes import Processes

__all__ = ["Crew", "Infer", "InferFunc", "Member"]

InferFunc = Callable[..., Any]
Infer = InferFunc | Sequence[InferFunc] | Processes


class Member(Protocol):
    """Answers the batches of one instance. For any thread."""

    @property
    def was_dismissed(self) -> bool:
        """Whether the server has ended the last proxy that went: it did not die."""

    def is_alive(self) -> bool:
        """Whether the instance can serve, now or soon."""

    def is_connected(self) -> bool:
        """Whether a proxy is connected."""

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""

    def wait_disconnected(self, timeout_s: float) -> bool:
        """Wait until no proxy is connected, so that no batch is in flight, or :meth:`close`. False at the timeout."""

    def close(self) -> None:
        """End the connection; what runs goes on until the callable has returned."""


class Crew(Protocol):
    """The members of a model.

    Attributes:
        members: One per instance, once they have been started.
    """

    members: list[Member]

    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        """Have the members wait for their proxies, warmed up.

        Args:
            sockets: Path of the sockets less their ``.<instance>`` suffix.
            on_disconnect: Called when the server's side of an instance has gone.
            on_unrecoverable: Called when a callable asks to stop the server.

        Returns:
            Whether the proxies are to send batches before earlier ones are answered.
        """

    def rebind(self, infer: Infer) -> None:
        """Have other callables answer the batches that come from now on.

        Raises:
            PyTritonValidationError: There are more or fewer than instances, or they are of another kind.
        """

    def interrupt(self) -> None:
        """End what somebody waits for, a start or a rebind, because all is to end soon. From any thread."""

    def disconnect(self) -> None:
        """End the members, each when its callable has returned. From any thread."""

    def close(self) -> None:
        """The same, and forget the members and the callables."""
