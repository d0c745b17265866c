"""What runs in a worker process: makes the callable, and serves it until the launching process says otherwise."""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pytriton.decorators.signatures import check_callable
from pytriton.exceptions import PyTritonValidationError
from pytriton.proxy.telemetry import ensure_telemetry_tracer, wants_telemetry
from pytriton.signals import ignored_signals
from pytriton.signature.served import served
from pytriton.worker.channel import Channel
from pytriton.worker.context import TritonContext, attach
from pytriton.worker.engine import Engine
from pytriton.worker.instance import Instance
from pytriton.worker.results import is_async
from pytriton.worker.warmup import warm_up
from pytriton.workers.inspection import Inspection
from pytriton.workers.reports import RecordSender, Reports
from pytriton.workers.served_callable import Served, ServedCallable
from pytriton.workers.task import Task
from pytriton.workers.worker_observation import WorkerObservation

__all__ = ["Worker", "main"]

LOGGER = logging.getLogger("pytriton.worker")

PR_SET_PDEATHSIG = 1


def main(pipe: int, listener: int, parent: int) -> None:
    """Run a worker to its end.

    Args:
        pipe: Descriptor of the pipe to the launching process.
        listener: That of the socket which the instance's proxy connects to.
        parent: Id of the launching process.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # whatever the callable does, and whatever killed it
    if os.getppid() != parent:
        return
    for descriptor in (pipe, listener):
        os.set_inheritable(descriptor, False)  # else what the callable starts would hold the proxy's connections open
    with ignored_signals():  # the launching process decides
        _serve(Reports(Connection(pipe)), listener)


def _serve(reports: Reports, listener: int) -> None:
    try:
        heard = reports.hear()
        if heard is None:
            return
        task = pickle.loads(heard[1])
        _prepare(task, reports)
        if isinstance(task, Inspection):
            _inspect(task, reports)
            return
        worker = Worker(task, reports, socket.socket(fileno=listener))
    except BaseException:
        reports.tell("failed", traceback.format_exc())
        return
    worker.obey()


def _inspect(task: Inspection, reports: Reports) -> None:
    try:
        reports.tell("derived", task.derived())
    except PyTritonValidationError as error:
        reports.tell("refused", str(error))


def _prepare(task: Task | Inspection, reports: Reports) -> None:
    """Do what has to come before the user's code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # it is a pipe, and its lines are for a log
    logging.root.addHandler(RecordSender(reports))
    for name, level in task.levels.items():
        logging.getLogger(name).setLevel(level)
    if task.cores is not None:
        os.sched_setaffinity(0, task.cores)
    if task.trace_config is not None and wants_telemetry(task.trace_config):
        ensure_telemetry_tracer(task.trace_config)


class Worker:
    """Serves what the factory makes.

    Args:
        task: What to do.
        reports: To the launching process.
        listener: The socket that the proxy connects to.

    Raises:
        BaseException: Whatever the factory raises.
        PyTritonValidationError: It returned what cannot be called, or not as the model does.
    """

    def __init__(self, task: Task, reports: Reports, listener: socket.socket) -> None:
        self._task = task
        self._reports = reports
        self._connecting = threading.Lock()
        self._proxies = 0
        self._function = _made(task)
        several = task.config.decoupled or is_async(self._function)
        self._observation = WorkerObservation(
            task.max_requests, lambda: reports.tell("worn"), partial(reports.tell, "batch")
        )
        self._context = TritonContext()
        attach(self._function, self._context, task.config)
        served = Served(task.config, self._context, task.options, self._observation)
        self._callable = ServedCallable(
            self._function, served, several, f"{task.name}-loop", lambda: reports.tell("unrecoverable")
        )
        self._warm_up()
        self._instance: Instance = self._callable.listen(task.path, self._on_disconnect, self._on_connect, listener)
        reports.tell("ready", is_async(self._function))

    def obey(self) -> None:
        """Do as told, until the end."""
        while (heard := self._reports.hear()) is not None and heard[0] != "drain":
            word, value = heard
            if word == "quiet":
                self._reports.tell("quiet", self._instance.quiet_s())
            elif word == "observe":
                self._observation.is_wanted = True
            elif word == "rebind":
                self._reports.tell("rebound", self._rebind(value))
        if heard is not None and heard[0] == "drain":
            self._drain()
        self._instance.close()
        self._instance.wait_ended()
        _close(self._function)

    def _drain(self) -> None:
        if self._task.config.decoupled:  # streams under way would not be told any more what is taken of them
            self._instance.wait_quiet()
        self._instance.drain()
        self._instance.wait_disconnected(None)

    def _on_connect(self) -> None:
        with self._connecting:
            self._proxies += 1
            self._reports.tell("connected")

    def _on_disconnect(self) -> None:
        with self._connecting:
            self._proxies -= 1
            self._reports.tell("disconnected", (self._proxies > 0, self._instance.was_dismissed))

    def _warm_up(self) -> None:
        """Have the callable answer its first requests before any of a client's can come."""
        if not self._task.options.warmup:
            return
        path = f"{self._task.path}.warm-up"
        Path(path).unlink(missing_ok=True)
        instance = Instance(path, self._callable.binding, _Lent(self._callable.engine), lambda: None)
        try:
            warm_up(path, self._task.config, self._task.options.warmup)
        finally:
            instance.close()
            instance.wait_ended()

    def _rebind(self, pickled: bytes) -> str | None:
        """Serve what another factory makes; returns why not."""
        try:
            function = _made(pickle.loads(pickled))
            if is_async(function) != is_async(self._function):
                raise PyTritonValidationError(
                    "a coroutine function cannot take the place of a plain one, nor the other way round"
                )
        except BaseException:
            return traceback.format_exc()
        attach(function, self._context, self._task.config)
        self._callable.rebind(function)
        self._context.model_configs.discard(self._function, self._task.config)
        self._function = function
        return None


class _Lent:
    """An engine that somebody else closes."""

    answer = None  # there is no proxy in a worker process

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.quiet_s = engine.quiet_s

    def serve(self, channel: Channel) -> None:
        self._engine.serve(channel)

    def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


def _made(task: Task) -> Any:
    function = task.make()
    if not callable(function):
        raise PyTritonValidationError(f"the factory returned {function!r}, which cannot be called")
    function = served(function, task.config)
    check_callable(function, task.config)
    return function


def _close(function: Any) -> None:
    """Have an object of the user's give back what it holds."""
    close: Callable[[], None] | None = getattr(function, "close", None)
    if callable(close):
        try:
            close()
        except BaseException:
            LOGGER.exception("the inference callable could not be closed")
