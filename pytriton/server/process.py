"""A running ``tritonserver``: the guard process that is its parent, its output, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from pytriton import forks
from pytriton.exceptions import PyTritonServerError
from pytriton.server.guard import remove
from pytriton.server.log import ServerLog, read_lines

__all__ = ["ServerProcess"]

GUARD = Path(__file__).with_name("guard.py")
HIDE_TOKEN_VARIABLE = "PYTRITON_HIDE_TOKEN"
NOTE_FOLDERS_VARIABLE = "PYTRITON_NOTE_FOLDERS"
TAIL_LINES = 50


class ServerProcess:
    """Starts a server under a guard that takes it down with this process.

    Args:
        arguments: Path of the executable, then its arguments.
        environment: Of the server.
        shared_memory: Pattern of the shared-memory files to remove once the server has ended.
        notes: File in which the preloaded library, if it was compiled, notes the temporary folders that the server
            makes; they are removed then, too. ``PYTRITON_NOTE_FOLDERS=0`` in the environment leaves them there.
        workspace: Folder that the guard removes if this process dies first.
        on_exit: Called with the exit status, on a thread of its own, when the server has ended.
        secrets: Values of arguments ``--name=...value`` that the guard overwrites in the server's command line, which
            every user of the machine may read, once the server has read them. ``PYTRITON_HIDE_TOKEN=0`` in the
            environment leaves them there.
        verbose: The user has asked for a verbose log.
        descriptors: What the server inherits.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        shared_memory: str,
        notes: Path,
        workspace: Path,
        on_exit: Callable[[int], None],
        secrets: Collection[str] = (),
        verbose: bool = False,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._verbose = verbose
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._on_exit = on_exit
        self._leftovers = shared_memory, str(notes)
        noted = {} if os.environ.get(NOTE_FOLDERS_VARIABLE) == "0" else {"PYTRITON_TEMPORARY_FOLDERS": str(notes)}
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), *self._leftovers, str(workspace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment, **noted},
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl+C in a terminal reaches this process alone
        )
        hidden = () if os.environ.get(HIDE_TOKEN_VARIABLE) == "0" else secrets
        self._send(_request(arguments, hidden))
        self._ended = threading.Event()
        forks.register(self)
        threading.Thread(target=self._follow, name="pytriton-server-output", daemon=True).start()

    def after_fork(self) -> None:
        """In a forked child, drop the pipes of the guard, which is not its child."""
        self._ended = threading.Event()
        self._ended.set()
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None and not pipe.closed:
                forks.abandon(pipe.fileno())
        self._guard.poll()

    def is_alive(self) -> bool:
        """Whether the server runs."""
        return not self._ended.is_set()

    def pid(self) -> int | None:
        """The server's process id; None if it has ended, or is unknown."""
        try:
            children = Path(f"/proc/{self._guard.pid}/task/{self._guard.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None  # stubs that it left come after it

    def wait(self, timeout_s: float) -> bool:
        """Wait for the server's end; False at the timeout."""
        return self._ended.wait(timeout_s)

    def interrupt(self) -> None:
        """Ask the server to exit by itself."""
        self._send(b"interrupt\n")

    def kill(self) -> None:
        """Kill the server at once, and its stubs."""
        self._send(b"kill\n")

    def killed_by(self) -> signal.Signals | None:
        """The signal that ended the server, or its guard; None if it runs, or has exited by itself."""
        status = self._guard.poll() or 0
        try:
            return signal.Signals(-status if status < 0 else status - 128)
        except ValueError:
            return None

    def failure(self, what: str) -> PyTritonServerError:
        """An error for a server that has ended by itself, with its last lines that are errors, or else all."""
        errors = ("E", "F", "error", "Bad option", "invalid")  # the last two after a flag that the server refuses
        lines = [line for line in self._tail if line.startswith(errors) or "rror" in line] or self._tail
        last = "; its last lines:\n" + "\n".join(lines) if any(lines) else ""
        number = self.killed_by()
        status = f"exit status {self._guard.poll()}" + (f": {number.name}" if number else "")
        return PyTritonServerError(f"{what} ({status}){last}")

    def _send(self, command: bytes) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._guard.stdin.write(command)
            self._guard.stdin.flush()

    def _follow(self) -> None:
        """Pass the server's output on, line by line, until it ends."""
        assert self._guard.stdout is not None
        assert self._guard.stdin is not None
        with self._guard.stdout as output:
            log = ServerLog(self._verbose)
            for line in read_lines(output.fileno(), log.flush):
                self._tail.append(line)
                log.add(line)
            log.flush()
        status = self._guard.wait()
        remove(*self._leftovers)  # of a guard that was killed
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._ended.set()
        self._on_exit(status)


def _request(arguments: Sequence[str], secrets: Collection[str]) -> bytes:
    """What the guard reads first, as its command line would show it to all users."""
    items = b"\0".join(map(os.fsencode, (*secrets, *arguments)))
    return b"%d %d\n%s" % (len(secrets), len(items), items)
