"""The program of a worker process: calls the factory, and serves its callable until the launching process ends it."""

from __future__ import annotations

import logging
import pickle
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

from pytriton.composition.connector import Connector
from pytriton.composition.injection import callees_of, with_handles
from pytriton.decorators.signatures import check_callable
from pytriton.exceptions import PyTritonValidationError
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.batch_reports import WorkerObservation
from pytriton.pool.messages import ProcessSpec
from pytriton.pool.pipes import MessagePipe, log_through, run_child
from pytriton.pool.pool import ServedCallable, ServedModel
from pytriton.proxy.telemetry import ensure_telemetry_tracer, wants_telemetry
from pytriton.signature.served import served_form
from pytriton.wire.channel import ChannelState
from pytriton.wire.control import (
    ANSWER,
    CONNECTED,
    CONNECTION,
    CONNECTION_DESCRIPTORS,
    DISCONNECTED,
    DRAIN,
    FAILED,
    HAND_OVER,
    MAX_REQUESTS,
    OBSERVE,
    QUIET,
    READY,
    RECORD,
    RECORDED,
    REPORT,
    TAKEN,
    UNRECOVERABLE,
)
from pytriton.worker.context import TritonContext, attach
from pytriton.worker.inference import Options
from pytriton.worker.instance import Instance
from pytriton.worker.interfaces import Channel, Executor
from pytriton.worker.recording import NumberedRecording
from pytriton.worker.results import is_async
from pytriton.worker.warmup import warm_up

__all__ = ["WorkerRunner", "WorkerSpec", "close_callable", "main", "prepare", "serve_worker"]

LOGGER = get_logger("pytriton.worker")


def main(spec: int, pipe: int, parent: int, *descriptors: int) -> None:
    """Run a worker to its end."""
    run_child(lambda file, pipe: serve_worker(file, pipe, descriptors), spec, pipe, parent, descriptors)


def serve_worker(
    file: IO[bytes],
    pipe: MessagePipe,
    descriptors: Sequence[int],
    change: Callable[[ProcessSpec], ProcessSpec] = lambda spec: spec,
) -> None:
    """Run a worker to its end, whose changed spec the file has."""
    try:
        spec: ProcessSpec = pickle.load(file)
        prepare(spec, pipe)
        serve = change(spec).start(pipe, descriptors)
    except BaseException:
        pipe.send(FAILED, traceback.format_exc())
        return
    serve()


