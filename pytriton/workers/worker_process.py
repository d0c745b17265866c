"""One worker process: its start, what it tells and prints, its end."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import Any

from pytriton import forks
from pytriton.workers.reports import Reports, log_record

__all__ = ["WorkerProcess"]

LOGGER = logging.getLogger("pytriton.workers")

READ_BYTES = 65536
LINE_BYTES = 16384  # longer ones are logged in pieces
TAIL_LINES = 50
# The paths come first: this package may be on them alone. "__main__" is not imported, as nothing of it travels by name.
BOOTSTRAP = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from pytriton.workers.worker_main import main
main(*map(int, sys.argv[2:5]))
"""


class WorkerProcess:
    """Starts a worker. The thread that does must live as long: the kernel ends the worker with it.

    Args:
        name: Of the worker.
        environment: Of the process.
        listener: The socket which the instance's proxy connects to.

    Raises:
        OSError: No process can be started.
    """

    def __init__(self, name: str, environment: dict[str, str], listener: socket.socket) -> None:
        self._name = name
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = b""
        self._killer: threading.Timer | None = None
        ours, theirs = Pipe()
        self._reports = Reports(ours)
        paths = json.dumps([path for path in sys.path if isinstance(path, str)])
        numbers = map(str, (theirs.fileno(), listener.fileno(), os.getpid()))
        warnings = [f"-W{option}" for option in sys.warnoptions]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *warnings, "-c", BOOTSTRAP, paths, *numbers, name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=(theirs.fileno(), listener.fileno()),
                start_new_session=True,  # Ctrl+C in a terminal reaches the launching process alone; see wait()
            )
        except BaseException:
            self._reports.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, drop the worker's output; it is no child of this process."""
        if self._process.stdout is not None and not self._process.stdout.closed:
            forks.abandon(self._process.stdout.fileno())
        self._process.poll()

    def tell(self, word: str, value: Any = None) -> None:
        """Send a command; from any thread."""
        self._reports.tell(word, value)

    def stop(self) -> None:
        """Have the process end when its callable has returned; from any thread, and without waiting for anything."""
        self._reports.end()

    def kill(self) -> None:
        """Kill the process at once; from any thread."""
        self._process.kill()

    def kill_after(self, seconds: float) -> None:
        """Kill the process in so many seconds, unless it has ended or :meth:`spare` was called."""
        self.spare()
        self._killer = threading.Timer(seconds, self._kill_late, (seconds,))
        self._killer.daemon = True
        self._killer.start()

    def spare(self) -> None:
        """Take :meth:`kill_after` back."""
        if self._killer is not None:
            self._killer.cancel()

    def _kill_late(self, seconds: float) -> None:
        LOGGER.warning("worker %s (process %d) took longer than %.0f s and is killed", self._name, self.pid, seconds)
        self.kill()

    def events(self) -> Iterator[tuple[str, Any]]:
        """What the worker tells until it has ended; its output and records are logged meanwhile."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        ended = os.pidfd_open(self.pid)  # children of its own may hold its pipes open
        poll = select.poll()
        for descriptor in (self._reports.fileno(), output, ended):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = [descriptor for descriptor, _ in poll.poll()]
                if output in ready and not self._read(output):
                    poll.unregister(output)
                if self._reports.fileno() in ready:
                    heard = self._reports.hear()
                    if heard is None:
                        poll.unregister(self._reports.fileno())
                    elif heard[0] == "log":
                        log_record(self._name, heard[1])
                    else:
                        yield heard
                elif ended in ready and output not in ready:
                    return
        finally:
            os.close(ended)

    def wait(self) -> str:
        """Wait for the end of the process and give its descriptors back; returns how it ended, with its last lines.

        What it has started and left running is killed: a fork of it would keep the proxy's connection open.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        self.spare()
        if self._rest:
            self._log(self._rest)
        self._reports.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        how = f"exit status {status}" if status >= 0 else f"signal {_signal_name(-status)}"
        return f"{how}; its last lines:\n" + "\n".join(self._tail) if self._tail else how

    def _read(self, output: int) -> bool:
        """Log the lines that are there; whether there may be more."""
        data = os.read(output, READ_BYTES)
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._log(line)
        self._rest = b"\r".join(rest.rsplit(b"\r", 2)[-2:])  # bars of progress write a line again and again
        if len(self._rest) > LINE_BYTES:
            self._log(self._rest)
            self._rest = b""
        return bool(data)

    def _log(self, line: bytes) -> None:
        text = line.removesuffix(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")  # as a terminal shows it
        self._tail.append(text)
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("[%s] %s", self._name, text)
        else:  # what is printed shall not vanish because nobody has set logging up
            with suppress(OSError, ValueError):  # our own output may be closed
                print(f"[{self._name}] {text}", flush=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
