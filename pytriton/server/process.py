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
from pytriton.threads import keep_running

__all__ = ["ServerProcess"]

GUARD = Path(__file__).with_name("guard.py")
TAIL_LINES = 50


class ServerProcess:
    """Starts a server under a guard that takes it down with this process.

    Args:
        arguments: Path of the executable, then its arguments.
        shared_memory: Pattern of the shared-memory files to remove once the server has ended.
        notes: File in which the preloaded library, if it was compiled, notes the temporary folders that the server
            makes; they are removed then, too.
        workspace: Folder that the guard removes if this process dies first.
        on_exit: Called with the exit status, on a thread of its own, when the server has ended.
        remove: Called before that, and before :meth:`wait` returns: it removes what the server has left, so that this
            does not happen to a server that is started next.
        secrets: Values of arguments ``--name=...value`` that the guard overwrites in the server's command line, which
            every user of the machine may read, once the server has read them.
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
        remove: Callable[[], None] = lambda: None,
        secrets: Collection[str] = (),
        verbose: bool = False,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._verbose = verbose
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._on_exit, self._remove = on_exit, remove
        self._leftovers = shared_memory, str(notes)
        self._report, report = os.pipe2(os.O_CLOEXEC)
        self._status: int | None = None
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), *self._leftovers, str(workspace), str(report)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**environment, "PYTRITON_TEMPORARY_FOLDERS": str(notes)},
                pass_fds=(report, *descriptors),
                start_new_session=True,  # Ctrl+C in a terminal reaches this process alone
            )
        except BaseException:
            os.close(self._report)
            raise
        finally:
            os.close(report)
        self._send(_request(arguments, secrets))
        self._ended = threading.Event()
        forks.register(self)
        keep_running(self._follow, "pytriton-server-output")

    def after_fork(self) -> None:
        """In a forked child, drop the pipes of the guard, which is not its child."""
        self._ended = threading.Event()
        self._ended.set()
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None and not pipe.closed:
                forks.abandon(pipe.fileno())
        if self._status is None:
            forks.abandon(self._report)
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

    def kill_guard(self) -> None:
        """Kill the guard, if it does not do that, and the server with it."""
        self._guard.kill()

    def killed_by(self) -> signal.Signals | None:
        """The signal that ended the server, or its guard; None if it runs, or has exited by itself."""
        status = self._status or 0
        try:
            return signal.Signals(-status if status < 0 else status - 128)
        except ValueError:
            return None

    def failure(self, what: str, details: str = "") -> PyTritonServerError:
        """An error for a server that has ended by itself, with its last lines that are errors, or else all."""
        errors = ("E", "F", "error", "Bad option", "invalid")  # the last two after a flag that the server refuses
        lines = [line for line in self._tail if line.startswith(errors) or "rror" in line] or self._tail
        last = "; its last lines:\n" + "\n".join(lines) if any(lines) else ""
        number = self.killed_by()
        status = f"exit status {self._status}" + (f": {number.name}" if number else "")
        return PyTritonServerError(f"{what} ({status}){details and '; '}{details}{last}")

    def _send(self, command: bytes) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._guard.stdin.write(command)
            self._guard.stdin.flush()

    def _follow(self) -> None:
        """Pass the server's output on, line by line, until it ends."""
        assert self._guard.stdout is not None
        assert self._guard.stdin is not None
        if not self._guard.stdout.closed:
            log = ServerLog(self._verbose)
            for line in read_lines(self._guard.stdout.fileno(), log.flush):
                self._tail.append(line)
                log.add(line)
            log.flush()
            self._guard.stdout.close()
        if self._status is None:
            with open(self._report, "rb") as report:  # the guard's own tells nothing if it was collected elsewhere
                told = report.read()
            self._status = self._guard.wait() or int(told or -signal.SIGKILL)
        remove(*self._leftovers)  # of a guard that was killed
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._remove()
        self._ended.set()
        self._on_exit(self._status)


def _request(arguments: Sequence[str], secrets: Collection[str]) -> bytes:
    """What the guard reads first, as its command line would show it to all users."""
    items = b"\0".join(map(os.fsencode, (*secrets, *arguments)))
    return b"%d %d\n%s" % (len(secrets), len(items), items)
