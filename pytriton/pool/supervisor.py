"""Keeps one worker running: starts its process, restarts it when it has died, replaces it after ``max_requests``."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pytriton import forks
from pytriton.exceptions import PyTritonWorkerError
from pytriton.logs import get_logger
from pytriton.pool.batch_reports import BatchCounter
from pytriton.pool.messages import WorkerSpec, dumps
from pytriton.pool.pipes import log_levels
from pytriton.pool.pool import WorkerStatus
from pytriton.pool.process import ChildProcess
from pytriton.restarts import RestartPolicy
from pytriton.threads import keep_running
from pytriton.wire.arena import limit_of
from pytriton.wire.control import (
    CONNECTED,
    DISCONNECTED,
    DRAIN,
    FAILED,
    MAX_REQUESTS,
    OBSERVE,
    QUIET,
    READY,
    REBIND,
    REPORT,
    UNRECOVERABLE,
)
from pytriton.worker.instance import listening
from pytriton.worker.observation import Observation

__all__ = ["Supervisor"]

LOGGER = get_logger("pytriton.workers")

PROGRAM = "pytriton.pool.worker_main"
ANSWER_TIMEOUT_S = 0.5
RECONNECT_S = 1.0  # a proxy that waits for a worker is accepted as soon as there is one


@dataclass
class _Reported:
    """What the present process has reported."""

    ready_since: float | None = None
    is_connected: bool = False
    is_leaving: bool = False  # it answers its last batches, and another process follows


class Supervisor:
    """Runs the worker of one instance in one process after the other. It is the :class:`Worker` of its pool.

    This process owns the socket that the proxy connects to, and each worker process inherits it. So a proxy that
    connects while there is no process waits in the kernel's queue for the next one, or for the end of this process.

    Args:
        restarts: When a process that has died is started again.
        on_disconnect: Called when a proxy has disconnected.
        on_unrecoverable: Called when the callable asks to stop the server.
        start_timeout_s: Longest time until the callable is made and warmed up.
        stop_timeout_s: Longest time for a process to end before it is killed.

    Attributes:
        is_async: Whether the callable is a coroutine function; valid once the worker is ready.
        was_dismissed: Whether the server closed the last proxy that disconnected; False if that proxy died.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        restarts: RestartPolicy,
        observation: Observation,
        on_disconnect: Callable[[], None],
        on_unrecoverable: Callable[[], None],
        *,
        start_timeout_s: float,
        stop_timeout_s: float,
    ) -> None:
        self.is_async = self.was_dismissed = False
        self._spec = spec
        self._start_timeout_s, self._stop_timeout_s = start_timeout_s, stop_timeout_s
        self._observation = observation
        self._batches = BatchCounter(observation, spec.config)
        self._on_disconnect = on_disconnect
        self._on_unrecoverable = on_unrecoverable
        self._restarts = restarts
        self._changed = threading.Condition()  # guards what follows
        self._process: ChildProcess | None = None
        self._reported = _Reported()
        self._has_started = False  # a process was ready once
        self._started = 0  # how many processes
        self._last_death = ""
        self._changed_at = time.time()  # when the state began that status() tells
        self._proxy_waits = False  # the proxy of a process that has ended may wait for the next one, with requests
        self._failure: str | None = None  # why there are no more restarts
        self._interrupted = False
        self._stopped = threading.Event()
        self._kill_at = 0.0  # in time.monotonic() seconds; set by stop()
        self._listener = listening(spec.path)
        observation.follow(self._observe)
        forks.register(self)
        self._thread = keep_running(self._supervise, f"pytriton-{spec.name}")

    def after_fork(self) -> None:
        """In a forked child, do not listen: proxies that connect after the parent's end would wait for ever."""
        self._changed = threading.Condition()
        forks.abandon(self._listener.fileno())

    def wait_ready(self, deadline: float) -> None:
        """Wait until the callable is made and warmed up, or a deadline in :func:`time.monotonic` seconds.

        Raises:
            PyTritonWorkerError: The factory failed, the process died, or the deadline has passed.
        """
        if not self._wait_for(lambda: self._has_started, deadline):
            reason = self._failure or ("it was stopped" if self._stopped.is_set() else "it took too long")
            raise PyTritonWorkerError(f"worker {self._spec.name} could not be started: {reason}")

    def is_alive(self) -> bool:
        """Whether the instance can answer, now or after a restart."""
        return not self._stopped.is_set() and self._thread.is_alive() and self._failure is None

    def is_connected(self) -> bool:
        """Whether a proxy is connected, or waits for the next process."""
        return self._reported.is_connected or self._may_reconnect()

    def _may_reconnect(self) -> bool:
        if not self._proxy_waits or not self.is_alive():
            return False
        ready_since = self._reported.ready_since
        return ready_since is None or time.monotonic() < ready_since + RECONNECT_S

    def status(self) -> WorkerStatus:
        """What operators see of it. Thread-safe."""
        with self._changed:
            process, reported = self._process, self._reported
            if self._failure is not None:
                state = "failed"
            elif self._stopped.is_set():
                state = "stopped"
            elif process is not None and reported.ready_since is not None:
                state = "ready"
            else:
                state = "restarting" if self._has_started else "starting"
            pid, restarts = None if process is None else process.pid, max(0, self._started - 1)
            device = self._spec.resources.device or ""
            return WorkerStatus(
                self._spec.name, "process", state, pid, restarts, self._last_death, self._changed_at, device=device
            )

    def restart(self) -> None:
        """Replace the process by a new one when it has answered its batches. Does not wait for that. Thread-safe."""
        with self._changed:
            process = self._process
            if process is None or self._reported.ready_since is None:
                return
            self._reported.is_leaving = True
        process.send(DRAIN)

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is, infinite while no process is ready."""
        process = self._process
        if self._may_reconnect():
            return 0.0
        if process is None or self._reported.ready_since is None:
            return math.inf
        return float(process.ask(QUIET, None, ANSWER_TIMEOUT_S) or 0.0)

    def wait_disconnected(self, timeout_s: float) -> bool:
        """Wait until no proxy is connected, so that no batch is in flight, or :meth:`stop`. False at the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped.is_set() or not self.is_connected(), timeout_s)
            return not self.is_connected()

    @property
    def index(self) -> int:
        """Number of its socket."""
        return int(self._spec.path.rpartition(".")[2])

    def has_left(self) -> bool:
        """Whether the server has closed the proxy, or the worker has ended for good."""
        return not self.is_alive() or (self.was_dismissed and not self.is_connected())

    def wait_dismissed(self) -> bool:
        """Wait until the server has closed the proxy, which it does after the proxy's last batch.

        Does not wait for a process that has died, as the next one may never be ready.

        Returns:
            False after :meth:`interrupt` or :meth:`stop`.
        """

        def is_over() -> bool:
            return self._interrupted or self._stopped.is_set()

        with self._changed:
            self._changed.wait_for(lambda: is_over() or not self._reported.is_connected)
            return not is_over()

    def rebind(self, factory: Callable[..., Any], takes_device: bool) -> None:
        """Serve what another factory makes, in this process and in those that follow it.

        Raises:
            PyTritonWorkerError: The present process could not; the factory is unchanged.
        """
        before, deadline = self._spec, time.monotonic() + self._start_timeout_s
        spec = replace(before, factory=factory, takes_device=takes_device)
        new_spec, answer = pickled(spec), None
        self._spec = spec  # for a process that starts from now on
        while self._wait_for(lambda: self._reported.ready_since is not None, deadline):
            process, remaining_s = self._process, deadline - time.monotonic()
            if process is not None:
                answer = process.ask(REBIND, new_spec, remaining_s, lambda: self._interrupted)
            if answer is not None or self._interrupted or remaining_s <= 0:
                break  # otherwise the process has just ended; the next one will be asked, too
        if answer != "" and self.is_alive():
            self._spec = before
            reason = answer or "it did not answer"
            raise PyTritonWorkerError(f"worker {spec.name} could not replace its callable: {reason}")

    def _wait_for(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait for a condition; False at the deadline, after an interruption, or when the worker has ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: condition() or self._interrupted or not self.is_alive(), max(0.0, deadline - time.monotonic())
            )
            return condition()

    def interrupt(self) -> None:
        """Abort a first start, or a :meth:`rebind`, that another thread waits for. Thread-safe."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()
        if not self._has_started:
            self.stop()

    def stop(self) -> None:
        """End the process when its callable has returned, without a restart. Does not wait for that."""
        with self._changed:
            if not self._stopped.is_set():
                self._kill_at = time.monotonic() + self._stop_timeout_s
            self._stopped.set()
            self._changed.notify_all()
        process = self._process
        if process is not None:
            process.stop()

    def join(self) -> None:
        """Wait for the end after :meth:`stop`, and kill the process when it has taken ``stop_timeout_s``."""
        self._thread.join(max(0.0, self._kill_at - time.monotonic()))
        while self._thread.is_alive():
            process = self._process
            if process is not None:
                LOGGER.warning(
                    "worker %s (process %d) did not end within stop_timeout_s; it is killed",
                    self._spec.name,
                    process.pid,
                )
                process.kill()
            self._thread.join(ANSWER_TIMEOUT_S)

    def _supervise(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    death = self._run_process()
                except PyTritonWorkerError:
                    raise
                except BaseException as error:
                    death = self._abandon(error)
                if death is not None and not self._stopped.is_set() and not self._wait_before_restart(death):
                    return
        except PyTritonWorkerError as error:
            self._give_up(str(error))
        except BaseException as error:
            LOGGER.exception("worker %s is not supervised any more", self._spec.name)
            self._give_up(f"{type(error).__name__}: {error}")
        finally:
            with suppress(OSError):
                os.unlink(self._spec.path)
            self._observation.unfollow(self._observe)
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # also if a child has inherited it
            self._listener.close()  # which tells a proxy that waits that no process follows
            with self._changed:
                self._changed.notify_all()

    def _run_process(self) -> str | None:
        """Start a process and follow it to its end; returns how it died, None if it has reached ``max_requests``."""
        began = time.monotonic()
        spec = pickled(replace(self._spec, log_levels=log_levels()))
        try:
            environment = self._spec.resources.environment()
            descriptors = (self._listener.fileno(),)
            process = ChildProcess(self._spec.name, PROGRAM, spec, environment, descriptors, self._changed)
        except OSError as error:
            return f"no process can be started: {error}{limit_of(error)}"
        LOGGER.info("worker %s is starting: process %d", self._spec.name, process.pid)
        with self._changed:
            self._process, self._changed_at = process, time.time()
            self._started += 1
        if self._stopped.is_set():  # stop() may have seen no process
            process.stop()
        failure = None
        # wait_ready() has a deadline for the first process.
        for report, *details in process.reports(self._start_timeout_s if self._has_started else math.inf):
            if report == READY:
                LOGGER.info("worker %s is ready after %.1f s", self._spec.name, time.monotonic() - began)
            if report == FAILED:
                failure = details[0].rstrip()
            elif report == REPORT:
                self._batches.count(*details)
            else:
                self._handle(process, report, *details)
        is_leaving = self._forget_process()
        ended = process.wait()
        if is_leaving:
            LOGGER.info("worker %s has answered its requests, and is replaced", self._spec.name)
            return None
        self._last_death = failure or f"process {process.pid} ended with {ended}"
        return f"\n{failure}" if failure else self._last_death

    def _forget_process(self) -> bool:
        """Note that the process has ended; returns whether it was to be replaced."""
        with self._changed:
            is_leaving = self._reported.is_leaving
            self._proxy_waits = self._proxy_waits or self._reported.is_connected
            self._reported, self._process, self._changed_at = _Reported(), None, time.time()
            self._changed.notify_all()
        self._batches.cancel_all()
        return is_leaving

    def _abandon(self, error: BaseException) -> str:
        """Kill the process, as it cannot be followed, for instance without a free descriptor; returns why."""
        LOGGER.exception("worker %s cannot be followed, and is killed", self._spec.name)
        process = self._process
        self._forget_process()
        if process is not None:
            process.kill()
            process.wait()
        self._last_death = f"it could not be followed, {type(error).__name__}: {error}"
        return self._last_death

    def _handle(self, process: ChildProcess, report: bytes, *details: Any) -> None:
        """Note what the process has reported, then act on it."""
        reported = self._reported
        with self._changed:
            self._changed_at = time.time()
            if report == READY:
                reported.ready_since, self._has_started = time.monotonic(), True
                self._restarts.record_ready(reported.ready_since)
                (self.is_async,) = details
            elif report == CONNECTED:
                reported.is_connected, self._proxy_waits = True, False
            elif report == DISCONNECTED:
                reported.is_connected, self.was_dismissed = details
                self._proxy_waits = reported.is_leaving and not reported.is_connected and not self.was_dismissed
            elif report == MAX_REQUESTS:
                reported.is_leaving = True
            self._changed.notify_all()
        if report == READY:
            if self._observation.metrics is not None:
                process.send(OBSERVE)
        elif report == MAX_REQUESTS:
            process.send(DRAIN)
        elif report == UNRECOVERABLE:
            self._on_unrecoverable()
        elif report == DISCONNECTED and not reported.is_leaving:
            self._on_disconnect()

    def _observe(self) -> None:
        process = self._process
        if process is not None:
            process.send(OBSERVE)

    def _wait_before_restart(self, death: str) -> bool:
        """Wait as long as the restart policy says; False if there is no restart, or was no first start."""
        backoff_s = self._restarts.record_death(time.monotonic())
        if self._has_started and backoff_s is not None:
            LOGGER.warning("worker %s died and is started again in %.1f s: %s", self._spec.name, backoff_s, death)
            self._stopped.wait(backoff_s)
            return True
        if self._has_started:
            LOGGER.error("worker %s died %d times; giving up: %s", self._spec.name, self._restarts.deaths, death)
        self._give_up(death)
        return False

    def _give_up(self, reason: str) -> None:
        with self._changed:
            self._failure, self._last_death, self._changed_at = reason, reason, time.time()
            self._changed.notify_all()


def pickled(spec: Any) -> bytes:
    """Pickle what a worker process is told; raises PyTritonWorkerError if its factory cannot be pickled."""
    try:
        return dumps(spec)
    except Exception as error:
        raise PyTritonWorkerError(
            f"the factory cannot be pickled, {type(error).__name__}: {error}; create the objects that it needs "
            "within it"
        ) from error