def prepare(spec: ProcessSpec, pipe: MessagePipe) -> logging.Handler:
    """Set the process up before the user's code runs; returns what sends log records through the pipe."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # it is a pipe, and its lines are for a log
    handler = log_through(pipe, spec.log_levels)
    if spec.trace_config is not None and wants_telemetry(spec.trace_config):
        ensure_telemetry_tracer(spec.trace_config)
    return handler


@dataclass(frozen=True, kw_only=True)
class WorkerSpec(ProcessSpec):
    """The data that a worker needs to start whose proxy is on this machine.

    Attributes:
        path: Of the instance's socket, on which the launching process listens. The worker inherits that socket.
        max_requests: The worker reports when it has been sent this many; None is never.
        instances: How many model instances it has; their sockets have numbers that follow each other.
        connector: Connects the callable to the server; None if that has no address.
        recording: What is recorded from the start, but warm-ups.
    """

    path: str
    config: TritonModelConfig
    options: Options
    max_requests: int | None = None
    connector: Connector | None = None
    recording: NumberedRecording | None = None
    instances: int = 1

    def paths(self) -> list[str]:
        """Of the sockets of all its instances."""
        prefix, _, first = self.path.rpartition(".")
        return [self.path, *(f"{prefix}.{int(first) + number}" for number in range(1, self.instances))]

    @override
    def inference_callable(self) -> Any:
        made = super().inference_callable()
        function = served_form(with_handles(made, self.config.model_name, lambda: self.connector), self.config)
        check_callable(function, self.config)
        if self.instances > 1 and is_async(function):
            raise PyTritonValidationError(
                f"the factory returned {function!r}, a coroutine function, which answers several batches at once on "
                "one thread; leave instances_per_worker out"
            )
        return function

    @override
    def start(self, pipe: MessagePipe, descriptors: Sequence[int]) -> Callable[[], None]:
        return WorkerRunner(self, pipe, socket.socket(fileno=descriptors[0])).run


class WorkerRunner:
    """Serves the callable that the factory returns to the proxies that connect to ``listener``.

    Raises as :meth:`ProcessSpec.inference_callable`.
    """

    def __init__(self, spec: WorkerSpec, pipe: MessagePipe, listener: socket.socket) -> None:
        self._spec = spec
        self._pipe = pipe
        self._connecting = threading.Lock()
        self._proxies = 0
        self._function = spec.inference_callable()
        self._observation = WorkerObservation(
            spec.max_requests, partial(pipe.send, MAX_REQUESTS), partial(pipe.send, REPORT)
        )
        self._context = TritonContext()
        attach(self._function, self._context, spec.config)
        self._callable = ServedCallable(
            self._function,
            ServedModel(spec.config, self._context, spec.options, self._observation),
            spec.config.decoupled or is_async(self._function),
            f"{spec.name}-loop",
            partial(pipe.send, UNRECOVERABLE),
            spec.instances,
        )
        self._warm_up()
        self._record(spec.recording)
        self._instance: Instance = self._callable.listen(spec.path, self._on_disconnect, self._on_connect, listener)
        pipe.send(READY, is_async(self._function), frozenset(callees_of(self._function).values()))

    def run(self) -> None:
        """Follow the commands of the launching process until the worker is to end."""
        while (command := self._pipe.receive()) is not None and command[0] not in (DRAIN, HAND_OVER):
            if command[0] == OBSERVE:
                self._observation.reports_batches = True
            elif command[0] == RECORD:
                self._record(command[1])
            elif command[0] == CONNECTION:
                descriptors = self._pipe.receive_descriptors(CONNECTION_DESCRIPTORS)
                self._pipe.send(TAKEN)
                self._instance.go_on(descriptors, command[1])
            else:
                question, number, value = command
                self._pipe.send(ANSWER, number, self._answer(question, value))
        if command is not None and command[0] == DRAIN:
            self._drain()
        elif command is not None:
            self._instance.hand_over(self._give)
            self._instance.wait_disconnected(None)
        self._instance.close()
        self._instance.wait_ended()
        self._record(None)
        close_callable(self._function)

    def _record(self, numbered: NumberedRecording | None) -> None:
        self._observation.record(self._spec.config, numbered, partial(self._pipe.send, RECORDED))

    def _answer(self, question: bytes, value: Any) -> Any:
        return self._instance.quiet_s() if question == QUIET else self._rebind(value)

    def _drain(self) -> None:
        if self._spec.config.decoupled:  # streams would not learn any more which responses were received
            self._instance.wait_quiet()
        self._instance.drain()
        self._instance.wait_disconnected(None)

    def _give(self, descriptors: Sequence[int], state: ChannelState) -> None:
        self._pipe.send_descriptors(CONNECTION, descriptors, state)

    def _on_connect(self) -> None:
        with self._connecting:
            self._proxies += 1
            self._pipe.send(CONNECTED)

    def _on_disconnect(self) -> None:
        with self._connecting:
            self._proxies -= 1
            self._pipe.send(DISCONNECTED, self._proxies > 0, self._instance.was_dismissed)

    def _warm_up(self) -> None:
        """Send the callable its warm-up requests before the proxy can connect, through a socket of their own."""
        if not self._spec.options.warmup:
            return
        path = f"{self._spec.path}.warm-up"
        Path(path).unlink(missing_ok=True)
        instance = Instance(path, self._callable.binding, _BorrowedExecutor(self._callable.executor), lambda: None)
        try:
            warm_up(path, self._spec.config, self._spec.options.warmup)
        finally:
            instance.close()
            instance.wait_ended()

    def _rebind(self, pickled: bytes) -> str:
        """Serve what another factory makes; returns an empty text, or why that failed."""
        try:
            function = pickle.loads(pickled).inference_callable()
            if is_async(function) != is_async(self._function):
                raise PyTritonValidationError(
                    "a coroutine function cannot take the place of a plain one, nor the other way round"
                )
        except BaseException:
            return traceback.format_exc()
        attach(function, self._context, self._spec.config)
        self._callable.rebind(function)
        self._context.model_configs.discard(self._function, self._spec.config)
        self._function = function
        return ""


class _BorrowedExecutor:
    """An executor that the instance which uses it does not close."""

    answer = None  # there is no proxy in a worker process

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.quiet_s, self.batches = executor.quiet_s, executor.batches

    def serve(self, channel: Channel) -> None:
        self._executor.serve(channel)

    def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


def close_callable(function: Any) -> None:
    """Call the method ``close`` of the user's object, if it has one."""
    close: Callable[[], None] | None = getattr(function, "close", None)
    if callable(close):
        try:
            close()
        except BaseException:
            LOGGER.exception("the callable's method close raised an exception")
