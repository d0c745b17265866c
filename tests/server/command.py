"""The command ``pytriton`` in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.server.processes import DEADLINE_S, descendants, is_alive, wait_for


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; the variables are added to the environment."""
    return subprocess.run(
        [sys.executable, "-m", "pytriton", *arguments],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
    )


class Command:
    """A command that runs until it is ended.

    Args:
        home: Folder for workspaces.
        arguments: Of the command.
    """

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self._lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytriton", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTRITON_HOME": str(home)},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self._lines.append(line)

    @property
    def output(self) -> str:
        """What it has written so far."""
        return "".join(self._lines)

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until it has written a text so often."""
        wait_for(lambda: self.output.count(text) >= times or self.process.poll() is not None, f"{text!r}")
        if self.output.count(text) < times:
            status = self.wait()
            raise AssertionError(f"exit status {status}, without {text!r}: {self.output}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it and wait for its end; returns its exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; returns its exit status."""
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status

    def assert_nothing_left(self, family: list[int]) -> None:
        """Processes that it had, and its workspaces, are gone."""
        wait_for(lambda: not any(map(is_alive, family)), "all processes to end")
        wait_for(lambda: not [*self.home.iterdir()], "the workspace to be removed")

    def family(self) -> list[int]:
        """All processes below it."""
        return descendants(self.process.pid)

    def kill(self) -> None:
        """Make sure that nothing outlives the test."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
