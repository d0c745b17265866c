"""``Triton``: binds Python callables as models and has a Triton Inference Server serve them."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import TracebackType

from tritonclient.utils import InferenceServerException

from pytriton.config import TritonConfig, merge_configs
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.model import InferFunc, Model, callables, check_name, describe
from pytriton.model_config import ModelConfig, Tensor
from pytriton.server.installation import find_installation
from pytriton.server.server import REFUSED, Server
from pytriton.signals import ending_signals
from pytriton.utils.workspace import Workspace
from pytriton.worker.context import TritonContext, current_binding
from pytriton.worker.inference import Options

__all__ = ["MONITORING_PERIOD_S", "MONITORING_PERIOD_SEC", "Triton", "TritonConfig", "TritonContext"]

LOGGER = logging.getLogger(__name__)

MONITORING_PERIOD_S = 10.0
MONITORING_PERIOD_SEC = MONITORING_PERIOD_S
PROXY_LOSS_GRACE_S = 0.5
QUIET_S = 1.0
SETTLE_S = 0.1


class Triton:
    """Serves bound callables with a Triton Inference Server.

    The server starts on entering the context, or at :meth:`run` or :meth:`serve`; it ends with :meth:`stop`, on leaving
    the context, at the interpreter's exit, and with this process whatever ends it.

    Args:
        config: Options of the server; they win over ``PYTRITON_TRITON_CONFIG_*`` in the environment.
        workspace: Folder for the model repository and sockets, which must not exist; default: a new one below
            ``PYTRITON_HOME``. It is removed at the end.

    Attributes:
        triton_context: What the bound callables share.

    Raises:
        PyTritonServerError: There is no server binary here.
        PyTritonValidationError: The configuration is wrong.
        FileExistsError: ``workspace`` exists.
    """

    def __init__(self, *, config: TritonConfig | None = None, workspace: Workspace | str | Path | None = None) -> None:
        self._config = merge_configs(TritonConfig.from_env(), config)
        self._installation = find_installation()
        self._workspace = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
        self._sockets = self._workspace.path / "sockets"
        self._sockets.mkdir(mode=0o700)
        self._numbers = count()
        self._models: list[Model] = []
        self._server: Server | None = None
        self._lock = threading.RLock()
        self._announced = False
        self._stopping = False
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self.triton_context = TritonContext()
        atexit.register(self.stop)

    def __enter__(self) -> Triton:
        """Start the server and load the models bound so far."""
        try:
            self.connect()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def bind(
        self,
        model_name: str,
        infer_func: InferFunc | Sequence[InferFunc],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        model_version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        trace_config: list[str] | None = None,
    ) -> None:
        """Serve a callable as a model; at once if the server runs, else as soon as it does.

        Args:
            model_name: Letters, digits, dots, underscores and dashes.
            infer_func: Gets a list of requests and returns a list of one mapping, output name to array, per request;
                the decorators give it other signatures. A list of callables makes one model instance of each: they run
                in parallel threads.
            inputs: Without the batch axis; nameless ones are called INPUT_1, INPUT_2, ...
            outputs: Likewise OUTPUT_1, OUTPUT_2, ...
            model_version: Several versions of a model may be bound; they share all but the callables.
            config: Batching and more.
            strict: Check every result's names, dtypes and shapes against ``outputs``.
            trace_config: Accepted for programs that give it; traces follow ``TritonConfig.trace_config``.

        Raises:
            PyTritonValidationError: The name, callable, tensors or config are wrong.
            PyTritonBadParameterError: A value in the configuration is out of range.
            PyTritonInvalidOperationError: The name and version are bound, or this object was stopped.
            tritonclient.utils.InferenceServerException: The server refused the model.
        """
        check_name(model_name)
        functions = callables(infer_func)
        config = ModelConfig() if config is None else config
        described = describe(model_name, model_version, inputs, outputs, config, len(functions))
        options = Options(strict, config.isolate_errors, config.send_traceback, config.max_batches_in_flight)
        with self._lock:
            self._check_running(f"bind model {model_name!r}")
            for other in self._models:
                other.check_beside(described)
            model = Model(functions, described, self.triton_context, options)
            self._models.append(model)
            if self._server is not None:
                self._load([model])

    def connect(self) -> None:
        """Start the server if need be, and load the models that are not loaded yet.

        Raises:
            PyTritonServerError: The server did not start; the message has its last lines.
            PyTritonClientTimeoutError: It was not ready in 120 s; also a TimeoutError.
            tritonclient.utils.InferenceServerException: The server refused a model.
        """
        with self._lock:
            self._check_running("start the server")
            if self._server is None:
                self._server = self._start_server()
            self._load([model for model in self._models if not model.loaded])

    def run(self) -> None:
        """Start serving and return; raises as :meth:`connect`. Safe to call again."""
        self.connect()
        if not self._announced:
            self._announced = True
            LOGGER.info(
                "(Press CTRL+C or use the command `kill -SIGINT %d` to send a SIGINT signal and quit)", os.getpid()
            )

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
        with ending_signals(self._on_signal, self._on_second_signal):
            self.run()
            while not self._wake.wait(period) and self.is_alive():
                pass
            self.stop()

    def stop(self) -> bool:
        """Finish the requests in flight, end the server and remove the workspace; from any thread.

        Returns:
            Whether a server was running and this call ended it.
        """
        if current_binding.get() is not None:  # a callable's own thread: its request has to end first
            running = self.is_alive()
            threading.Thread(target=self.stop, name="pytriton-stop").start()
            return running
        with self._lock:
            first, self._stopping = not self._stopping, True
        if not first:
            self._stopped.wait()
            return False
        atexit.unregister(self.stop)
        try:
            if self._server is not None:
                self._server.end(sorted({model.name for model in self._models if model.loaded}), self._wait_drained)
                self._warn_verbose()
        finally:  # also after Ctrl+C while waiting
            if self._server is not None:
                self._server.kill()
            for model in self._models:
                model.disconnect()
            self._workspace.clean()
            self._models.clear()
            self._stopped.set()
            self._wake.set()
        return self._server is not None

    def is_alive(self) -> bool:
        """Whether the server runs and every bound model can be served."""
        return self._is_running() and all(model.is_alive() for model in list(self._models))

    def is_connected(self) -> bool:
        """Whether the server runs and every bound model was loaded."""
        return self._is_running() and all(model.loaded for model in list(self._models))

    def _is_running(self) -> bool:
        return self._server is not None and self._server.is_alive() and not self._stopping

    def _check_running(self, what: str) -> None:
        if self._stopping:
            raise PyTritonInvalidOperationError(f"cannot {what}: this Triton object was stopped; create a new one")
        if self._server is not None and not self._server.is_alive():
            raise self._server.failure(f"cannot {what}: the server has ended")

    def _start_server(self) -> Server:
        store = self._workspace.model_store_path
        server = Server(self._config, self._installation, self._workspace.path, store, self._on_server_exit)
        LOGGER.info("Triton Inference Server is ready: %s", server.endpoints())
        self._warn_verbose()
        return server

    def _warn_verbose(self) -> None:
        if self._config.log_verbose:
            LOGGER.warning("the server runs with log_verbose=%d, which slows inference down", self._config.log_verbose)

    def _load(self, models: list[Model]) -> None:
        """Load models, at once; those that the server refuses are forgotten."""
        by_name: dict[str, list[Model]] = defaultdict(list)
        for model in models:
            by_name[model.name].append(model)
        with ThreadPoolExecutor(max_workers=max(1, min(len(by_name), 8)), thread_name_prefix="pytriton-load") as pool:
            results = [pool.submit(self._load_versions, versions) for versions in by_name.values()]
        for result in results:
            result.result()

    def _load_versions(self, models: list[Model]) -> None:
        server = self._server
        assert server is not None
        try:
            for model in models:
                sockets = self._sockets / str(next(self._numbers))
                model.start(self._workspace.model_store_path, sockets, self._on_disconnect, self._stop_soon)
            server.load(models[0].name)
            for model in models:
                if not server.is_model_ready(model.name, model.version):
                    raise InferenceServerException(f"model {model.name!r}, version {model.version}, did not get ready")
        except BaseException:
            for model in models:
                model.close()
                self._models.remove(model)
            raise
        for model in models:
            model.loaded = True
            LOGGER.info(model.endpoints())

    def _wait_drained(self, deadline: float) -> bool:
        """Wait until the unloaded models have answered all requests that the server had accepted.

        The server says so by ending the proxies, but 1 s late, and not at all if a client has cancelled a stream in an
        unlucky moment. Instances that have had nothing to do for as long have nothing to come either. When that was so
        before, only a request that came in at the last moment has to be waited for.
        """
        delay_s = max((model.queue_delay_s() for model in self._models), default=0.0)
        if self._is_quiet(QUIET_S):
            time.sleep(SETTLE_S + delay_s)
        while not self._is_quiet(QUIET_S + delay_s):
            if time.monotonic() > deadline:
                return False
            soon = min(deadline, time.monotonic() + SETTLE_S)
            if all(model.wait_disconnected(soon) for model in self._models):
                return True
        return True

    def _is_quiet(self, seconds: float) -> bool:
        return all(model.quiet_s() > seconds for model in self._models)

    def _on_signal(self, number: signal.Signals) -> None:
        LOGGER.info("%s received, exiting.", number.name)
        self._wake.set()

    def _on_second_signal(self) -> None:
        if self._server is not None:
            self._server.kill()

    def _on_server_exit(self, status: int) -> None:
        if not self._stopping and self._server is not None:
            LOGGER.warning("the server exited with failure: %s", self._server.failure("it ended by itself"))
            self.stop()
        for model in list(self._models):  # nobody waits for the callables' answers any more
            model.disconnect()

    def _stop_soon(self) -> None:
        threading.Thread(target=self.stop, name="pytriton-stop").start()

    def _on_disconnect(self, model: Model) -> None:
        if model.loaded and self._is_running():
            threading.Thread(target=self._revive, args=(model,), name="pytriton-revive", daemon=True).start()

    def _revive(self, model: Model) -> None:
        """Load a model again whose proxy has died: the server still calls it ready, but each request fails."""
        time.sleep(PROXY_LOSS_GRACE_S)
        with self._lock:
            server = self._server
            if server is None or not self._is_running() or model.is_connected() or model not in self._models:
                return
            try:
                if server.is_model_ready(model.name, model.version):  # not so after a client unloaded it
                    LOGGER.warning("model %s: its proxy in the server died; loading the model again", model.name)
                    server.unload(model.name)
                    server.load(model.name)
            except REFUSED:
                LOGGER.exception("model %s cannot be loaded again", model.name)
