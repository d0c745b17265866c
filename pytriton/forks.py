"""Hooks by which objects drop, in a forked child, what belongs to the parent.

A forked child has copies of all objects, but none of the parent's threads. It shares sockets and pipes with the parent,
and a lock that another thread held at the fork is never released. So every object that owns a process, a thread, a
descriptor, a hook or files registers here, and its :meth:`Owner.after_fork` runs in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Owner", "abandon", "register"]


class Owner(Protocol):
    """An object that a forked child must not use as its own."""

    def after_fork(self) -> None:
        """Drop, in a forked child, what belongs to the parent.

        Replace locks, as another thread may have held them. :func:`abandon` descriptors. Wait for nothing.
        """


_owners: weakref.WeakKeyDictionary[Owner, None] = weakref.WeakKeyDictionary()


def register(owner: Owner) -> None:
    """Have ``owner.after_fork()`` called in every process that is forked while the object exists.

    Args:
        owner: Not kept alive by this.
    """
    _owners[owner] = None


def abandon(*descriptors: int) -> None:
    """Let go of a file, socket or pipe in a forked child; the parent keeps it.

    The descriptor then refers to ``/dev/null``: closing it later does not close another file with the same number, and
    flushing a buffer into it does not write to the parent's pipe.

    Args:
        descriptors: Negative ones are ignored.
    """
    for descriptor in descriptors:
        if descriptor >= 0:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, descriptor, inheritable=False)
            os.close(null)


def _tell_owners() -> None:
    failures = []
    for owner in reversed(list(_owners)):  # the newest first, as handlers of signals have to be removed
        try:
            owner.after_fork()
        except OSError:  # out of descriptors: the others still drop theirs
            pass
        except Exception as error:  # and so if one of them fails otherwise
            failures.append(error)
    if failures:
        raise failures[0]  # which the interpreter writes to standard error


os.register_at_fork(after_in_child=_tell_owners)
