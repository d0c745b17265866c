"""Signals that end a serving process, and those that a worker process ignores."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pytriton import forks

__all__ = ["ENDING", "ending_signals", "ignored_signals", "kill_with_parent", "reset_inherited_signals"]

Handler = Callable[[int, FrameType | None], None]

PR_SET_PDEATHSIG = 1
ENDING = (signal.SIGINT, signal.SIGTERM)
IGNORED = (*ENDING, signal.SIGHUP)


@contextmanager
def ending_signals(first: Callable[[signal.Signals], None], again: Callable[[], None]) -> Iterator[None]:
    """While in the context, SIGINT and SIGTERM call ``first``, and any later ones ``again``.

    A handler that the program had installed is called too. Outside of the main thread signals are left alone: Python
    handles them only there. In processes that are forked meanwhile, the program's own handlers are installed again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        again() if received else first(signal.Signals(number))
        received.append(number)
        theirs = installed.previous.get(number)
        if callable(theirs) and theirs is not signal.default_int_handler:
            theirs(number, frame)

    installed = _Handlers(ENDING, handle)
    try:
        yield
    finally:
        installed.remove()


@contextmanager
def ignored_signals() -> Iterator[None]:
    """While in the context, SIGINT, SIGTERM and SIGHUP do nothing to this process, but to those that it starts.

    A service manager sends them to all processes of a service; the one that launched this process decides what follows.
    ``SIG_IGN`` would be inherited by every program that is started from here, which could not be terminated then.
    """
    installed = _Handlers(IGNORED, lambda *_: None)
    try:
        yield
    finally:
        installed.remove()


def reset_inherited_signals() -> None:
    """At the start of a process of ours, undo what its parent had blocked or ignored, such as SIGCHLD.

    Within :func:`ignored_signals`, because signals that were blocked may be pending. SIGPIPE and SIGXFSZ stay ignored,
    which is Python's doing.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def kill_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent dies.

    Args:
        parent: The parent's process id.

    Returns:
        Whether the parent is still there.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


class _Handlers:
    """A handler of signals, until it is removed, also in forked children.

    Attributes:
        previous: The handlers that the program had installed.
    """

    def __init__(self, numbers: Sequence[signal.Signals], handler: Handler) -> None:
        self.previous: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
        forks.register(self)
        _installed.append(self)
        for number in numbers:
            signal.signal(number, handler)

    def remove(self) -> None:
        """Install the previous handlers again; one that was set from C becomes the default. May be called twice."""
        while self.previous:
            number, theirs = self.previous.popitem()
            signal.signal(number, signal.SIG_DFL if theirs is None else theirs)
        if self in _installed:
            _installed.remove(self)

    def after_fork(self) -> None:
        """In a forked child, have signals do what they do without us."""
        self.remove()


_installed: list[_Handlers] = []
_masks = threading.local()


def _hold_signals() -> None:
    """Before a fork, block the signals: the child would lose one that comes before it has removed our handlers."""
    if _installed:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)


def _release_signals() -> None:
    mask = _masks.__dict__.pop("before", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# After the hook of pytriton.forks, which removes the handlers.
os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_release_signals)
