"""Keeps the worker of one model instance running."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pytriton import forks
from pytriton.exceptions import PyTritonWorkerError
from pytriton.worker.instance import listening
from pytriton.worker.observation import Observation
from pytriton.workers.batch_reports import BatchCounter
from pytriton.workers.deaths import Deaths, pause_s
from pytriton.workers.pickling import dumps
from pytriton.workers.place import Place
from pytriton.workers.processes import Processes
from pytriton.workers.task import Task, log_levels
from pytriton.workers.worker_process import WorkerProcess

__all__ = ["Supervisor"]

LOGGER = logging.getLogger("pytriton.workers")

ANSWER_TIMEOUT_S = 0.5
RECONNECT_S = 1.0  # a proxy that waits for a worker is accepted as soon as there is one


class Supervisor:
    """Starts a worker, and another one when it has died or has answered enough requests.

    The socket that the proxy connects to belongs to this process, and each worker inherits it. So a proxy that connects
    while there is no worker waits in the kernel's queue for the next one, or for the end of this process.

    Args:
        task: For the worker.
        place: The worker's share of the machine.
        processes: How the worker is kept.
        observation: Says whether batches are counted.
        on_disconnect: Called when a proxy has gone.
        on_unrecoverable: Called when the callable asks to stop the server.

    Attributes:
        is_async: Whether the callable is a coroutine function; known once it is ready.
        was_dismissed: Whether the server has ended the last proxy that went: it did not die.
    """

    def __init__(
        self,
        task: Task,
        place: Place,
        processes: Processes,
        observation: Observation,
        on_disconnect: Callable[[], None],
        on_unrecoverable: Callable[[], None],
    ) -> None:
        self.is_async = self.was_dismissed = False
        self.name = task.name
        self._task = task
        self._place = place
        self._processes = processes
        self._observation = observation
        self._batches = BatchCounter(observation, task.config)
        self._on_disconnect = on_disconnect
        self._on_unrecoverable = on_unrecoverable
        self._state = threading.Condition()
        self._asking = threading.Lock()
        self._answers: dict[str, Any] = {}
        self._process: WorkerProcess | None = None
        self._began = 0.0
        self._is_ready = self._was_ready = self._connected = self._worn = self._interrupted = False
        self._awaits_proxy, self._ready_since = False, 0.0
        self._failure: str | None = None
        self._deaths = Deaths(processes.max_restarts, processes.restart_period_s)
        self._closed = threading.Event()
        self._listener = listening(task.path)
        observation.follow(self._observe)
        forks.register(self)
        self._thread = threading.Thread(target=self._supervise, name=f"pytriton-{task.name}", daemon=True)
        self._thread.start()

    def after_fork(self) -> None:
        """In a forked child, do not listen: proxies that connect after the parent's end would wait for ever."""
        self._state = threading.Condition()
        forks.abandon(self._listener.fileno())

    def wait_ready(self, deadline: float) -> None:
        """Wait until the callable is there and warmed up.

        Args:
            deadline: In :func:`time.monotonic` seconds.

        Raises:
            PyTritonWorkerError: It could not be made, the worker died, or that takes too long.
        """
        if not self._wait_for(lambda: self._was_ready, deadline):
            reason = self._failure or ("it was stopped" if self._closed.is_set() else "it took too long")
            raise PyTritonWorkerError(f"worker {self.name} could not be started: {reason}")

    def is_alive(self) -> bool:
        """Whether the instance can serve, now or after a restart."""
        return not self._closed.is_set() and self._thread.is_alive() and self._failure is None

    def is_connected(self) -> bool:
        """Whether a proxy is connected, or waits for the next worker."""
        return self._connected or self._may_reconnect()

    def _may_reconnect(self) -> bool:
        """Whether the proxy of a worker that has ended may wait for the next one, with requests."""
        if not self._awaits_proxy or not self.is_alive():
            return False
        return not self._is_ready or time.monotonic() < self._ready_since + RECONNECT_S

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        if self._may_reconnect():
            return 0.0
        if not self._is_ready:
            return math.inf
        answer = self._ask("quiet", None, ANSWER_TIMEOUT_S)
        return float(answer[0]) if answer else 0.0

    def wait_disconnected(self, timeout_s: float) -> bool:
        """Wait until no proxy is connected, so that no batch is in flight, or :meth:`close`. False at the timeout."""
        with self._state:
            self._state.wait_for(lambda: self._closed.is_set() or not self.is_connected(), timeout_s)
            return not self.is_connected()

    def wait_dismissed(self) -> bool:
        """Wait until the server has ended the proxy, which it does after its last batch. False if all is to end.

        A worker that has died is not waited for: it may never be ready again.
        """

        def is_over() -> bool:
            return self._interrupted or self._closed.is_set()

        with self._state:
            self._state.wait_for(lambda: is_over() or not (self._connected and self._is_ready))
            return not is_over()

    def rebind(self, factory: Callable[..., Any], takes_device: bool) -> None:
        """Have the worker, and those that follow it, serve what another factory makes.

        Raises:
            PyTritonWorkerError: It cannot.
        """
        before, deadline = self._task, time.monotonic() + self._processes.start_timeout_s
        answer: list[Any] = []
        task = replace(before, factory=factory, takes_device=takes_device)
        pickled = self._pickled(task)
        self._task = task  # for a worker that starts from now on
        while not answer and self._wait_for(lambda: self._is_ready, deadline):
            answer = self._ask("rebind", pickled, deadline - time.monotonic())  # none if this worker ends just now
        if answer != [None] and self.is_alive():
            self._task = before
            reason = answer[0] if answer else "it did not answer"
            raise PyTritonWorkerError(f"worker {self.name} could not replace its callable: {reason}")

    def _wait_for(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait until something holds; False at the deadline, or if nobody is to wait any more."""
        with self._state:
            self._state.wait_for(
                lambda: condition() or self._interrupted or not self.is_alive(), max(0.0, deadline - time.monotonic())
            )
            return condition()

    def close(self) -> None:
        """Have the worker end when its callable has returned."""
        with self._state:
            self._closed.set()
            self._state.notify_all()
        process = self._process
        if process is not None:
            process.stop()

    def interrupt(self) -> None:
        """End what somebody waits for, a first start or a rebind; from any thread."""
        with self._state:
            self._interrupted = True
            self._state.notify_all()
        if not self._was_ready:
            self.close()

    def join(self, deadline: float) -> None:
        """Wait for the end of the worker, which is killed at a deadline in :func:`time.monotonic` seconds."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        while self._thread.is_alive():
            process = self._process
            if process is not None:
                LOGGER.warning("worker %s (process %d) does not end; it is killed", self.name, process.pid)
                process.kill()
            self._thread.join(ANSWER_TIMEOUT_S)

    def _supervise(self) -> None:
        try:
            while not self._closed.is_set():
                how = self._run()
                if self._worn:
                    LOGGER.info("worker %s has answered its %s requests", self.name, self._processes.max_requests)
                    self._worn = False
                elif not self._closed.is_set() and not self._may_restart(how):
                    return
        except PyTritonWorkerError as error:
            self._give_up(str(error))
        except BaseException as error:
            self._give_up(f"{type(error).__name__}: {error}")
        finally:
            with suppress(OSError):
                os.unlink(self._task.path)
            self._observation.unfollow(self._observe)
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # also if somebody has inherited it
            self._listener.close()  # which tells the proxy that nobody comes
            with self._state:
                self._state.notify_all()

    def _run(self) -> str:
        """Start a worker and follow it to its end; returns how it ended."""
        self._began = time.monotonic()
        task = self._pickled(replace(self._task, levels=log_levels()))
        try:
            process = WorkerProcess(self.name, self._place.environment(), self._listener)
        except OSError as error:
            return f"no process can be started: {error}"
        LOGGER.info("worker %s is starting: process %d", self.name, process.pid)
        self._process = process
        if self._closed.is_set():  # which has seen no process
            process.stop()
        if self._was_ready:  # else somebody waits for it, and no longer than that
            process.kill_after(self._processes.start_timeout_s)
        process.tell("task", task)
        failure = None
        for word, value in process.events():
            if word == "failed":
                failure = value
            elif word == "batch":
                self._batches.take(*value)
            else:
                self._take(process, word, value)
        with self._state:
            self._awaits_proxy = self._awaits_proxy or self._connected
            self._connected = self._is_ready = False
            self._process = None
            self._state.notify_all()
        self._batches.lose()
        ended = process.wait()
        return f"\n{failure.rstrip()}" if failure else f"process {process.pid} ended with {ended}"

    @staticmethod
    def _pickled(task: Task) -> bytes:
        try:
            return dumps(task)
        except Exception as error:
            raise PyTritonWorkerError(
                f"the factory cannot be pickled, {type(error).__name__}: {error}; let it make what it needs instead of "
                "referring to it"
            ) from error

    def _take(self, process: WorkerProcess, word: str, value: Any) -> None:
        """Act on an event."""
        with self._state:
            if word == "ready":
                self._is_ready = self._was_ready = True
                self._ready_since = time.monotonic()
                self.is_async = value
                process.spare()
                LOGGER.info("worker %s is ready after %.1f s", self.name, time.monotonic() - self._began)
                if self._observation.metrics is not None:
                    self._observe()
            elif word == "connected":
                self._connected, self._awaits_proxy = True, False
            elif word == "disconnected":
                self._connected, self.was_dismissed = value
                self._awaits_proxy = self._worn and not self._connected and not self.was_dismissed
            elif word == "worn":
                self._worn = True
            elif word in ("quiet", "rebound"):
                self._answers["rebind" if word == "rebound" else word] = value
            self._state.notify_all()
        if word == "worn":
            process.tell("drain")
        elif word == "unrecoverable":
            self._on_unrecoverable()
        elif word == "disconnected" and not self._worn:
            self._on_disconnect()

    def _observe(self) -> None:
        """Have the worker tell of its batches."""
        process = self._process
        if process is not None:
            process.tell("observe")

    def _ask(self, word: str, value: Any, timeout_s: float) -> list[Any]:
        """Have the worker answer a question; an empty list if it does not."""
        with self._asking:
            with self._state:
                process = self._process
                self._answers.pop(word, None)
            if process is None:
                return []
            process.tell(word, value)  # which takes as long as the pipe is full
            with self._state:
                self._state.wait_for(
                    lambda: (
                        word in self._answers
                        or self._process is not process
                        or (word == "rebind" and self._interrupted)
                    ),
                    timeout_s,
                )
                return [self._answers.pop(word)] if word in self._answers else []

    def _may_restart(self, how: str) -> bool:
        """Count a death, and wait before the next start; False if there were too many deaths, or no start yet."""
        self._deaths.add()
        if not self._was_ready:
            self._give_up(how)
        elif self._deaths.are_too_many():
            LOGGER.error("worker %s died %d times; giving up: %s", self.name, self._deaths.recent(), how)
            self._give_up(how)
        else:
            pause = pause_s(self._deaths.recent())
            LOGGER.warning("worker %s died and is started again in %.1f s: %s", self.name, pause, how)
            self._closed.wait(pause)
        return self._failure is None

    def _give_up(self, reason: str) -> None:
        with self._state:
            self._failure = reason
            self._state.notify_all()
