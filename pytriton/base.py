"""What ``Triton`` and ``RemoteTriton`` have in common: binding models, connecting to the server, serving, stopping."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

from pytriton import forks
from pytriton.binding import ModelRegistry
from pytriton.client.exceptions import PyTritonClientTimeoutError
from pytriton.composition.connector import Connector, NetworkConnector, secret_of
from pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonValidationError, PyTritonWorkerError
from pytriton.lifecycle import Lifecycle, weakly
from pytriton.logs import get_logger
from pytriton.model import Model
from pytriton.model_config import ModelConfig, Recording, Tensor
from pytriton.model_spec import ModelSpec
from pytriton.operations import Console
from pytriton.pool.memory_budget import MemoryBudget
from pytriton.pool.pool import Infer, WorkerStatus
from pytriton.rest.config import EdgeFiles, RestConfig
from pytriton.rest.hosted import HostedApp
from pytriton.revival import Revival
from pytriton.server.endpoints import ServerEndpoints
from pytriton.server.metrics_page import MetricsPage
from pytriton.server.model_server import ModelServer, ServerCapabilities
from pytriton.server.statistics import ModelStatistics
from pytriton.serving import Serving
from pytriton.threads import check_threads
from pytriton.utils.workspace import Workspace
from pytriton.worker.context import TritonContext, current_binding
from pytriton.worker.metrics import CallableMetrics, load_prometheus
from pytriton.worker.observation import Observation
from pytriton.worker.recording import RecordingStatus

__all__ = ["MONITORING_PERIOD_S", "TritonBase"]

LOGGER = get_logger("pytriton.triton")

TritonT = TypeVar("TritonT", bound="TritonBase")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

METRICS_PORT = 8003
MONITORING_PERIOD_S = 10.0
READY_POLL_S = 0.02
STANDARD_ERROR = 2


class TritonBase(ABC):
    """Binds callables as models of a server, and connects, serves and stops.

    Methods that change or ask something raise PyTritonInvalidOperationError after :meth:`stop`, in a forked process and
    for a model or version that is not bound, and PyTritonModelControlError if the server refuses.

    Args:
        rest: Options of an app, which were checked; None for no app.
        memory_budget: As that of :class:`pytriton.triton.Triton`.

    Raises:
        PyTritonBadParameterError: ``memory_budget`` is no number of bytes above 0.
    """

    def __init__(
        self,
        workspace: Workspace | str | Path | None = None,
        connect_on_enter: bool = True,
        rest: RestConfig | None = None,
        memory_budget: int | None = None,
    ) -> None:
        self._memory = None if memory_budget is None else MemoryBudget(memory_budget)
        check_threads(
            type(self).__name__,
            *("threading", "select", "subprocess"),
            instead="serve models from a process of its own, without monkey.patch_all()",
        )
        _open_standard_files()
        self._rest = rest
        self._app = HostedApp(weakly(self._stop_soon))
        self._console: Console | None = None
        self._workspace = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
        self._server: ModelServer | None = None
        self._connect_on_enter = connect_on_enter
        self._observation = Observation()
        self._pages: list[MetricsPage] = []  # of metrics, one at most; a list, as a finalizer closes it
        self._lock = threading.RLock()
        self._models = ModelRegistry(self._workspace, weakly(self._stop_soon))
        # Its threads must not keep this object, which ends when nothing refers to it, if it may.
        self._revival = Revival(self._models, self._lock, weakly(self._running_server))
        self.triton_context = TritonContext(connector=weakly(self._connector), memory_budget=self._memory)
        self._lifecycle = Lifecycle(type(self).__name__, self._exit_hook())
        given = self._lifecycle, self._models, self._app
        self._serving = Serving(*given, weakly(self._current_server), weakly(self._current_console))
        forks.register(self)

    def __enter__(self: TritonT) -> TritonT:
        """Connect, unless the policy says to wait; see :meth:`connect`."""
        try:
            if self._connect_on_enter:
                self.connect()
        except BaseException:
            self._finish()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and remove the workspace even if nothing was started."""
        self._finish()

    def bind(
        self,
        model_name: str | Infer | None = None,
        infer_func: Infer | None = None,
        inputs: Sequence[Tensor] | None = None,
        outputs: Sequence[Tensor] | None = None,
        model_version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        trace_config: list[str] | None = None,
        *,
        replace: bool = False,
        example: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Serve a callable as a model; at once if there is a server, else as soon as there is.

        Args:
            model_name: Letters, digits, dots, underscores and dashes. ``bind(function)`` takes that of the function.
            infer_func: Gets a list of requests and returns a list of one mapping, output name to array, per request;
                the decorators give it other signatures. Each of a list of callables becomes a model instance: they run
                in parallel threads. :class:`pytriton.workers.Processes` makes instances in processes of their own.
                A call with several requests that raises is repeated with each request alone, so that side effects
                happen twice; ``ModelConfig(isolate_errors=False)`` prevents that.
            inputs: Without the batch axis; nameless ones are called INPUT_1, INPUT_2, ... Without ``inputs`` and
                ``outputs``, both come from the callable's annotations and from ``example``: docs/typed_functions.md.
            outputs: Likewise OUTPUT_1, OUTPUT_2, ...
            model_version: Several versions of a model may be bound; they share all but the callables.
            config: Batching and more. It is copied: later assignments to it have no effect.
            strict: Check every result's names, dtypes and shapes against ``outputs``.
            trace_config: Of the server that traces the requests; default: ``TritonConfig.trace_config``. With
                ``mode=opentelemetry``, the callables' spans are sent where the server's are; see docs/observability.md.
            replace: Unbind what is bound under this name and version first, once all arguments were checked. Requests
                that come meanwhile are refused; :meth:`rebind` replaces the callable alone, and loses none.
            example: A request, or several that differ in shape: dicts from the names of inputs to values, or to arrays
                (with batch axis under ``@batch``). The callable is called with each, here and as its first warm-up.
                Its arguments and results have the dtypes and shapes that annotations leave open.

        Raises:
            ImportError: ``trace_config`` is for OpenTelemetry, which is not installed.
            ValueError: It has no URL to send spans to.
            PyTritonValidationError: The name, callable, tensors or config are wrong, or the callable's parameters are
                not what it would be called with.
            PyTritonBadParameterError: A value in the configuration is out of range.
            PyTritonInvalidOperationError: The name and version are bound.
            PyTritonServerError: The model needs the server's Python backend, which cannot run in this interpreter.
            PyTritonWorkerError: A worker process could not be started.
        """
        server = self._capabilities()
        given = model_name, infer_func, inputs, outputs, model_version, config, strict, trace_config, example
        spec = ModelSpec.of(*given, server, self.triton_context, self._observation, self._models.config_of)
        with self._changing(f"bind model {spec.served.config.model_name!r}"):
            self._models.bind(spec, server.ignored_options(spec.served.config), replace, self._server)

    @overload
    def model(self, infer_func: FunctionT, /) -> FunctionT: ...
    @overload
    def model(
        self, infer_func: None = None, /, *, name: str | None = None, **options: Any
    ) -> Callable[[FunctionT], FunctionT]: ...
    def model(self, infer_func: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Decorate a function to :meth:`bind` it; it stays as it is.

        For instance::

            @triton.model
            def shout(text: str) -> str:
                return text.upper()

        Args:
            name: Of the model; default: the function's.
            options: Other arguments of :meth:`bind`, which raises the same.

        Raises:
            PyTritonValidationError: This is the method of the class, which has no server.
        """
        if not isinstance(self, TritonBase):
            raise PyTritonValidationError(
                "model() was called on the class, which has no server; make an object first, as in "
                "triton = Triton(), and decorate with @triton.model"
            )

        def bound(function: FunctionT) -> FunctionT:
            self.bind(name, function, **options)
            return function

        return bound if infer_func is None else bound(infer_func)

    def rebind(self, model_name: str, infer_func: Infer, model_version: int | None = None) -> None:
        """Replace a model's callable while it is served: no request is lost, and none is answered by both.

        Calls that run go on to their end; each batch that comes after is for the new callable.

        Args:
            infer_func: One callable, or as many as the model has instances; Processes in place of Processes.
            model_version: None if the model has only one.

        Raises:
            PyTritonInvalidOperationError: There are several versions of the model.
            PyTritonValidationError: There are more or fewer callables than instances, or ones of another kind (plain,
                ``async def``), which need other proxies; use ``bind(..., replace=True)`` instead. Or the parameters of
                one are not what it would be called with.
            PyTritonWorkerError: A worker process could not; all keep the callables that they had.
        """
        with self._changing(f"rebind model {model_name!r}", needs_server=False):
            self._models.only_version(model_name, model_version, "; say which with model_version").rebind(infer_func)

    def scale(self, model_name: str, count: int) -> None:
        """Change the number of a model's worker processes while it is served: no request is lost.

        Workers that leave answer their last requests first; this returns when they have, or at :meth:`stop`.

        Args:
            model_name: Of a model that was bound with :class:`pytriton.workers.Processes`.
            count: How many workers there shall be. 0: the workers end, and one starts when a request comes, which
                waits for it.

        Raises:
            PyTritonInvalidOperationError: The model has threads, or several versions; or ``count`` is 0, and there may
                be open sequences.
            PyTritonBadParameterError: ``count`` is not an integer from 0 to 1024.
            PyTritonModelControlError: The server refused; all stays as it was.
            PyTritonWorkerError: A worker could not be started; all stays as it was.
        """
        with self._changing(f"scale model {model_name!r}"):
            self._models.scale(model_name, count, self._server)

    def serve_versions(self, model_name: str, versions: Sequence[int] | None = None) -> None:
        """Change which of a model's bound versions are served, for instance to go back to an older one.

        No request without a version is lost. Requests in flight are answered by the version that they have reached.
        When a version of the model is bound or unbound, its ``version_policy`` counts again.

        Args:
            versions: The versions to serve; None for those of its ``ModelConfig.version_policy``.

        Raises:
            PyTritonBadParameterError: ``versions`` is empty.
            PyTritonModelControlError: The server refused; all stays as it was.
        """
        with self._changing(f"choose versions of model {model_name!r}"):
            self._models.serve_versions(model_name, versions, self._server)

    def start_recording(self, model_name: str, recording: Recording, model_version: int | None = None) -> None:
        """Keep requests to a model, with their answers, in files, until :meth:`stop_recording`; see docs/recording.md.

        Args:
            model_version: None if the model has only one.

        Raises:
            PyTritonInvalidOperationError: It is recorded already, the files are those of another recording, or they
                cannot be written.
        """
        with self._changing(f"record model {model_name!r}", needs_server=False):
            self._recorded(model_name, model_version).start_recording(recording)

    def stop_recording(self, model_name: str, model_version: int | None = None) -> RecordingStatus | None:
        """End a recording, and return what has come of it, once all is written; None if there is none."""
        return self._recorded(model_name, model_version).stop_recording()

    def recording_status(self, model_name: str, model_version: int | None = None) -> RecordingStatus | None:
        """What has come of a recording so far; None if there is none. Thread-safe."""
        return self._recorded(model_name, model_version).recording_status()

    def _recorded(self, model_name: str, model_version: int | None) -> Model:
        return self._models.only_version(model_name, model_version, "; say which with model_version")

    def unbind(self, model_name: str, model_version: int | None = None) -> None:
        """Serve a model no longer; requests in flight are answered first, which may take up to 30 s.

        Args:
            model_version: None unbinds all versions.

        Raises:
            PyTritonInvalidOperationError: The model's own callable calls this.
            PyTritonModelControlError: The server refused; the model is forgotten here all the same.
        """
        with self._changing(f"unbind model {model_name!r}", starts_threads=False, needs_server=False):
            self._models.unbind(model_name, model_version, None if self._lacks_server() else self._server)

    def connect(self) -> None:
        """Start the server or wait for it, unless that has happened, and load the models that are not loaded yet.

        Raises:
            PyTritonServerError: The server did not start; the message has its last lines.
            PyTritonClientTimeoutError: It was not ready in 120 s; also a TimeoutError.
        """
        with self._changing("connect"):
            self._lifecycle.started = True
            if self._server is None:
                try:
                    self._launch_app()
                    if self._memory is not None:
                        self._memory.start(self._models)  # workers may start with the server
                    self._server = self._start_server()
                except BaseException as error:
                    self._app.close()
                    if self._lifecycle.is_wanted() or not isinstance(error, Exception):
                        raise
                    raise PyTritonInvalidOperationError("stopped before the server was ready") from error
            try:
                self._models.load(self._server)
            except PyTritonWorkerError as error:
                if self._lifecycle.is_wanted():
                    raise
                raise PyTritonInvalidOperationError("stopped before the models were ready") from error

    def serve(self, monitoring_period_s: float | None = None, *, monitoring_period_sec: float | None = None) -> None:
        """Serve until :meth:`stop`, SIGINT, SIGTERM, or the end of the server or of a model; then stop.

        On a signal, requests in flight are finished, for up to ``exit_timeout_secs`` (30 s); a second signal ends them.
        systemd is told of the start, of the end, and, if it watches the service, that the server answers.

        Args:
            monitoring_period_s: Seconds between two checks of the models; default: 10.
            monitoring_period_sec: The same, under its older name.

        Raises:
            TypeError: Both were given.
        """
        if monitoring_period_s is not None and monitoring_period_sec is not None:
            raise TypeError("give monitoring_period_s or monitoring_period_sec, not both")
        given = monitoring_period_s if monitoring_period_s is not None else monitoring_period_sec
        period = MONITORING_PERIOD_S if given is None else given
        self._serving.serve(self._begin_serving, self.is_alive, self.stop, period)

    def stop(self) -> bool:
        """Finish the requests in flight, unload the models and remove the workspace; from any thread.

        Before the first :meth:`connect`, ``run`` or :meth:`serve`, and in a process that was forked from this one,
        nothing happens.

        Returns:
            Whether models were served, and this call ended it.
        """
        return self._finish() if self._lifecycle.started else False

    def _finish(self) -> bool:
        if current_binding.get() is not None:  # a callable's own thread: its request has to end first
            running = self.is_alive()
            self._stop_soon()
            return running
        if not self._lifecycle.begin_stop():
            return False
        self._models.interrupt()
        try:
            with self._lock:  # a start ends early; loads and unloads go on to their end
                pass
            if self._server is not None:
                deadline = time.monotonic() + self._server.exit_timeout_s
                self._server.refuse_connections()
                self._app.drain(self._server.wait_http_answered, deadline)
                self._models.unload_callers(self._server, deadline)
                wait_drained = partial(self._models.wait_drained, self._server)
                self._server.end(self._models.names(loaded=True), wait_drained, deadline)
        finally:  # also after Ctrl+C while waiting
            self._end_all()
        return self._server is not None

    def _end_all(self) -> None:
        """End what is left: each part, also if another one raises, from the last to the first."""
        with ExitStack() as parts:
            parts.callback(self._lifecycle.end_stop)
            parts.callback(self._models.clear)
            if self._memory is not None:
                parts.callback(self._memory.end)
            parts.callback(self._workspace.clean)
            if self._console is not None:
                parts.callback(self._console.close)
            for page in self._pages:
                parts.callback(page.close)
            parts.callback(self._models.disconnect)
            if self._server is not None:
                parts.callback(self._server.kill)
            parts.callback(self._app.close)

    def after_fork(self) -> None:
        """In a forked child, another thread may have held the lock."""
        self._lock = threading.RLock()

    def is_alive(self) -> bool:
        """Whether there is a server, and every model that it has loaded for this object can be served."""
        models = [model for model in self._models if model.loaded]
        are_alive = all(model.is_alive() or not model.loaded for model in models)  # one may be unbound meanwhile
        return self._app.is_alive() and self._is_running() and are_alive

    def is_connected(self) -> bool:
        """Whether there is a server, and every bound model was loaded."""
        return self._is_running() and all(model.loaded and not model.refused for model in self._models)

    def wait_for_ready(self, timeout_s: float = DEFAULT_TRITON_STARTUP_TIMEOUT_S) -> None:
        """Wait until the server and every bound model can answer; for threads beside the one that serves.

        Raises:
            PyTritonClientTimeoutError: They could not within ``timeout_s`` seconds; also a TimeoutError.
        """
        deadline = time.monotonic() + timeout_s
        while not (self.is_connected() and self._models.are_connected() and self._server and self._server.is_ready()):
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
            PyTritonModelControlError: There is no such model.
        """
        self._check_running("read statistics")
        if self._server is None:
            raise PyTritonInvalidOperationError("cannot read statistics: there is no server yet; call connect() first")
        return self._server.statistics(model_name)

    def worker_status(self, model_name: str | None = None) -> list[WorkerStatus]:
        """The workers of bound models: threads, worker processes and remote workers. Thread-safe.

        Args:
            model_name: Only of this model; default: of all.
        """
        models = [*self._models] if model_name is None else self._models.versions(model_name)
        return [status.with_memory() for model in models for status in model.worker_statuses()]

    def serve_metrics(self, port: int = METRICS_PORT, address: str | None = None, registry: Any = None) -> str:
        """Serve metrics of the callables, and those that they make themselves, for Prometheus, until :meth:`stop`.

        Needs ``prometheus_client`` (``pip install 'pytriton[metrics]'``). The server's own metrics are on its own page,
        see ``TritonConfig.metrics_port``. docs/observability.md lists them.

        Args:
            port: To listen on; 0 is any free one.
            address: To listen on; default: that of our server's own metrics; beside another one's, 127.0.0.1.
            registry: A ``prometheus_client.CollectorRegistry``; default: ``prometheus_client.REGISTRY``.

        Returns:
            The page's URL on this machine.

        Raises:
            ImportError: ``prometheus_client`` is not installed.
            PyTritonInvalidOperationError: There is such a page already.
            PyTritonServerError: It cannot listen there.
        """
        prometheus = load_prometheus()
        registry = prometheus.REGISTRY if registry is None else registry
        with self._changing("serve metrics"):
            if self._pages:
                raise PyTritonInvalidOperationError(f"metrics are served already, at {self._pages[0].url}")
            self._lifecycle.started = True
            handler = prometheus.MetricsHandler.factory(registry)
            page = MetricsPage(handler, address or self._capabilities().metrics_address, port)
            self._pages.append(page)
            self._observation.metrics = CallableMetrics.of(registry)
            return page.url

    def console(self) -> Console:
        """What the pages of the app show of this process; its log is kept from the first call on."""
        with self._lock:
            if self._console is None:
                self._console = Console(
                    self._models,
                    lambda: None if self._server is None else self._server.pid(),
                    self._app.pids,
                    self.scale,
                    self.unbind,
                    self.serve_versions,
                )
            return self._console

    def endpoints(self) -> ServerEndpoints:
        """Where clients on this machine reach the server, which need not run yet.

        Raises:
            PyTritonInvalidOperationError: It has none, as it is in this process.
        """
        raise PyTritonInvalidOperationError("a server in this process has no endpoints")

    def _launch_app(self) -> None:
        """Launch the app, if there shall be one, and is none yet; it starts while the server does."""
        if self._rest is not None and self._app.launched is None:
            self._app.launch(self._rest, self.endpoints(), self.console().answer, self._edge_files())

    # What differs between servers:

    def _connector(self) -> Connector:
        """How callables reach the server, for models that call models."""
        where = self.endpoints()
        secret = secret_of(where.access_token)
        return NetworkConnector(where.http, where.grpc, secret, where.http_headers, where.grpc_headers)

    @abstractmethod
    def _start_server(self) -> ModelServer:
        """Start the server, or wait for it."""

    def _capabilities(self) -> ServerCapabilities:
        """What the server can do for models, also before it has started."""
        return ServerCapabilities()

    def _edge_files(self) -> EdgeFiles | None:
        """What the app shares with the server's edge, if that has the app's port."""
        return None

    def _begin_serving(self) -> None:
        self.connect()
        self._announce_app()

    def _lacks_server(self) -> bool:
        """Whether our server has died, and is to be launched again."""
        return False

    def _check_server(self, what: str) -> None:
        """Launch our server again if it has died; raise as :meth:`_check_running`, and if there is none yet."""
        self._check_running(what)

    def _is_running(self) -> bool:
        """Whether the server can be expected to answer."""
        return self._server is not None and not self._lifecycle.stopping

    def _running_server(self) -> ModelServer | None:
        return self._server if self._is_running() else None

    def _current_server(self) -> ModelServer | None:
        return self._server

    def _current_console(self) -> Console | None:
        return self._console

    def _check_running(self, what: str) -> None:
        """Raise PyTritonInvalidOperationError if this object was stopped or belongs to another process.

        Args:
            what: The operation that is not possible then, for the message.
        """
        self._lifecycle.check_running(what)

    # What is the same for all:

    @contextmanager
    def _changing(self, what: str, *, starts_threads: bool = True, needs_server: bool = True) -> Iterator[None]:
        """Hold the lock for a change, once :meth:`_check_server` has passed.

        Args:
            what: The change, for the message of an error.
            starts_threads: Whether it is impossible in an atexit handler, in which no thread can start.
            needs_server: Whether it is impossible while our server is dead.
        """
        with self._lock:
            (self._check_server if needs_server else self._check_running)(what)
            if starts_threads:
                self._lifecycle.check_threads_start(what)
            yield

    def _announce_app(self) -> None:
        """Log where the app is, if there is one, once it accepts requests; raises as :meth:`connect`."""
        self._app.announce((model.config for model in self._models), self._lifecycle.is_wanted)

    def _exit_hook(self) -> Callable[[], object]:
        """What stops at the interpreter's exit; it keeps this object till then."""
        return self._finish

    def _stop_soon(self) -> None:
        threading.Thread(target=self.stop, name="pytriton-stop").start()


def _open_standard_files() -> None:
    """Open ``/dev/null`` where the program has closed standard input or outputs.

    A socket with such a number would be replaced by the output of a process that inherits it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
