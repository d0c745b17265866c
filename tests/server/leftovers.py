"""What this process holds: clients must give it back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.processes import wait_for


def open_files() -> int:
    """File descriptors of this process, sockets among them."""
    return len([*Path("/proc/self/fd").iterdir()])


@contextmanager
def nothing_left() -> Iterator[None]:
    """Wait, at the end of the block, until there are no more threads and open files than before."""
    files, threads = open_files(), threading.active_count()
    yield
    gc.collect()
    wait_for(lambda: threading.active_count() <= threads, f"{threads} threads, not {threading.enumerate()}")
    wait_for(lambda: open_files() <= files, f"{files} open files")
