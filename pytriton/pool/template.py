"""A process that runs a factory once, serves nothing, and forks workers, which share what the factory has loaded."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from pytriton import forks
from pytriton.exceptions import PyTritonWorkerError
from pytriton.introspection import override
from pytriton.pool.messages import ProcessSpec, pickled
from pytriton.pool.pipes import log_levels
from pytriton.pool.process import ChildProcess, Program
from pytriton.pool.process_supervisor import ANSWER_TIMEOUT_S, ProcessSupervisor
from pytriton.restarts import RestartPolicy
from pytriton.wire.control import FORK

__all__ = ["ForkedWorker", "Template"]

PROGRAM = "pytriton.pool.template_main"
WORKERS_END_S = 2.0  # a template ends after its workers, which may have to be killed


@dataclass(frozen=True)
class ForkedWorker:
    """A worker that a template has just forked, as the method ``after_fork`` of its callable gets it.

    Attributes:
        name: As in the log.
        index: Of the worker among those of its model, from 0.
        device: That it was given, as it is named in this process.
    """

    name: str
    index: int
    device: str | None


class ForkedProcess:
    """A forked worker, as :class:`pytriton.pool.process.RunningProcess` describes it. It is no child of this process.

    Args:
        status: Its template sends the exit status, and ends the connection with its own end.
        stdout: What it writes.
    """

    stderr = None

    def __init__(self, pid: int, status: Connection[Any, Any], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self._status = status
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended already; its pipe tells why
            self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def kill(self) -> None:
        """Kill it; does nothing after its end."""
        with suppress(OSError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def abandon(self) -> None:
        """In a forked child of this process: drop what it holds."""
        forks.abandon(self._descriptor, self._status.fileno())

    def wait(self) -> int | None:
        """After its end: the exit status, negative for a signal; None if its template has ended before, or hangs."""
        try:
            known = self._status.poll(ANSWER_TIMEOUT_S)
            return int(self._status.recv()) if known else None
        except (EOFError, OSError):
            with suppress(ChildProcessError):  # it may have become a child of this process, as others' orphans do
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, os.WNOHANG)[1])
            return None
        finally:
            self._status.close()
            os.close(self._descriptor)


class Template(ProcessSupervisor):
    """Runs the template of a model's workers, again if it dies. Its workers survive it, and end with this process.

    Args:
        spec: Of a worker; what differs between workers is ignored.
        restarts: When a template that has died is started again.
        options: Further ones of :class:`ProcessSupervisor`.
    """

    def __init__(
        self, name: str, spec: ProcessSpec, restarts: RestartPolicy, *, stop_timeout_s: float, **options: Any
    ) -> None:
        super().__init__(
            f"{name}-template",
            f"template of {name}",
            "template",
            restarts,
            stop_timeout_s=stop_timeout_s + WORKERS_END_S,
            **options,
        )
        self._spec = spec
        self._failed_starts = 0
        self._ends = Pipe(duplex=False)  # the kernel kills the workers when nobody holds the second one
        forks.register(self)
        self._begin()

    def after_fork(self) -> None:
        """In a forked child, do not keep the workers alive."""
        forks.abandon(*(end.fileno() for end in self._ends if not end.closed))

    def wake(self) -> None:
        """Have :meth:`fork` look whether it is cancelled."""
        with self._changed:
            self._changed.notify_all()

    def _wait_forking(self, is_cancelled: Callable[[], bool]) -> ChildProcess:
        """Wait until workers can be forked; the process that forks them.

        Raises:
            OSError: A process has ended as it started; another one follows.
            PyTritonWorkerError: No template can be started.
            InterruptedError: The wait was cancelled, or the template was stopped.
        """
        self.want()
        with self._changed:
            process, before = self._process, self._failed_starts
            if process is not None and self._is_leaving:  # it may wait for a worker that has come since then
                process.kill()

        def is_ready() -> bool:
            return self._ready_since is not None and not self._is_leaving

        def has_failed() -> bool:  # after the first one fails, there is no other
            return self._has_started and self._failed_starts > before

        with self._changed:
            self._changed.wait_for(lambda: is_ready() or has_failed() or not self.is_alive() or is_cancelled())
            if self._process is not None and is_ready():
                return self._process
            if has_failed() and self.is_alive() and not is_cancelled():
                raise OSError(f"the {self._title} has ended as it started")
        if self._failure is not None and not is_cancelled():
            raise PyTritonWorkerError(f"the {self._title} could not be started: {self._failure}")
        raise InterruptedError(f"the {self._title} was stopped")

    def fork(
        self,
        name: str,
        spec: int,
        pipe: int,
        descriptors: Sequence[int],
        logs_output: bool,
        is_cancelled: Callable[[], bool],
    ) -> ForkedProcess:
        """Fork a worker; the arguments are those of :data:`pytriton.pool.process.Launch`.

        Raises:
            OSError: It could not be forked.
            PyTritonWorkerError: No template can be started.
            InterruptedError: The wait was cancelled, or the template was stopped or has ended. Another one may follow;
                it needs another pipe, as the worker may have been forked.
        """
        process = self._wait_forking(is_cancelled)
        try:
            return self._fork_by(process, [spec, pipe], descriptors, is_cancelled)
        except ConnectionError as error:
            with self._changed:  # or this would ask it again
                self._changed.wait_for(lambda: self._process is not process or not self.is_alive() or is_cancelled())
            raise InterruptedError(f"the {self._title} has ended") from error

    def _fork_by(
        self, process: ChildProcess, own: Sequence[int], descriptors: Sequence[int], is_cancelled: Callable[[], bool]
    ) -> ForkedProcess:
        status, its_status = Pipe(duplex=False)
        output, its_output = os.pipe()
        stdout = os.fdopen(output, "rb", buffering=0)
        try:
            process.send_descriptors(FORK, [*own, its_output, *descriptors, its_status.fileno()])
            its_status.close()
            kill_at = time.monotonic() + self._start_timeout_s
            while not status.poll(ANSWER_TIMEOUT_S):
                if is_cancelled():
                    raise InterruptedError("the worker was stopped")
                if time.monotonic() > kill_at:  # it hangs
                    process.kill()
            pid = status.recv()
            if isinstance(pid, OSError):
                raise pid
            return ForkedProcess(pid, status, stdout)
        except BaseException as error:
            status.close()
            stdout.close()
            if isinstance(error, EOFError):
                raise ConnectionError(f"the {self._title} has ended") from None
            raise
        finally:
            its_status.close()
            os.close(its_output)

    @override
    def _start(self) -> ChildProcess:
        self._wait_for_room()
        spec = pickled(replace(self._spec, log_levels=log_levels()))
        launch = Program(PROGRAM, self._spec.resources.environment())
        return ChildProcess(self._name, launch, spec, (self._ends[0].fileno(),), self._changed)

    @override
    def _handle(self, process: ChildProcess, report: bytes, *details: Any) -> None:
        """It reports nothing but its start."""

    @override
    def _forget_process(self) -> bool:
        with self._changed:
            self._failed_starts += self._ready_since is None
            return super()._forget_process()

    @override
    def _release(self) -> None:
        """Does nothing: without another start, workers live on until :meth:`join`."""

    @override
    def join(self) -> None:
        """As for other processes; kills workers that have not ended before."""
        super().join()
        with self._changed:
            for end in self._ends:
                end.close()
