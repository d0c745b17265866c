"""What ``Triton`` and ``RemoteTriton`` have in common: the life from the first connection to the end."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any, TypeVar

from pytriton import forks
from pytriton.binder import ModelBinder
from pytriton.client.exceptions import PyTritonClientTimeoutError
from pytriton.config import TritonConfig
from pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S, TRITON_LOCAL_IP
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonWorkerError
from pytriton.lifecycle import DefaultTritonLifecyclePolicy, TritonLifecyclePolicy
from pytriton.model import Model
from pytriton.server.control import ModelControl
from pytriton.server.launch import metrics_address
from pytriton.server.metrics_page import MetricsPage
from pytriton.server.statistics import ModelStatistics
from pytriton.signals import ending_signals
from pytriton.utils.workspace import Workspace
from pytriton.worker.context import current_binding
from pytriton.worker.metrics import CallableMetrics, load_prometheus

__all__ = ["MONITORING_PERIOD_S", "TritonBase"]

LOGGER = logging.getLogger("pytriton.triton")

TritonT = TypeVar("TritonT", bound="TritonBase")

METRICS_PORT = 8003
MONITORING_PERIOD_S = 10.0
READY_POLL_S = 0.02
DEATH_GRACE_S = 0.05
DISMISSAL_GRACE_S = 0.5


class TritonBase(ModelBinder):
    """Binds callables to a server, wherever that comes from.

    Args:
        workspace: Folder for the models' files and sockets, which must not exist; default: a new one below
            ``PYTRITON_HOME``. It is removed at the end.
        triton_lifecycle_policy: When there has to be a server.
        config: Of the server, if it is ours.

    Attributes:
        triton_context: What the bound callables share.
    """

    def __init__(
        self,
        workspace: Workspace | str | Path | None = None,
        triton_lifecycle_policy: TritonLifecyclePolicy = DefaultTritonLifecyclePolicy,
        config: TritonConfig | None = None,
    ) -> None:
        self._policy = triton_lifecycle_policy
        super().__init__(workspace, config)
        self._metrics_page: MetricsPage | None = None
        self._started = False
        self._stopping = False
        self._stopping_lock = threading.Lock()
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._process = os.getpid()
        forks.register(self)
        atexit.register(self._finish)

    def __enter__(self: TritonT) -> TritonT:
        """Connect, unless the policy says to wait; see :meth:`connect`."""
        try:
            if self._policy.launch_triton_on_startup:
                self.connect()
        except BaseException:
            self._finish()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and remove the workspace even if nothing was started."""
        self._finish()

    def connect(self) -> None:
        """See to it that there is a server, and load the models that are not loaded yet.

        Raises:
            PyTritonServerError: The server did not start; the message has its last lines.
            PyTritonClientTimeoutError: It was not ready in 120 s; also a TimeoutError.
            PyTritonInvalidOperationError: This object was stopped before, or meanwhile.
            tritonclient.utils.InferenceServerException: The server refused a model.
        """
        with self._changing("connect"):
            self._started = True
            if self._control is None:
                try:
                    self._control = self._reach()
                except Exception as error:
                    if self._is_wanted():
                        raise
                    raise PyTritonInvalidOperationError("stopped before the server was ready") from error
            try:
                self._load(self._control)
            except PyTritonWorkerError as error:
                if self._is_wanted():
                    raise
                raise PyTritonInvalidOperationError("stopped before the models were ready") from error

    def serve(self, monitoring_period_s: float | None = None, *, monitoring_period_sec: float | None = None) -> None:
        """Serve until :meth:`stop`, SIGINT, SIGTERM, or the end of the server or of a model; then stop.

        On a signal, requests in flight are finished, for up to ``exit_timeout_secs`` (30 s); a second signal ends them.

        Args:
            monitoring_period_s: Seconds between two looks at the models; default: 10.
            monitoring_period_sec: The same, under its older name.

        Raises:
            TypeError: Both were given.
        """
        if monitoring_period_s is not None and monitoring_period_sec is not None:
            raise TypeError("give monitoring_period_s or monitoring_period_sec, not both")
        given = monitoring_period_s if monitoring_period_s is not None else monitoring_period_sec
        period = MONITORING_PERIOD_S if given is None else given
        with ending_signals(self._on_signal, self._kill):
            try:
                self._begin_serving()
            except PyTritonInvalidOperationError:
                if not self._wake.is_set():  # by a signal, before the server was ready
                    raise
            while not self._wake.wait(period) and self.is_alive():
                pass
            self.stop()

    def stop(self) -> bool:
        """Finish the requests in flight, unload the models and remove the workspace; from any thread.

        Before the first :meth:`connect`, ``run`` or :meth:`serve`, and in a process that was forked from this one,
        nothing happens.

        Returns:
            Whether models were served, and this call ended it.
        """
        return self._finish() if self._started else False

    def _finish(self) -> bool:
        if current_binding.get() is not None:  # a callable's own thread: its request has to end first
            running = self.is_alive()
            self._stop_soon()
            return running
        with self._stopping_lock:
            first, self._stopping = not self._stopping, True
        if not first:
            self._stopped.wait()
            return False
        atexit.unregister(self._finish)
        self._models.interrupt()
        try:
            with self._lock:  # a start ends early, what loads or unloads a model goes on to its end
                pass
            if self._control is not None:
                self._end(self._control)
        finally:  # also after Ctrl+C while waiting
            self._kill()
            self._models.disconnect()
            if self._metrics_page is not None:
                self._metrics_page.close()
            self._workspace.clean()
            self._models.clear()
            self._stopped.set()
            self._wake.set()
        return self._control is not None

    def after_fork(self) -> None:
        """In a forked child, be stopped: server, workers and files are those of the process that made this object."""
        atexit.unregister(self._finish)
        self._lock, self._stopping_lock = threading.RLock(), threading.Lock()
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._stopping = True
        self._stopped.set()

    def is_alive(self) -> bool:
        """Whether there is a server, and every bound model can be served."""
        return self._is_running() and all(model.is_alive() for model in self._models)

    def is_connected(self) -> bool:
        """Whether there is a server, and every bound model was loaded."""
        return self._is_running() and all(model.loaded for model in self._models)

    def wait_for_ready(self, timeout_s: float = DEFAULT_TRITON_STARTUP_TIMEOUT_S) -> None:
        """Wait until the server and every bound model can answer; for threads beside the one that serves.

        Raises:
            PyTritonClientTimeoutError: They could not within ``timeout_s`` seconds; also a TimeoutError.
            PyTritonInvalidOperationError: This object was stopped.
        """
        deadline = time.monotonic() + timeout_s
        while not (self.is_connected() and self._models.are_connected() and self._control and self._control.is_ready()):
            self._check_running("wait")
            if time.monotonic() > deadline:
                raise PyTritonClientTimeoutError(f"the server and its models were not ready within {timeout_s:g} s")
            time.sleep(READY_POLL_S)

    def statistics(self, model_name: str | None = None) -> list[ModelStatistics]:
        """What the server has counted of its models since they were loaded, sorted by name and version.

        Args:
            model_name: Only of this model; default: of all.

        Raises:
            PyTritonInvalidOperationError: The server does not run.
            tritonclient.utils.InferenceServerException: There is no such model.
        """
        self._check_running("read statistics")
        if self._control is None:
            raise PyTritonInvalidOperationError("cannot read statistics: there is no server yet; call connect() first")
        return self._control.statistics(model_name)

    def serve_metrics(self, port: int = METRICS_PORT, address: str | None = None, registry: Any = None) -> str:
        """Serve metrics of the callables, and those that they make themselves, for Prometheus, until :meth:`stop`.

        Needs ``prometheus_client`` (``pip install 'pytriton[metrics]'``). The server's own metrics are on its own page,
        see ``TritonConfig.metrics_port``. docs/observability.md lists them.

        Args:
            port: To listen on; 0 is any free one.
            address: To listen on; default: that of our server's own metrics; beside another one's, 127.0.0.1.
            registry: A ``prometheus_client.CollectorRegistry``; default: ``prometheus_client.REGISTRY``, where the
                metrics of a program are unless it says otherwise.

        Returns:
            The page's URL on this machine.

        Raises:
            ImportError: ``prometheus_client`` is not installed.
            PyTritonInvalidOperationError: There is such a page already, or this object was stopped.
            PyTritonServerError: It cannot listen there.
        """
        prometheus = load_prometheus()
        registry = prometheus.REGISTRY if registry is None else registry
        if address is None:
            address = metrics_address(self._config) if self._config else TRITON_LOCAL_IP
        with self._lock:
            self._check_may_start("serve metrics")
            if self._metrics_page is not None:
                raise PyTritonInvalidOperationError(f"metrics are served already, at {self._metrics_page.url}")
            self._started = True
            handler = prometheus.MetricsHandler.factory(registry)
            self._metrics_page = MetricsPage(handler, address, port)
            self._observation.metrics = CallableMetrics.of(registry)
            return self._metrics_page.url

    # What differs between servers:

    @abstractmethod
    def _reach(self) -> ModelControl:
        """Start the server, or wait for it."""

    def _is_running(self) -> bool:
        """Whether the server can be expected to answer."""
        return self._control is not None and not self._stopping

    def _is_wanted(self) -> bool:
        """Whether to wait on for a server."""
        return not self._stopping and not self._wake.is_set()

    def _begin_serving(self) -> None:
        """Do what comes before :meth:`serve` waits."""
        self.connect()

    @abstractmethod
    def _revive(self, control: ModelControl, model: Model) -> None:
        """Have the server load a model again whose proxy has gone by itself."""

    @abstractmethod
    def _end(self, control: ModelControl) -> None:
        """Unload the models when they are drained, and do what the server needs."""

    @abstractmethod
    def _kill(self) -> None:
        """Wait for nothing any more."""

    def _check_running(self, what: str) -> None:
        kind = type(self).__name__
        if self._process != os.getpid():
            raise PyTritonInvalidOperationError(
                f"cannot {what}: this {kind} object belongs to process {self._process}, from which this process was "
                f"forked; create a new {kind} in this process"
            )
        if self._stopping:
            raise PyTritonInvalidOperationError(f"cannot {what}: this {kind} object was stopped; create a new one")

    def _on_signal(self, number: signal.Signals) -> None:
        LOGGER.info("%s received, exiting.", number.name)
        self._wake.set()
        # On a thread of its own, as the main thread may be just where a lock is held that this needs.
        threading.Thread(target=self._models.interrupt, name="pytriton-interrupt").start()

    def _on_unrecoverable(self) -> None:
        self._stop_soon()

    def _stop_soon(self) -> None:
        threading.Thread(target=self.stop, name="pytriton-stop").start()

    def _on_disconnect(self, model: Model) -> None:
        if model.loaded and self._is_running():
            threading.Thread(target=self._watch, args=(model,), name="pytriton-revive", daemon=True).start()

    def _watch(self, model: Model) -> None:
        """See whether a proxy that has gone is replaced: the server still calls its model ready, but requests fail."""
        time.sleep(DISMISSAL_GRACE_S if model.was_dismissed() else DEATH_GRACE_S)
        control = self._control
        if control is not None and self._is_lost(model):
            self._revive(control, model)

    def _is_lost(self, model: Model) -> bool:
        """Whether a model should have its proxies, and has not."""
        return self._is_running() and self._models.is_lost(model)

    def _forget_replaced(self, control: ModelControl, model: Model) -> None:
        LOGGER.warning(
            "model %s: another process has loaded a model of this name into the server at %s; it is not bound here any "
            "more",
            model.name,
            control.url,
        )
        for version in self._models.versions(model.name, None):
            self._models.remove(version)
