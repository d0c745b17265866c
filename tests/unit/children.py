"""Children of the tests, which are forked or new."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 30
ROOT = Path(__file__).parents[2]
NEW = """
import pickle, sys
work, arguments = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(work(*arguments)))
"""


class Child:
    """Does some work in a forked process.

    Args:
        work: Returns what can be pickled.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, as there are threads
            self.pid = os.fork()
        if not self.pid:
            _work(work, writer)
        os.close(writer)
        self._reader = reader

    def result(self) -> Any:
        """Wait for the end of the child; what the work returned, or fail with what it raised."""
        with open(self._reader, "rb") as pipe:
            answer = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert status == 0, f"the child ended with status {status}"
        returned, error = pickle.loads(answer)
        assert not error, error
        return returned


def _work(work: Callable[[], Any], writer: int) -> None:
    signal.alarm(PATIENCE_S)  # ends a child that hangs
    try:
        answer = work(), ""
    except BaseException:
        answer = None, traceback.format_exc()
    try:
        os.write(writer, pickle.dumps(answer))
    finally:
        os._exit(0)


def in_child(work: Callable[[], Any]) -> Any:
    """What some work returns in a forked process."""
    return Child(work).result()


def in_child_of_a_thread(work: Callable[[], Any]) -> Any:
    """The same, with a thread other than the main one forking."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(in_child(work)))
    thread.start()
    thread.join()
    return results[0]


def in_new_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """What some work returns in a process which has nothing of this one: no library of another test, no thread.

    Args:
        work: A function of a module.
    """
    given = pickle.dumps((work, arguments))
    done = subprocess.run([sys.executable, "-c", NEW], input=given, capture_output=True, cwd=ROOT, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)
