"""Keeps one worker running whose proxy is on this machine, and ends it while it is idle."""

from __future__ import annotations

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
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.pool.batch_reports import BatchCounter
from pytriton.pool.held_connections import HeldConnections
from pytriton.pool.messages import pickled
from pytriton.pool.pool import WorkerStatus
from pytriton.pool.process import ChildProcess
from pytriton.pool.process_supervisor import ANSWER_TIMEOUT_S
from pytriton.pool.template import Template
from pytriton.pool.worker_main import WorkerSpec
from pytriton.pool.worker_supervisor import WorkerSupervisor
from pytriton.restarts import RestartPolicy
from pytriton.wire.control import (
    CONNECTED,
    CONNECTION,
    DISCONNECTED,
    DRAIN,
    HAND_OVER,
    MAX_REQUESTS,
    OBSERVE,
    QUIET,
    READY,
    REBIND,
    RECORD,
    RECORDED,
    REPORT,
    TAKEN,
    UNRECOVERABLE,
)
from pytriton.worker.instance import listening
from pytriton.worker.observation import Observation
from pytriton.worker.recording import NumberedRecording

__all__ = ["LocalWorkerSupervisor"]

LOGGER = get_logger("pytriton.workers")

RECORD_TIMEOUT_S = 2.0  # to begin, or to send what is left
RECONNECT_S = 1.0  # a proxy that waits for a worker is accepted as soon as there is one


