"""The program of a remote worker: makes a callable, joins the model's server, and answers its batches."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import zmq

from pytriton.cluster.channel import RefusedError, RemoteChannel
from pytriton.cluster.derivation import derive_tensors
from pytriton.cluster.keys import WorkerKeys
from pytriton.cluster.options import check_address, is_local
from pytriton.composition.injection import callees_of, with_handles
from pytriton.decorators.signatures import check_callable
from pytriton.exceptions import PyTritonWorkerError
from pytriton.logs import get_logger
from pytriton.model_config.parser import ModelConfigParser
from pytriton.options import SECONDS, check, integer, option, with_none
from pytriton.pool.batch_reports import WorkerObservation
from pytriton.pool.pool import ServedCallable, ServedModel
from pytriton.pool.resources import memory_of
from pytriton.pool.worker_main import close_callable
from pytriton.proxy.telemetry import ensure_telemetry_tracer, wants_telemetry
from pytriton.restarts import Backoff
from pytriton.signature.served import served_form
from pytriton.threads import keep_running
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.control import DERIVED, LEAVE, MEMORY, READY, REPORT
from pytriton.wire.tensors import FrameError
from pytriton.worker.context import TritonContext, attach
from pytriton.worker.inference import Options
from pytriton.worker.results import is_async

if TYPE_CHECKING:
    from pytriton.cluster.call_client import CallClient, WorkerConnector
    from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["RemoteWorker", "WorkerOptions", "fitting"]

LOGGER = get_logger("pytriton.worker")

CONNECT_S = 5.0
ANSWER_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 3.0
AHEAD = 2  # batches of a plain function: one that it works on, and the next one
LOG_EVERY = 12  # attempts
MEMORY_S = 5.0


@dataclass(frozen=True)
class WorkerOptions:
    """Where a worker joins.

    Args:
        connect: Address of the server's side, as ``RemoteWorkers.listen`` there.
        keys: Of this worker, and of the server's side.
        credits: How many batches to take at a time; None is 2 for a plain function, of which it works on one, and the
            model's ``max_batches_in_flight`` for coroutine functions and decoupled models.
        heartbeat_s: The server's side is lost if it is silent for three times as long.

    Raises:
        PyTritonWorkerError: The server's side is on another machine, and there are no keys.
        PyTritonBadParameterError: Another argument has a wrong value.
    """

    connect: str
    keys: WorkerKeys | None = None
    credits: int | None = option(None, with_none(integer()))
    heartbeat_s: float = option(2.0, SECONDS)

    def __post_init__(self) -> None:
        check_address("connect", self.connect)
        check(self)
        if self.keys is None and not is_local(self.connect):
            raise PyTritonWorkerError(f"{self.connect} is another machine: give the keys of this worker and the server")


class RemoteWorker:
    """Answers the batches of one model with one callable, until :meth:`leave` or the model's end.

    Args:
        model_version: Its version; None is any.
        device: That the callable uses, for the server's side to show.
        on_join: Called with what the server's side says of the model, which the callable fits.
    """

    def __init__(
        self,
        model: str,
        function: Any,
        options: WorkerOptions,
        model_version: int | None = None,
        device: str | None = None,
        on_join: Callable[[dict[str, Any]], None] = lambda welcome: None,
    ) -> None:
        self._device = device
        self._on_join = on_join
        self._model = model
        self._version = model_version
        self._function = function
        self._options = options
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._lock = threading.Lock()
        self._channel: RemoteChannel | None = None
        self._leaving = threading.Event()
        self._served: tuple[dict[str, Any], ServedCallable] | None = None
        self._calls: CallClient | None = None
        self._observation = WorkerObservation(None, lambda: None, self._report)

    def leave(self) -> None:
        """Take no further batch, answer those that have come, and end. From any thread."""
        self._leaving.set()
        with self._lock:
            channel = self._channel
        if channel is not None:
            try:
                channel.tell(LEAVE)
            except PeerGoneError:
                channel.shutdown()

    def run(self) -> None:
        """Join, and answer batches; join again whenever the connection was lost.

        Raises:
            PyTritonWorkerError: The server's side refused this worker.
            PyTritonValidationError: The callable does not fit the model.
        """
        backoff, attempts, said = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), 0, ""
        try:
            while not self._leaving.is_set():
                channel = RemoteChannel(
                    self._context,
                    self._options.connect,
                    self._options.heartbeat_s,
                    self._secure,
                    self._observe,
                )
                self._observation.reports_batches = False
                with self._lock:
                    self._channel = channel
                try:
                    served = self._join(channel)
                    if served is not None:
                        attempts, said = 0, ""
                        backoff.reset()
                        LOGGER.info("answering batches of model %s at %s", self._model, self._options.connect)
                        if self._calls is not None:
                            self._calls.join(channel)
                        with _telling_memory(channel):
                            served.executor.serve(channel)
                except PeerGoneError as error:
                    if channel.ended_well:
                        LOGGER.info("model %s: %s", self._model, error)
                    elif not self._leaving.is_set() and str(error) != said:
                        said = str(error)
                        LOGGER.warning("model %s: %s; joining again", self._model, said)
                except FrameError as error:
                    LOGGER.warning("model %s: a bad message from %s: %s", self._model, self._options.connect, error)
                finally:
                    with self._lock:
                        self._channel = None
                    if self._calls is not None:
                        self._calls.leave()
                    channel.close()
                if attempts % LOG_EVERY == 1:
                    LOGGER.info("model %s: waiting for %s", self._model, self._options.connect)
                attempts += 1
                self._leaving.wait(backoff.next_s() * random.uniform(0.5, 1.5))
        finally:
            if self._served is not None:
                self._served[1].executor.close()
            if self._calls is not None:
                self._calls.close()
            close_callable(self._function)

    def _join(self, channel: RemoteChannel) -> ServedCallable | None:
        """Join; None if nobody answers yet."""
        if not channel.wait_connected(CONNECT_S):
            return None
        hello = {"package": version("pytriton"), "model": self._model, "version": self._version}
        try:
            content = channel.join({**hello, "process": os.getpid(), "device": self._device}, ANSWER_S)
        except RefusedError as error:
            if error.is_final:
                raise PyTritonWorkerError(str(error)) from error
            raise
        if content is None:
            return None
        if "derive" in content:
            channel.tell(DERIVED, derive_tensors(self._function, self._model, content["derive"]))
            channel.receive_message(ANSWER_S)
            return None
        served = self._serve(content)
        is_concurrent = served.binding.model_config.decoupled or is_async(self._function)
        ahead = content["options"]["max_batches_in_flight"] if is_concurrent else AHEAD
        callees = [*callees_of(self._function).values()]
        ready = {"credits": self._options.credits or ahead, "is_concurrent": is_concurrent, "callees": callees}
        channel.tell(READY, ready)
        if self._leaving.is_set():
            channel.tell(LEAVE)
        return served

    def _secure(self, connection: zmq.Socket[bytes]) -> None:
        if self._options.keys is not None:
            self._options.keys.secure(connection)

    def _observe(self) -> None:
        self._observation.reports_batches = True

    def _report(self, *report: Any) -> None:
        """Tell the server's side what has happened to a batch."""
        with self._lock:
            channel = self._channel
        if channel is not None:
            with suppress(PeerGoneError):
                channel.tell(REPORT, report)

    def _serve(self, welcome: dict[str, Any]) -> ServedCallable:
        """The callable in the form that the model needs; the one from before if the model is the same."""
        if self._served is not None:
            before, served = self._served
            if before == welcome:
                return served
            served.executor.close()
        _trace(welcome["trace_config"])
        config, function = fitting(self._function, welcome, self._connector(welcome["secret"]))
        context = TritonContext()
        attach(function, context, config)
        model = ServedModel(config, context, Options(**welcome["options"]), self._observation)
        served = ServedCallable(function, model, True, f"pytriton-{self._model}", self._stop_unrecoverable)
        self._served = welcome, served
        self._on_join(welcome)
        return served

    def _connector(self, secret: str | None) -> WorkerConnector | None:
        """How the callable calls models; None if it calls none, or the other side does not know the server."""
        if secret is None or not callees_of(self._function):
            return None
        from pytriton.cluster.call_client import CallClient, WorkerConnector

        if self._calls is None:
            self._calls = CallClient()
        return WorkerConnector(secret, self._calls)

    def _stop_unrecoverable(self) -> None:
        LOGGER.error("model %s: the callable cannot go on; this worker ends", self._model)
        self.leave()


