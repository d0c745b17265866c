"""Processes that call a server and check every answer (``checked_load.py``), and what they find together."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from processes import end_with_parent

__all__ = ["Caller", "Found"]

_PROGRAM = Path(__file__).with_name("checked_load.py")
_GRACE_S = 1.0  # besides the time-outs


@dataclass
class Found:
    """What callers find.

    Attributes:
        timeout_s: What a client waits for its model and, after that, for each answer.
        calls: Their number, by what they came to: ``right``, ``wrong: ...``, or an error's class.
        longest_s: The longest wait for a response, less the time in which its caller was stopped.
    """

    timeout_s: float
    calls: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, counts: dict[str, int], waited_s: float, title: str) -> None:
        """Add what the caller of this title has reported."""
        with self._lock:
            self.calls.update(counts)
            self.longest_s = max(self.longest_s, waited_s)
            if waited_s > 2 * self.timeout_s + _GRACE_S:
                self.problems.append(f"a call of the {title} caller took {waited_s:.1f} s, beyond its timeouts")
            self.problems += [f"{title}: {count} calls: {what}" for what, count in counts.items() if "wrong" in what]


class Caller:
    """A process that calls until it is ended; on leaving the context, it is.

    Args:
        kind: Of the calls, as ``checked_load.py`` has it.
        protocol: ``http`` or ``grpc``.
        port: Of the server.
        found: Gets what it reports.

    Attributes:
        pid: Of the process.
    """

    def __init__(self, kind: str, protocol: str, port: int, found: Found) -> None:
        self.title = f"{kind} {protocol}"
        self._arguments, self._found = (kind, protocol, port, found), found
        self._stops: list[tuple[float, float]] = []
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), kind, protocol, f"--port={port}", f"--timeout={found.timeout_s}"],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is not None:
            self._found.problems.append(f"the {self.title} caller ended by itself: {self._process.returncode}")
        self._end(signal.SIGTERM)

    def kill(self) -> Caller:
        """Kill the process; returns another caller of its kind."""
        self._end(signal.SIGKILL)
        return Caller(*self._arguments)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have the process stop, in the context; that time does not count as waiting."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._stops.append((began, time.monotonic()))
            self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with suppress(json.JSONDecodeError):  # cut short by a kill
                    self._add(**json.loads(line))

    def _add(self, counts: dict[str, int], longest: tuple[float, float]) -> None:
        began, ended = longest
        stopped_s = sum(max(0.0, min(ended, last) - max(began, first)) for first, last in self._stops)
        self._found.add(counts, ended - began - stopped_s, self.title)