class LocalWorkerSupervisor(WorkerSupervisor[WorkerSpec]):
    """Runs a worker whose proxy is on this machine. It is the :class:`Worker` of its pool.

    This process owns the socket that the proxy connects to, and each worker process inherits it. So a proxy that
    connects while there is no process waits in the kernel's queue for the next one, or for the end of this process.
    A process that ends because it is idle hands its connection over to this one, which starts another process when a
    batch comes, and hands the connection over to that.

    Args:
        on_disconnect: Called when a proxy has disconnected.
        on_unrecoverable: Called when the callable asks to stop the server.
        on_zero: Called when the process of an idle worker has ended.

    Others are those of :class:`WorkerSupervisor`.

    Attributes:
        was_dismissed: Whether the server closed the last proxy that disconnected; False if that proxy died.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        restarts: RestartPolicy,
        observation: Observation,
        on_disconnect: Callable[[], None],
        on_unrecoverable: Callable[[], None],
        on_zero: Callable[[], None] = lambda: None,
        template: Template | None = None,
        **options: Any,
    ) -> None:
        super().__init__(spec, restarts, template, **options)
        self.was_dismissed = False
        self._observation = observation
        self._batches = BatchCounter(observation, spec.config)
        self._on_disconnect = on_disconnect
        self._on_unrecoverable = on_unrecoverable
        self._on_zero = on_zero
        self._has_proxy = False  # the present process; as it has reported
        self._recording: NumberedRecording | None = None  # what the present process was told to record
        self._telling = threading.Lock()  # so that the last that it is told is what holds
        self._proxy_waits = False  # the proxy of a process that has ended may wait for the next one, with requests
        self._listener = listening(spec.path)
        for path in spec.paths()[1:]:  # the proxies of all instances connect to the same socket
            os.link(spec.path, path)
        self._held = HeldConnections(spec.name, self._listener)
        observation.follow(self._observe)
        forks.register(self)
        self._begin()

    def after_fork(self) -> None:
        """In a forked child, do not listen: proxies that connect after the parent's end would wait for ever."""
        self._changed, self._telling = threading.Condition(), threading.Lock()
        forks.abandon(self._listener.fileno())

    def is_connected(self) -> bool:
        """Whether a proxy is connected, or waits for the next process."""
        return self._has_proxy or bool(self._held) or self._may_reconnect()

    def _may_reconnect(self) -> bool:
        if not self._proxy_waits or not self.is_alive():
            return False
        ready_since = self._ready_since
        return ready_since is None or time.monotonic() < ready_since + RECONNECT_S

    @override
    def status(self) -> WorkerStatus:
        return replace(super().status(), instances=self._spec.instances)

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is, infinite while no process is ready."""
        process = self._process
        if self._may_reconnect() or (self._held and self._is_wanted) or self._held.is_wanted():
            return 0.0
        if process is None or self._ready_since is None:
            return math.inf
        return float(process.ask(QUIET, None, ANSWER_TIMEOUT_S) or 0.0)

    def idle_s(self) -> float:
        """Seconds since the last batch, or since the process was ready; 0 while one starts, infinite without one."""
        with self._changed:
            ready_since = self._ready_since
            if not self._is_wanted or not self.is_alive():
                return math.inf
        return 0.0 if ready_since is None else min(self.quiet_s(), time.monotonic() - ready_since)

    def wait_disconnected(self, timeout_s: float) -> bool:
        """Wait until no proxy is connected, so that no batch is in flight, or :meth:`stop`. False at the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped.is_set() or not self.is_connected(), timeout_s)
            return not self.is_connected()

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
            self._changed.wait_for(lambda: is_over() or not (self._has_proxy or self._held))
            return not is_over()

    def rebind(self, factory: Callable[..., Any], takes_device: bool) -> None:
        """Serve what another factory makes, in this process and in those that follow it. There is no template.

        Raises:
            PyTritonWorkerError: The present process could not; the factory is unchanged.
        """
        before, deadline = self._spec, time.monotonic() + self._start_timeout_s
        spec = replace(before, factory=factory, takes_device=takes_device)
        new_spec, answer = pickled(spec), None
        if not self._is_wanted:  # the new factory is tried in a process that has the old callable
            self.want()
            self._wait_for(lambda: self._ready_since is not None, deadline)
        self._spec = spec  # for a process that starts from now on
        while self._wait_for(lambda: self._ready_since is not None, deadline):
            process, remaining_s = self._process, deadline - time.monotonic()
            if process is not None:
                answer = process.ask(REBIND, new_spec, remaining_s, lambda: self._interrupted)
            if answer is not None or self._interrupted or remaining_s <= 0:
                break  # otherwise the process has just ended; the next one will be asked, too
        if answer != "" and self.is_alive():
            self._spec = before
            reason = answer or "it did not answer"
            raise PyTritonWorkerError(f"worker {spec.name} could not replace its callable: {reason}")

    @override
    def stop(self) -> None:
        super().stop()
        self._held.wake()

    @override
    def want(self) -> None:
        super().want()
        self._held.wake()

    @override
    def _drain(self, process: ChildProcess) -> None:
        process.send(DRAIN)

    @override
    def _give_work(self, process: ChildProcess) -> None:
        self._held.send_to(process)

    @override
    def _let_go(self, process: ChildProcess) -> None:
        process.send(HAND_OVER)

    @override
    def _wait_wanted(self) -> bool:
        if self.is_at_zero():
            self._on_zero()
        while not self._is_wanted and not self._stopped.is_set():
            is_wanted, ended = self._held.wait(self.start_s())
            with self._changed:
                if ended:
                    self.was_dismissed = ended[-1]
                self._is_wanted |= is_wanted
                self._proxy_waits = self._proxy_waits and not (ended or self._held)
                self._changed.notify_all()
            if ended and not self.is_connected():
                self._on_disconnect()
        return not self._stopped.is_set()

    @override
    def _start(self) -> ChildProcess:
        with self._telling:
            recording = self._recording = self._observation.recording(self._spec.config)
        self._held.begin_start(self.start_s())
        return self._launch(replace(self._spec, recording=recording), [self._listener.fileno()])

    @override
    def _wait_before_restart(self, how: str) -> bool:
        self._held.count_failure()
        return super()._wait_before_restart(how)

    @override
    def _forget_process(self) -> bool:
        with self._changed:
            self._proxy_waits = self._proxy_waits or self._has_proxy
            self._has_proxy = False
            is_leaving = super()._forget_process()
        self._batches.cancel_all()
        return is_leaving

    @override
    def _release(self) -> None:
        for path in self._spec.paths():
            with suppress(OSError):
                os.unlink(path)
        self._held.close()
        self._observation.unfollow(self._observe)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # also if a child has inherited it
        self._listener.close()  # which tells a proxy that waits that no process follows

    @override
    def _handle(self, process: ChildProcess, report: bytes, *details: Any) -> None:
        if report == REPORT:
            self._batches.count(*details)
            return
        if report == RECORDED:
            recorder = self._observation.recorder(self._spec.config)
            if recorder is not None:
                recorder.take(*details)
            return
        with self._changed:
            self._changed_at = time.time()
            if report == CONNECTED:
                self._has_proxy, self._proxy_waits = True, False
            elif report == TAKEN:
                self._held.was_taken()
                self._has_proxy = True
            elif report == CONNECTION:
                state, descriptors = details
                self._held.take(descriptors, state)
                self._has_proxy = False
            elif report == DISCONNECTED:
                self._has_proxy, self.was_dismissed = details
                is_known = self._has_proxy or self._held or self.was_dismissed
                self._proxy_waits = self._is_leaving and not is_known
            elif report == MAX_REQUESTS:
                self._is_leaving = True
            self._changed.notify_all()
        if report == READY:
            if self._observation.metrics is not None:
                process.send(OBSERVE)
            self._tell_recording(process)  # that may have changed while it started
        elif report == MAX_REQUESTS:
            process.send(DRAIN)
        elif report == UNRECOVERABLE:
            self._on_unrecoverable()
        elif report == DISCONNECTED and not self._is_leaving:
            self._on_disconnect()

    def _observe(self) -> None:
        process = self._process
        if process is None or self._ready_since is None:
            return  # it is told when it is ready
        if self._observation.metrics is not None:
            process.send(OBSERVE)
        if self._tell_recording(process):
            process.ask(QUIET, None, RECORD_TIMEOUT_S)  # which is answered when that is done

    def _tell_recording(self, process: ChildProcess) -> bool:
        """Tell a process what to record, unless it knows; returns whether it was told."""
        with self._telling:
            recording = self._observation.recording(self._spec.config)
            if recording is self._recording:
                return False
            self._recording = recording
            process.send(RECORD, recording)
            return True
