"""One child process, a worker or one that runs the application: its start, commands, reports, output, and its end."""

from __future__ import annotations

import json
import logging
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Pipe
from typing import IO, Any, Protocol

from pytriton import forks
from pytriton.logs import get_logger
from pytriton.pool.pipes import MessagePipe, log_child_record
from pytriton.threads import is_traced
from pytriton.wire.control import ALIVE, ANSWER, CONNECTION, CONNECTION_DESCRIPTORS, LOG, READY

__all__ = ["ALIVE_PERIOD_S", "ChildProcess", "Launch", "Program", "RunningProcess"]

LOGGER = get_logger("pytriton.workers")

ALIVE_PERIOD_S = 5.0  # in which a process that is to tell that it is alive does so
READ_BYTES = 65536
MAX_LINE_BYTES = 16384  # longer lines are logged in pieces
TAIL_LINES = 50
# The paths come first, as they may lead to this package. "__main__" is not imported: nothing of it is pickled by name.
# Imports make many objects and hardly any garbage.
BOOTSTRAP = """
import gc, importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
gc.disable()
module = importlib.import_module(sys.argv[2])
gc.enable()
module.main(*map(int, sys.argv[3:-1]))
"""


class RunningProcess(Protocol):
    """A process that was started, as :class:`subprocess.Popen` shows it."""

    @property
    def pid(self) -> int:
        """Its id."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """What it writes."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """What it writes as errors, if that is apart."""

    def kill(self) -> None:
        """Kill it; does nothing after its end."""

    def abandon(self) -> None:
        """In a forked child of the process that has started it: drop what belongs to that."""

    def wait(self) -> int | None:
        """Wait for its end; returns its exit status, negative for a signal, and None if nobody knows it."""


Launch = Callable[[str, int, int, Sequence[int], bool], RunningProcess]
"""Starts a process: its name, the descriptors of its spec and of its pipe, others, and whether its output is logged."""


class Interpreter(subprocess.Popen[bytes]):
    """A :class:`RunningProcess` that is a child of this process."""

    def abandon(self) -> None:
        """In a forked child: note that it is no child of that, or its end would be waited for."""
        self.poll()


@dataclass(frozen=True)
class Program:
    """Starts an interpreter.

    Attributes:
        module: Its ``main`` gets four or more integers, see :func:`pytriton.pool.pipes.run_child`.
    """

    module: str
    environment: dict[str, str]

    def __call__(self, name: str, spec: int, pipe: int, descriptors: Sequence[int], logs_output: bool) -> Interpreter:
        """Start it; the arguments are those of :data:`Launch`."""
        paths = json.dumps([path for path in sys.path if isinstance(path, str)])
        warnings = [f"-W{option}" for option in sys.warnoptions]
        numbers = map(str, (spec, pipe, os.getpid(), *descriptors))
        return Interpreter(
            [sys.executable, *warnings, "-c", BOOTSTRAP, paths, self.module, *numbers, name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if logs_output else None,
            stderr=subprocess.STDOUT if logs_output else subprocess.PIPE,
            env=self.environment,
            pass_fds=(spec, pipe, *descriptors),
            start_new_session=True,  # Ctrl+C in a terminal reaches the launching process alone; see wait()
        )


class ChildProcess:
    """Starts a process. The kernel kills an interpreter when the thread that made this object ends.

    Args:
        name: For the log, and for ``ps``.
        launch: Starts it.
        spec: What the program is given. It is passed in a memory file, as a pipe would block while it is full.
        descriptors: That the process inherits.
        changed: Notified of answers and of the end, with its lock held. :meth:`ask` waits for it.
        logger: For what it writes.
        logs_output: Whether its standard output is logged, too; else it is that of this process, and standard error is
            for warnings.

    Raises:
        OSError: No process can be started.
    """

    def __init__(
        self,
        name: str,
        launch: Launch,
        spec: bytes,
        descriptors: Sequence[int] = (),
        changed: threading.Condition | None = None,
        logger: logging.Logger = LOGGER,
        logs_output: bool = True,
    ) -> None:
        self._name = name
        self._output = _Output(name, logger, logging.INFO if logs_output else logging.WARNING)
        self._changed = changed or threading.Condition()
        self._asking = threading.Lock()
        self._numbers = count()
        self._answers: dict[int, Any] = {}
        self._has_ended = False
        ours, theirs = Pipe()
        self._pipe = MessagePipe(ours)
        try:
            with open(os.memfd_create("pytriton-child"), "wb") as spec_file:
                spec_file.write(spec)
                spec_file.seek(0)
                self._process = launch(name, spec_file.fileno(), theirs.fileno(), descriptors, logs_output)
        except BaseException:
            self._pipe.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        stream = self._process.stdout or self._process.stderr
        assert stream is not None
        self._stream = stream
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, drop the process's output; it is no child of this process."""
        self._changed, self._asking = threading.Condition(), threading.Lock()
        if not self._stream.closed:
            forks.abandon(self._stream.fileno())
        self._process.abandon()

    def send(self, command: bytes, *details: Any) -> None:
        """Send a command. Thread-safe; blocks while the pipe is full."""
        self._pipe.send(command, *details)

    def send_descriptors(self, command: bytes, descriptors: Sequence[int], *details: Any) -> None:
        """Send a command with copies of descriptors. Thread-safe."""
        self._pipe.send_descriptors(command, descriptors, *details)

    def ask(
        self, question: bytes, value: Any, timeout_s: float, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Any:
        """Send a question and wait for its answer. Thread-safe.

        A process that has not read the whole question by then cannot be sent anything else, and ends.

        Returns:
            None at the timeout, also while another question is asked; if the process has ended, or if ``is_cancelled``
            returns true.
        """
        deadline = time.monotonic() + timeout_s
        if not self._asking.acquire(timeout=max(0.0, timeout_s)):
            return None
        try:
            number = next(self._numbers)
            sender = threading.Thread(target=self.send, args=(question, number, value), daemon=True)
            sender.start()
            with self._changed:
                self._changed.wait_for(
                    lambda: number in self._answers or self._has_ended or is_cancelled(),
                    max(0.0, deadline - time.monotonic()),
                )
                answer = self._answers.get(number)
                self._answers.clear()
            if answer is None and sender.is_alive():
                self._pipe.end_sending()
            sender.join()
            return answer
        finally:
            self._asking.release()

    def stop(self) -> None:
        """End the process when its callable has returned. Thread-safe; waits for nothing."""
        self._pipe.end_sending()

    def kill(self) -> None:
        """Kill the process at once. Thread-safe."""
        self._process.kill()

    def reports(self, start_timeout_s: float = math.inf, most_missed: float = math.inf) -> Iterator[tuple[Any, ...]]:
        """The process's reports until it has ended, without answers, signs of life and log records.

        Logs its output meanwhile.

        Args:
            start_timeout_s: A process that does not report ``ready`` within this time is killed.
            most_missed: One that is ready and lacks so many signs of life in a row is killed, unless a debugger holds
                it. What counts are waits of this process, which may be stopped itself.
        """
        output, kill_at = self._stream.fileno(), time.monotonic() + start_timeout_s
        missed, wait_s = 0, math.inf
        try:  # the pipes say nothing of the end: the worker's children may hold them open
            ended = os.pidfd_open(self.pid)
        except ProcessLookupError:  # it has ended, and SIGCHLD is ignored here
            ended = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)  # which can always be read
        poll = select.poll()
        for descriptor in (self._pipe.fileno(), output, ended):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                remaining_s = kill_at - time.monotonic()
                if remaining_s <= 0:
                    LOGGER.warning(
                        "worker %s (process %d) took longer than %g s to start and is killed",
                        *(self._name, self.pid, start_timeout_s),
                    )
                    self.kill()
                    kill_at = remaining_s = math.inf
                timeout_s = min(remaining_s, wait_s)
                ready = [descriptor for descriptor, _ in poll.poll(None if timeout_s == math.inf else timeout_s * 1000)]
                missed = 0 if ready else missed + 1
                if wait_s < math.inf and missed >= most_missed and not is_traced(self.pid):
                    LOGGER.error("%s (process %d) hangs and is killed", self._name, self.pid)
                    self.kill()
                    wait_s = math.inf
                if output in ready and not self._output.read(output):
                    poll.unregister(output)
                if self._pipe.fileno() in ready:
                    report = self._pipe.receive()
                    if report is None:
                        poll.unregister(self._pipe.fileno())
                    elif report[0] == LOG:
                        log_child_record(self._name, report[1])
                    elif report[0] == ANSWER:
                        with self._changed:
                            self._answers[report[1]] = report[2]
                            self._changed.notify_all()
                    elif report[0] == CONNECTION:
                        yield *report, self._pipe.receive_descriptors(CONNECTION_DESCRIPTORS)
                    elif report[0] != ALIVE:
                        if report[0] == READY:
                            kill_at, wait_s = math.inf, math.inf if most_missed == math.inf else ALIVE_PERIOD_S
                        yield report
                elif ended in ready and output not in ready:
                    return
        finally:
            os.close(ended)
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def wait(self) -> str:
        """Wait for the end of the process and close its pipes; returns how it ended, with its last lines.

        Kills what the process has started and left running: a fork of it would keep the proxy's connection open.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        self._output.flush()
        self._pipe.close()
        self._stream.close()
        how = "an unknown exit status" if status is None else f"exit status {status}"
        how = f"signal {_signal_name(-status)}" if status is not None and status < 0 else how
        return f"{how}; its last lines:\n" + "\n".join(self._output.tail) if self._output.tail else how


class _Output:
    """Logs what a process writes, line by line.

    Attributes:
        tail: The last lines.
    """

    def __init__(self, name: str, logger: logging.Logger, level: int) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._name, self._logger, self._level = name, logger, level
        self._unfinished = b""

    def read(self, descriptor: int) -> bool:
        """Log the lines that can be read; whether there may be more."""
        data = os.read(descriptor, READ_BYTES)
        *lines, unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._log(line)
        self._unfinished = b"\r".join(unfinished.rsplit(b"\r", 2)[-2:])  # progress bars rewrite a line many times
        if len(self._unfinished) > MAX_LINE_BYTES:
            self.flush()
        return bool(data)

    def flush(self) -> None:
        """Log a line that has no end yet."""
        if self._unfinished:
            self._log(self._unfinished)
            self._unfinished = b""

    def _log(self, line: bytes) -> None:
        text = line.removesuffix(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")  # as a terminal shows it
        self.tail.append(text)
        if self._logger.isEnabledFor(self._level):
            self._logger.log(self._level, "[%s] %s", self._name, text)
        else:  # without logging set up, what a worker prints is printed
            with suppress(OSError, ValueError):  # our own output may be closed
                print(f"[{self._name}] {text}", flush=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
