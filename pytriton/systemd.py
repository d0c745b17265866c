"""Messages to systemd about a service of ``Type=notify``: that it is ready, works, or stops."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

__all__ = ["ServiceManager"]

MICROSECONDS = 1_000_000


class ServiceManager:
    """The service manager that started this process; without one, all methods do nothing.

    The protocol is that of ``sd_notify(3)``: a datagram to the socket that ``NOTIFY_SOCKET`` names.

    Attributes:
        watchdog_s: Longest time between two calls of :meth:`alive`, in seconds, before the manager ends the service;
            None if it does not watch this process.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        limit = environment.get("WATCHDOG_USEC", "")
        watches = self._address and watched and limit.isdecimal() and int(limit) > 0
        self.watchdog_s = int(limit) / MICROSECONDS if watches else None

    def ready(self, status: str) -> None:
        """Tell that the service is ready, and one line for ``systemctl status``."""
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """Tell that the service works."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def stopping(self, limit_s: float) -> None:
        """Tell that the service stops, and takes up to ``limit_s`` seconds for it."""
        self._send(f"STOPPING=1\nSTATUS=Finishing requests\nEXTEND_TIMEOUT_USEC={round(limit_s * MICROSECONDS)}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.sendto(message.encode(), address)
        except OSError:
            pass  # the manager has gone, or this process may not reach its socket: service as without one
