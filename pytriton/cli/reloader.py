"""``pytriton serve --reload``: a child process that serves, and a new one whenever the source changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytriton.signals import ending_signals, kill_with_parent

if TYPE_CHECKING:
    from watchfiles import Change

__all__ = ["PARENT_VARIABLE", "Reloader", "end_with_parent", "syntax_error"]

PARENT_VARIABLE = "PYTRITON_RELOADER"
POLL_MS = 200
STOP_TIMEOUT_S = 40.0  # longer than Triton's own limit for requests in flight


class Reloader:
    """Keeps a program running in a child process, with the newest source that compiles.

    The first SIGINT or SIGTERM ends the child gracefully; the second one also ends its requests in flight.

    Args:
        folders: The folders to watch, with their subfolders except ``.venv``, ``.git`` and the like.
        say: Shows a message to the user.
    """

    def __init__(self, command: Sequence[str], folders: Sequence[Path], say: Callable[[str], None]) -> None:
        self._command = command
        self._folders = folders
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()

    def run(self) -> None:
        """Serve until a signal comes."""
        with ending_signals(self._end, self._terminate):
            try:
                self._watch()
            finally:
                self._stop()

    def _watch(self) -> None:
        from watchfiles import PythonFilter, watch

        changes = watch(
            *self._folders,
            watch_filter=PythonFilter(),
            stop_event=self._ending,
            rust_timeout=POLL_MS,
            yield_on_timeout=True,
        )
        next(changes, None)  # watchfiles reports every change from now on
        self._say(f"Watching {', '.join(map(str, self._folders))} for changes.")
        self._start()
        for changed in changes:
            self._check_child()
            if changed:
                self._on_change(changed)

    def _on_change(self, changed: Iterable[tuple[Change, str]]) -> None:
        paths = sorted(path for _, path in changed)
        names = ", ".join(os.path.relpath(path) for path in paths)
        for path in paths:
            if error := syntax_error(Path(path)):
                state = "the previous version continues" if self._child else "nothing is served"
                self._say(f"{names} changed, but {error}; {state}. Correct it to reload.")
                return
        self._say(f"{names} changed; starting again.")
        self._stop()
        if not self._ending.is_set():
            self._start()

    def _start(self) -> None:
        self._child = subprocess.Popen(
            self._command,
            # Two changes within a second may leave size and time as the compiled file recorded them.
            env={**os.environ, PARENT_VARIABLE: str(os.getpid()), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl+C reaches this process alone, which forwards it once
        )

    def _check_child(self) -> None:
        status = None if self._child is None else self._child.poll()
        if status is not None:
            self._child = None
            if not self._ending.is_set():
                how = f"signal {-status}" if status < 0 else f"exit status {status}"
                self._say(f"The program has ended ({how}); it starts again when its source changes.")

    def _stop(self) -> None:
        child = self._child
        if child is None:
            return
        self._terminate()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._say(f"The program did not end in {STOP_TIMEOUT_S:.0f} s; it is killed.")
            child.kill()
            child.wait()
        self._child = None

    def _end(self, number: signal.Signals) -> None:
        self._ending.set()

    def _terminate(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)


def end_with_parent() -> None:
    """In a child of :class:`Reloader`: ask the kernel to kill this process when the parent dies."""
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is not None and not kill_with_parent(int(parent)):
        sys.exit("the parent process has died")


def syntax_error(path: Path) -> str | None:
    """The reason, in one line, why a source file does not compile; None if it compiles or does not exist."""
    try:
        compile(path.read_bytes(), str(path), "exec")
    except FileNotFoundError:
        return None
    except SyntaxError as error:
        return f"line {error.lineno} has a syntax error: {error.msg}"
    except ValueError as error:  # NUL bytes
        return f"it does not compile: {error}"
    return None
