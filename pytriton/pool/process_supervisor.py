"""Keeps one process running: starts it, follows it, and starts it again when it has ended by itself."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from pytriton.exceptions import PyTritonWorkerError
from pytriton.logs import get_logger
from pytriton.pool.memory_budget import MemoryBudget
from pytriton.pool.pool import WorkerStatus
from pytriton.pool.process import ChildProcess
from pytriton.restarts import RestartPolicy
from pytriton.threads import keep_running
from pytriton.wire.arena import limit_of
from pytriton.wire.control import FAILED, READY

__all__ = ["ANSWER_TIMEOUT_S", "ProcessSupervisor"]

LOGGER = get_logger("pytriton.workers")

ANSWER_TIMEOUT_S = 0.5
STARTS = 3  # whose times count


class ProcessSupervisor(ABC):
    """Runs one process after the other, on a thread of its own, from :meth:`_begin` on.

    Args:
        name: Of the process.
        title: Of the process, in messages.
        kind: Of the process, for :class:`WorkerStatus`.
        restarts: When a process that has ended by itself is started again.
        start_timeout_s: Longest time until the process is ready.
        stop_timeout_s: Longest time for a process to end before it is killed.
        budget: Of the memory of all models' processes.

    Attributes:
        is_async: Whether the callable is a coroutine function; valid once a process is ready.
        callees: Names of the models that the callable asks for; likewise.
    """

    def __init__(
        self,
        name: str,
        title: str,
        kind: str,
        restarts: RestartPolicy,
        *,
        start_timeout_s: float,
        stop_timeout_s: float,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.is_async, self.callees = False, frozenset[str]()
        self._name, self._title, self._kind = name, title, kind
        self._restarts, self._budget = restarts, budget
        self._start_timeout_s, self._stop_timeout_s = start_timeout_s, stop_timeout_s
        self._changed = threading.Condition()  # guards what follows
        self._process: ChildProcess | None = None
        self._ready_since: float | None = None  # of the present process
        self._has_started = False  # a process was ready once
        self._restarts_so_far, self._is_restart = 0, False  # whether the present process, or the next one, is one
        self._start_times: deque[float] = deque(maxlen=STARTS)  # in seconds, of the last that were ready
        self._is_leaving = False  # the present process; it was asked to
        self._is_wanted = True  # whether a process follows the one that leaves; else the first that needs it wants it
        self._ends_once_ready = False  # the process that starts
        self._last_exit = ""
        self._changed_at = time.time()  # when the state began that status() tells
        self._failure: str | None = None  # why there are no more restarts
        self._interrupted = False
        self._stopped = threading.Event()
        self._kill_at = 0.0  # in time.monotonic() seconds; set by stop()

    def _begin(self) -> None:
        self._thread = keep_running(self._supervise, f"pytriton-{self._name}")

    @abstractmethod
    def _start(self) -> ChildProcess:
        """Start a process.

        Raises:
            InterruptedError: None was started; it is to be tried again, unless :meth:`stop` was called.
            OSError: None can be started now.
            PyTritonWorkerError: None can be started ever.
        """

    @abstractmethod
    def _handle(self, process: ChildProcess, report: bytes, *details: Any) -> None:
        """Act on a report of the process."""

    def _give_work(self, process: ChildProcess) -> None:  # noqa: B027
        """Give a process what waits for it, before others see that it is ready, and may have it end."""

    def _let_go(self, process: ChildProcess) -> None:
        """Have a process end that is not wanted any more, and answers what it has."""
        process.stop()

    @abstractmethod
    def _release(self) -> None:
        """Release what the processes have used, after the last one."""

    def wait_ready(self, deadline: float) -> None:
        """Wait until the first process is ready, or a deadline in :func:`time.monotonic` seconds.

        Raises:
            PyTritonWorkerError: The factory failed, the process died, or the deadline has passed.
        """
        if not self._wait_for(lambda: self._has_started, deadline):
            reason = self._failure or ("it was stopped" if self._stopped.is_set() else "it took too long")
            raise PyTritonWorkerError(f"{self._title} could not be started: {reason}")

    def is_alive(self) -> bool:
        """Whether there is a process, or another one follows."""
        return not self._stopped.is_set() and self._thread.is_alive() and self._failure is None

    def status(self) -> WorkerStatus:
        """What operators see of it. Thread-safe."""
        with self._changed:
            process = self._process
            if self._failure is not None:
                state = "failed"
            elif self._stopped.is_set():
                state = "stopped"
            elif process is not None and self._ready_since is not None:
                state = "ready" if self._is_wanted or not self._is_leaving else "leaving"
            elif self.is_at_zero():
                state = "at zero"
            else:
                state = "restarting" if self._is_restart else "starting"
            pid, restarts = None if process is None else process.pid, self._restarts_so_far
            return WorkerStatus(self._name, self._kind, state, pid, restarts, self._last_exit, self._changed_at)

    def is_at_zero(self) -> bool:
        """Whether there is no process since :meth:`end_idle`."""
        return self._process is None and not self._is_wanted

    def end_idle(self) -> None:
        """End the process, once it is ready, and start none until :meth:`want`. Does not wait for that. Thread-safe."""
        with self._changed:
            process = self._process
            if process is None or self._ready_since is None:
                self._ends_once_ready = self._is_wanted
                return
            self._is_wanted = False
            if self._is_leaving:
                return
            self._is_leaving = True
        self._let_go(process)

    def want(self) -> None:
        """Have a process again after :meth:`end_idle`. Does not wait for that. Thread-safe."""
        with self._changed:
            self._is_wanted, self._ends_once_ready = True, False
            self._changed.notify_all()

    def _wait_wanted(self) -> bool:
        """Wait until a process is wanted; False after :meth:`stop`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_wanted or self._stopped.is_set())
        return not self._stopped.is_set()

    def start_s(self) -> float:
        """Seconds until a process that is not ready is so, as the fastest of the last starts; 0 if it is ready."""
        return 0.0 if self._ready_since is not None else min(self._start_times, default=0.0)

    def _wait_for(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait for a condition; False at the deadline, after an interruption, or after the last process."""
        with self._changed:
            self._changed.wait_for(
                lambda: condition() or self._interrupted or not self.is_alive(), max(0.0, deadline - time.monotonic())
            )
            return condition()

    def interrupt(self) -> None:
        """Abort a first start, or a rebind, that another thread waits for. Thread-safe."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()
        if not self._has_started:
            self.stop()

    def stop(self) -> None:
        """End the process when its callable has returned, without a restart; at once, if there is no callable yet.

        Does not wait for that.
        """
        with self._changed:
            if not self._stopped.is_set():
                self._kill_at = time.monotonic() + self._stop_timeout_s
            self._stopped.set()
            self._changed.notify_all()
            process, is_ready = self._process, self._ready_since is not None
        if process is not None:
            self._stop(process, is_ready)

    @staticmethod
    def _stop(process: ChildProcess, is_ready: bool) -> None:
        if is_ready:
            process.stop()
        else:  # the factory runs, and asks for nothing
            process.kill()

    def join(self) -> None:
        """Wait for the end after :meth:`stop`, and kill the process when it has taken ``stop_timeout_s``."""
        self._thread.join(max(0.0, self._kill_at - time.monotonic()))
        while self._thread.is_alive():
            process = self._process
            if process is not None:
                LOGGER.warning(
                    "%s (process %d) did not end within stop_timeout_s; it is killed",
                    *(self._title, process.pid),
                )
                process.kill()
            self._thread.join(ANSWER_TIMEOUT_S)

    def _supervise(self) -> None:
        try:
            while self._wait_wanted():
                try:
                    how = self._run_process()
                except PyTritonWorkerError:
                    raise
                except BaseException as error:
                    how = self._abandon(error)
                if how is not None and not self._stopped.is_set() and not self._wait_before_restart(how):
                    return
        except PyTritonWorkerError as error:
            self._give_up(str(error))
        except BaseException as error:
            LOGGER.exception("%s is not supervised any more", self._title)
            self._give_up(f"{type(error).__name__}: {error}")
        finally:
            self._release()
            with self._changed:
                self._changed.notify_all()

    def _run_process(self) -> str | None:
        """Start a process and follow it to its end; returns how it ended, None if it was asked to."""
        try:
            process = self._start()
        except InterruptedError:  # it is wanted no more, or not from where it came
            return None
        except OSError as error:
            self._note_exit(f"no process can be started: {error}{limit_of(error)}")
            return self._last_exit
        began = time.monotonic()
        LOGGER.info("%s is starting: process %d", self._title, process.pid)
        with self._changed:
            self._process, self._changed_at = process, time.time()
            self._restarts_so_far += self._is_restart
        if self._stopped.is_set():  # stop() may have seen no process
            self._stop(process, is_ready=False)
        failure = None
        # wait_ready() has a deadline for the first process.
        for report, *details in process.reports(self._start_timeout_s if self._has_started else math.inf):
            if report == READY:
                self._start_times.append(time.monotonic() - began)
                LOGGER.info("%s is ready after %.1f s", self._title, self._start_times[-1])
                self._give_work(process)
                self._note_ready(*details)
            if report == FAILED:
                failure = details[0].rstrip()
            else:
                self._handle(process, report, *details)
            if report == READY and self._ends_once_ready:
                self.end_idle()
        is_leaving = self._forget_process()
        ended = process.wait()
        if is_leaving:
            what = "is replaced" if self._is_wanted else "is at zero"
            LOGGER.info("%s has answered its requests, and %s", self._title, what)
            return None
        self._note_exit(failure or f"process {process.pid} ended with {ended}")
        return f"\n{failure}" if failure else self._last_exit

    def _note_ready(self, is_async: bool, callees: frozenset[str] = frozenset()) -> None:
        with self._changed:
            self._changed_at, self._ready_since, self._has_started = time.time(), time.monotonic(), True
            self._restarts.record_ready(self._ready_since)
            self.is_async, self.callees = is_async, callees
            self._changed.notify_all()
        self._look_at_memory()

    def _wait_for_room(self) -> None:
        """Wait, before a process starts, for those that end to make room for it."""
        if self._budget is not None:
            self._budget.wait_for_room(self._stopped.is_set)

    def _look_at_memory(self) -> None:
        if self._budget is not None:
            self._budget.look()

    def _note_exit(self, how: str) -> None:
        with self._changed:
            self._last_exit = how
            self._changed.notify_all()

    def _forget_process(self) -> bool:
        """Note that the process has ended; returns whether it was asked to."""
        with self._changed:
            is_leaving, self._is_leaving = self._is_leaving, False
            self._process, self._ready_since, self._changed_at = None, None, time.time()
            self._ends_once_ready, self._is_restart = self._ends_once_ready and not is_leaving, self._is_wanted
            self._changed.notify_all()
        self._look_at_memory()
        return is_leaving

    def _abandon(self, error: BaseException) -> str:
        """Kill the process, as it cannot be followed, for instance without a free descriptor; returns why."""
        LOGGER.exception("%s cannot be followed, and is killed", self._title)
        process = self._process
        self._forget_process()
        if process is not None:
            process.kill()
            process.wait()
        self._note_exit(f"it could not be followed, {type(error).__name__}: {error}")
        return self._last_exit

    def _wait_before_restart(self, how: str) -> bool:
        """Wait as long as the restart policy says; False if there is no restart, or was no first start."""
        backoff_s = self._restarts.record_exit(time.monotonic())
        if self._has_started and backoff_s is not None:
            LOGGER.warning("%s died and is started again in %.1f s: %s", self._title, backoff_s, how)
            self._stopped.wait(backoff_s)
            return True
        if self._has_started:
            LOGGER.error("%s died %d times; giving up: %s", self._title, self._restarts.exits, how)
        self._give_up(how)
        return False

    def _give_up(self, reason: str) -> None:
        with self._changed:
            self._failure, self._last_exit, self._changed_at = reason, reason, time.time()
            self._changed.notify_all()
