"""Magic: wait until the threads of this process sleep, before a model of its server is unloaded.

Without the wait, an unload may end the process. The server (2.51) deletes a model through a list of its instances.
The thread of an instance empties that list while it loads or executes, and restores it a moment after it has reported
that it is done. If the thread loses the processor in that moment, which happens where processors are scarce, the server
reads an instance that is not there: SIGSEGV. No function of the C API tells when the list is whole again. A thread that
sleeps has restored it.

``PYTRITON_UNLOAD_WAIT=0`` in the environment turns the wait off. docs/architecture.md has more under "Magic".
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["SERVER_VERSION", "wait_until_threads_sleep"]

SERVER_VERSION = "2.51.0"  # needs the wait; a test tells when the bundled server has another version
VARIABLE = "PYTRITON_UNLOAD_WAIT"
LIMIT_S = 0.1  # other threads of the program may compute for ever
POLL_S = 0.0005
THREADS = Path("/proc/self/task")


def wait_until_threads_sleep() -> bool:
    """Wait, for a tenth of a second at most, until all other threads of this process sleep.

    Returns:
        Whether they do; True as well if the environment turns the wait off.
    """
    if os.environ.get(VARIABLE) == "0":
        return True
    end = time.monotonic() + LIMIT_S
    while is_running := _any_runs():
        if time.monotonic() >= end:
            break
        time.sleep(POLL_S)
    return not is_running


def _any_runs() -> bool:
    own = str(threading.get_native_id())
    return any(_state(thread) == "R" for thread in THREADS.iterdir() if thread.name != own)


def _state(thread: Path) -> str:
    """The letter of a thread's state in ``stat``; its name precedes it, in parentheses, and may contain others."""
    with suppress(OSError):  # the thread has ended
        return (thread / "stat").read_text(errors="replace").rpartition(")")[2].split(maxsplit=1)[0]
    return ""
