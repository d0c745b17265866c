"""Numbers of flights that have news: put there on the server's threads, which do not wait for Python."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable
from ctypes import c_uint64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytriton.inprocess.flight_library import FlightLibrary

__all__ = ["Mailbox"]

LOGGER = logging.getLogger("pytriton.inprocess")
COUNT_BYTES = 8  # of an eventfd
AT_ONCE = 64


class Mailbox:
    """A mailbox of C++.

    Args:
        library: The native library.
        deliver: Gets each number.

    Attributes:
        pointer: The C++ object.
    """

    def __init__(self, library: FlightLibrary, deliver: Callable[[int], object]) -> None:
        self._library, self._deliver = library, deliver
        self.pointer: int = library.mailbox_new()
        self._descriptor: int = library.mailbox_descriptor(self.pointer)
        self._numbers = (c_uint64 * AT_ONCE)()
        weakref.finalize(self, library.mailbox_delete, self.pointer).atexit = False

    def read_on_a_thread(self, name: str) -> None:
        """Deliver from now on, on a thread that ends with the process."""
        threading.Thread(target=self._read_forever, name=name, daemon=True).start()

    def read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver from now on, on an event loop; to be called there."""
        loop.add_reader(self._descriptor, self._read)

    def _read_forever(self) -> None:
        while True:
            self._read()

    def _read(self) -> None:
        os.read(self._descriptor, COUNT_BYTES)  # first: whatever is put from here on into an empty box, is noticed anew
        while count := self._library.mailbox_take(self.pointer, self._numbers, AT_ONCE):
            for number in self._numbers[:count]:
                try:
                    self._deliver(number)
                except Exception:  # the others shall get theirs
                    LOGGER.exception("a response could not be delivered")
