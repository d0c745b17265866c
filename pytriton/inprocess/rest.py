"""Waiting until nothing of this process runs, before models of its server go.

The server (2.51) deletes a model by way of a list of instances, which the instance's own thread empties while it loads,
or has a request. Both count as done a moment before the list is whole again. If the thread loses the processor in that
moment, as happens where processors are scarce, the server reads what is not there: SIGSEGV.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["wait_for_rest"]

LIMIT_S = 0.1  # as others may compute for ever
POLL_S = 0.0005
THREADS = Path("/proc/self/task")


def wait_for_rest() -> None:
    """Wait, for a tenth of a second at most, until all other threads of this process sleep."""
    end = time.monotonic() + LIMIT_S
    while _runs() and time.monotonic() < end:
        time.sleep(POLL_S)


def _runs() -> bool:
    own = str(threading.get_native_id())
    return any(_state(thread) == "R" for thread in THREADS.iterdir() if thread.name != own)


def _state(thread: Path) -> str:
    """Its letter; the name before it is in parentheses, and may hold others."""
    with suppress(OSError):  # it has ended
        return (thread / "stat").read_text(errors="replace").rpartition(")")[2].split(maxsplit=1)[0]
    return ""
