"""Threads that do not end unnoticed.

A thread that raises ends, and says so on standard error at most, while what it serves seems to go on: models that are
ready and do not answer, a dead server that nobody launches again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.logs import get_logger
from pytriton.restarts import Backoff

__all__ = ["check_threads", "default_threads", "is_traced", "keep_running"]

LOGGER = get_logger("pytriton.threads")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0


def check_threads(what: str, *modules: str, instead: str) -> None:
    """Refuse to start where gevent has replaced threads or waits: ours then wait for each other, or for ever.

    Args:
        modules: Of the standard library, that it needs as they are.
        instead: What the user can do.

    Raises:
        PyTritonInvalidOperationError: ``gevent.monkey`` has patched one of them.
    """
    monkey = sys.modules.get("gevent.monkey")  # which tritonclient imports, too
    patched = [name for name in modules if monkey is not None and monkey.is_module_patched(name)]
    if patched:
        raise PyTritonInvalidOperationError(
            f"{what} does not work here, because gevent.monkey has patched {' and '.join(patched)}: {instead}"
        )


def keep_running(
    target: Callable[[], object], name: str, on_failure: Callable[[BaseException], object] | None = None
) -> threading.Thread:
    """Start a daemon thread that goes on until a function returns.

    Whatever the function raises is logged, also SystemExit.

    Args:
        target: Called again after it has raised, at most 1 s later; it then finds what it had done before.
        on_failure: Declares dead what the thread served; the function is then not called again.
    """
    process = os.getpid()

    def run() -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            try:
                target()
            except BaseException as error:
                if os.getpid() != process:  # a child that was forked on this thread
                    raise
                if sys.is_finalizing():
                    return
                what = "it goes on" if on_failure is None else "what it served has ended"
                LOGGER.exception("thread %s failed; %s", name, what)
                if on_failure is not None:
                    on_failure(error)
                    return
            else:
                return
            time.sleep(backoff.next_s())

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def default_threads() -> int:
    """As many as a worker process was given, or all cores that this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")  # which worker processes have
    return int(given) if given.isdecimal() and int(given) else len(os.sched_getaffinity(0))


def is_traced(pid: int | None) -> bool:
    """Whether a debugger holds a process, so that it does not hang."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("TracerPid:"):
                return line.split()[1] != "0"
    return False
