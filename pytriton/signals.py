"""Signals that end a serving process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ending_signals(first: Callable[[signal.Signals], None], again: Callable[[], None]) -> Iterator[None]:
    """While in the context, SIGINT and SIGTERM call ``first``, and any later ones ``again``.

    A handler that the program had installed is called too. Outside of the main thread signals are left alone: Python
    handles them only there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in ENDING}
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        again() if received else first(signal.Signals(number))
        received.append(number)
        theirs = previous[signal.Signals(number)]
        if callable(theirs) and theirs is not signal.default_int_handler:
            theirs(number, frame)

    for number in ENDING:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, theirs in previous.items():
            signal.signal(number, signal.SIG_DFL if theirs is None else theirs)