def fitting(
    function: Any, welcome: dict[str, Any], connector: WorkerConnector | None = None
) -> tuple[TritonModelConfig, Any]:
    """The configuration of a model that a worker is welcome to, and the callable in the form that it needs.

    Raises:
        PyTritonValidationError: The callable does not fit the model.
    """
    config = ModelConfigParser.from_dict(welcome["config"])
    config.model_version = welcome["version"]
    form = served_form(with_handles(function, config.model_name, lambda: connector), config)
    check_callable(form, config)
    return config, form


@contextmanager
def _telling_memory(channel: RemoteChannel) -> Iterator[None]:
    """Tell the server's side what memory this process has, at once and every few seconds."""
    ended = threading.Event()

    def tell() -> None:
        with suppress(PeerGoneError):
            while memory := memory_of(os.getpid()):
                channel.tell(MEMORY, memory)
                if ended.wait(MEMORY_S):
                    return

    thread = keep_running(tell, "pytriton-worker-memory")
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _trace(trace_config: Sequence[str] | None) -> None:
    """Send spans to where the server sends its own, unless this process has a tracer."""
    if trace_config is not None and wants_telemetry(trace_config):
        try:
            ensure_telemetry_tracer(trace_config)
        except (ImportError, ValueError) as error:
            LOGGER.warning("requests have no spans of this worker: %s", error)


def run_workers(runs: Sequence[Callable[[], None]], on_failure: Callable[[], None]) -> list[BaseException]:
    """Run workers, each in a thread, until all have ended; returns why some failed.

    Args:
        runs: The methods of workers for different models.
        on_failure: Called when one has failed; the others go on unless it says so.
    """
    failures: list[BaseException] = []

    def run_one(run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            failures.append(error)
            on_failure()

    threads = [threading.Thread(target=run_one, args=(run,), daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # so that this thread handles signals
    return failures
