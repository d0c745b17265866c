"""``Triton``: launches a Triton Inference Server, binds Python callables as its models, and launches it again."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytriton.base import MONITORING_PERIOD_S, TritonBase
from pytriton.config import TritonConfig, merge_configs
from pytriton.constants import (
    GROWTH_BACKEND_SHM_SIZE,
    INITIAL_BACKEND_SHM_SIZE,
    MODEL_CONFIG_URL,
    MODEL_INFER_URL,
    MODEL_READY_URL,
    MODEL_URL,
    WAIT_FORM_MODEL_TIMEOUT_S,
)
from pytriton.exceptions import PyTritonServerError
from pytriton.logs import get_logger
from pytriton.model_config.validation import checked_copy
from pytriton.remote import RemoteTriton
from pytriton.rest.config import EdgeFiles, RestConfig, checked
from pytriton.restarts import RestartPolicy
from pytriton.security import (
    DEFAULT_PROTECTED_ENDPOINTS,
    TRITON_ACCESS_HEADER,
    VALID_TRITON_ENDPOINTS,
    TritonSecurityConfig,
)
from pytriton.server.access import Restrictions, beside_application, check_metrics_rule
from pytriton.server.edge import Edge, serves_grpc, uses_edge
from pytriton.server.endpoints import Exposure, ServerEndpoints, check_one_port, exposures
from pytriton.server.installation import find_installation
from pytriton.server.launch import (
    ANY_ADDRESS,
    application_address,
    check_ports,
    check_ports_differ,
    with_vertex_ai_settings,
)
from pytriton.server.launched_server import LaunchedServer
from pytriton.server.model_server import ServerCapabilities
from pytriton.server.repository import UserRepository
from pytriton.server.tls import check_application_tls, uses_tls
from pytriton.utils.workspace import Workspace
from pytriton.worker.context import TritonContext

__all__ = [
    "DEFAULT_PROTECTED_ENDPOINTS",
    "GROWTH_BACKEND_SHM_SIZE",
    "INITIAL_BACKEND_SHM_SIZE",
    "MODEL_CONFIG_URL",
    "MODEL_INFER_URL",
    "MODEL_READY_URL",
    "MODEL_URL",
    "MONITORING_PERIOD_S",
    "MONITORING_PERIOD_SEC",
    "TRITON_ACCESS_HEADER",
    "VALID_TRITON_ENDPOINTS",
    "WAIT_FORM_MODEL_TIMEOUT_S",
    "DefaultTritonLifecyclePolicy",
    "RemoteTriton",
    "Triton",
    "TritonBase",
    "TritonConfig",
    "TritonContext",
    "TritonLifecyclePolicy",
    "TritonSecurityConfig",
    "VertextAILifecyclePolicy",
]

LOGGER = get_logger(__name__)

MONITORING_PERIOD_SEC = MONITORING_PERIOD_S
PORTS_TIMEOUT_S, PORTS_POLL_S = 3.0, 0.1
DEATH_NOTICE_S = 2.0


@dataclass(frozen=True)
class TritonLifecyclePolicy:
    """When a server is launched, and from where it loads the bound models.

    Args:
        launch_triton_on_startup: Launch the server on entering the ``with`` block; otherwise at ``run`` or ``serve``.
        local_model_store: Have the server load the models while it starts, so that it is not live without them;
            otherwise it starts empty, and each model is loaded through the repository API.
        restart_server: Whether to launch the server again, with all its models, when it has died, until that works:
            at once, then 0.1 s later, and twice as long after each further death, up to 30 s, whether a signal has
            killed it or it has exited by itself. False: never, so that its end ends ``serve``.
        most_restarts_per_minute: After so many deaths and failed attempts in a minute, the next one ends ``serve``.
            None: there is no limit.
        watchdog_timeout_s: A server that has not answered over HTTP or gRPC for about so long hangs: it is killed, and
            counts as one that has died. None: it is not watched.
    """

    launch_triton_on_startup: bool = True
    local_model_store: bool = False
    restart_server: bool = True
    most_restarts_per_minute: int | None = None
    watchdog_timeout_s: float | None = 30.0


DefaultTritonLifecyclePolicy = TritonLifecyclePolicy()
"""The policy of a ``Triton`` that gets none."""

VertextAILifecyclePolicy = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)
"""For Vertex AI, whose endpoint does not start without its default model; spelled as in nvidia-pytriton."""


class Triton(TritonBase):
    """Serves bound callables with a Triton Inference Server.

    The server starts on entering the context, or at :meth:`run` or :meth:`serve`; it ends with :meth:`stop`, on leaving
    the context, at the interpreter's exit, and with this process whatever ends it.

    Args:
        config: Options of the server; they win over ``PYTRITON_TRITON_CONFIG_*`` in the environment.
        workspace: Folder for the model repository and sockets, which must not exist; default: a new one below
            ``PYTRITON_HOME``. It is removed at the end.
        triton_lifecycle_policy: When the server is launched, and whether again when it has died; default: on entering
            the context, and again whenever it has died; for Vertex AI, if ``config`` allows it,
            :data:`VertextAILifecyclePolicy`.
        security_config: Which endpoints need the access token; default: those that calling a model does not need.
        rest: Options of an app, which serves the models as JSON in a process of its own: docs/http_api.md. True
            takes those in the environment, ``PYTRITON_REST_*``, and so does None if ``PYTRITON_REST_PORT`` is there.
        memory_budget: Bytes that all worker processes may take together. While they take more, those of the model end
            that has been idle for longest, each until a request comes, which waits for it: docs/workers.md.

    Attributes:
        triton_context: What the bound callables share.

    Raises:
        PyTritonServerError: There is no server binary here.
        PyTritonValidationError: The configuration is wrong.
        PyTritonBadParameterError: An option of the app is, or ``memory_budget``.
        ImportError: The app's libraries are not installed.
        FileExistsError: ``workspace`` exists.
    """

    def __init__(
        self,
        *,
        config: TritonConfig | None = None,
        workspace: Workspace | str | Path | None = None,
        triton_lifecycle_policy: TritonLifecyclePolicy | None = None,
        security_config: TritonSecurityConfig | None = None,
        rest: RestConfig | bool | None = None,
        memory_budget: int | None = None,
    ) -> None:
        given = merge_configs(TritonConfig.from_env(), config)
        config = with_vertex_ai_settings(given)
        security = TritonSecurityConfig() if security_config is None else checked_copy(security_config)
        app = checked(rest)
        if app is not None:
            app.address = app.address or application_address(given)
            app.hosts = [*app.hosts, *(given.http_hosts or ())]
            check_ports_differ(config, "RestConfig.port", app.port)
            check_application_tls(config, has_certificate=app.certificate is not None)
            if app.asks_for_credentials():
                security = beside_application(config, security)
        restrictions, is_native = Restrictions.merge(config, security), uses_edge(config)
        serves_grpc(config)  # which says why it cannot be so, if it was asked for
        check_one_port(config, restrictions)
        check_metrics_rule(restrictions, is_native=is_native)
        installation = find_installation()
        default = VertextAILifecyclePolicy if config.allow_vertex_ai else DefaultTritonLifecyclePolicy
        policy = triton_lifecycle_policy or default
        super().__init__(workspace, policy.launch_triton_on_startup, app, memory_budget)
        self._config, self._security, self._restrictions = config, security, restrictions
        self._installation = installation
        self._server: LaunchedServer | None = None
        self._starting: LaunchedServer | None = None  # by launch(), until connect() has waited for it
        self._user_repository = UserRepository(installation, config.model_repository)
        self._policy = policy
        self._restarts = RestartPolicy(policy.most_restarts_per_minute)
        self._restarting = False  # an attempt is being made
        self._recovers = False  # a thread makes attempts until one succeeds
        self._gave_up = False
        self._launch_failed = False  # the last attempt to launch a server again has
        self._announced = False
        self._edge = self._make_edge() if is_native else None

    def run(self) -> None:
        """Start serving and return; raises as :meth:`connect`. Safe to call again."""
        self.connect()
        self._user_repository.warn_of_missing_models()
        self._announce_app()
        if not self._announced:
            self._announced = True
            LOGGER.info(
                "(Press CTRL+C or use the command `kill -SIGINT %d` to send a SIGINT signal and quit)", os.getpid()
            )

    def launch(self) -> None:
        """Launch the server and the app and return at once, so that they start while models are loaded and bound.

        :meth:`connect`, :meth:`run` and :meth:`serve` wait for the server, which is not ready before they have loaded
        the models. Nothing happens here if the server's own endpoint serves HTTP, as that is ready without models, or
        if the lifecycle policy has the server load the models while it starts.

        Raises:
            PyTritonServerError: The server or the app cannot be started here.
        """
        if self._edge is None or self._policy.local_model_store:
            return
        with self._changing("launch the server"):
            if self._server is None and self._starting is None:
                self._lifecycle.started = True
                try:
                    self._launch_app()
                    self._starting = self._launch_server(waits_for_models=True)
                except BaseException:
                    self._app.close()
                    raise

    def get_access_token(self) -> str | None:
        """The token that protected endpoints ask for.

        Without such endpoints, it is the one that was given, and None if none was.
        """
        return self._security.access_token

    def endpoints(self) -> ServerEndpoints:
        """Where clients on this machine reach the server, which need not run yet."""
        private_url = None if self._edge is None else self._edge.private_url
        return ServerEndpoints.of_own(self._config, self._restrictions, private_url)

    def exposure(self) -> list[Exposure]:
        """Who can reach what: each port and socket, and what each group of endpoints asks for there.

        The server need not run. docs/security.md has the routes of each group.
        """
        if self._rest is None:
            return exposures(self._config, self._restrictions, is_native=self._edge is not None)
        from pytriton.rest.authorization import Access
        from pytriton.rest.permits import KeyRing

        rest, server = self._rest, self.endpoints()
        access = Access(rest, KeyRing(rest.keys()), server.rules, server.access_token)
        place = rest.address or ANY_ADDRESS, rest.port, rest.certificate is not None
        is_native = self._edge is not None
        return exposures(self._config, self._restrictions, is_native=is_native, application=place, needs=access.needs)

    def _make_edge(self) -> Edge:
        given = self._config, self._restrictions, self._workspace.path
        rest = self._rest
        if rest is None or rest.certificate:  # one with a certificate has its port itself
            return Edge(*given)
        return Edge(*given, rest.for_edge(), rest.address or ANY_ADDRESS, rest.tokens())

    def _edge_files(self) -> EdgeFiles | None:
        if self._edge is None or self._edge.application is None:
            return None
        return EdgeFiles(self._edge.application, self._edge.counters, uses_tls(self._config, "http"))

    def _begin_serving(self) -> None:
        self.run()

    def _capabilities(self) -> ServerCapabilities:
        return ServerCapabilities.of(self._config, self._installation)

    def _start_server(self) -> LaunchedServer:
        server, self._starting = self._starting or self._launch_server(bool(self._models.names())), None
        server.wait_started(self._lifecycle.is_wanted)
        return server

    def _launch_server(self, waits_for_models: bool) -> LaunchedServer:
        # One that is launched again has its models before it answers: without them it would say that they do not exist.
        # If that has failed, it gets them one by one, since it ends if it cannot load one while it starts.
        models = self._models.names(loaded=True) if not self._launch_failed else []
        if self._policy.local_model_store and not self._launch_failed:
            models = self._models.names()
            self._models.start()
        if self._edge is not None:
            self._edge.waits_for_models = waits_for_models and self._config.strict_readiness is not False
            app = self._app.launched
            if app is not None and self._edge.application is not None:
                self._edge.listener = app.port[0].fileno()
        return LaunchedServer(
            self._config,
            self._installation,
            self._workspace.path,
            self._workspace.model_store_path,
            self._on_server_exit,
            self._restrictions,
            self._user_repository,
            self._edge,
            models,
            self._policy.watchdog_timeout_s,
        )

    def _end_all(self) -> None:
        with ExitStack() as parts:
            parts.callback(super()._end_all)
            if self._starting is not None:
                parts.callback(self._starting.kill)

    def is_connected(self) -> bool:
        """Whether there is a server, which answers, and every bound model was loaded; false during a restart."""
        server = self._server
        return super().is_connected() and server is not None and server.answers() and not self._restarting

    def _is_running(self) -> bool:
        # A server that has died counts as running until it is clear that it will not be launched again.
        return super()._is_running() and self._server is not None and not self._gave_up

    def _check_running(self, what: str) -> None:
        super()._check_running(what)
        if self._server is not None and not self._is_running():
            raise self._server.failure(f"cannot {what}: the server has ended")

    def _lacks_server(self) -> bool:
        return self._server is not None and not self._server.is_alive()

    def _check_server(self, what: str) -> None:
        super()._check_server(what)
        server = self._server
        if server is None or server.is_alive():
            return
        if not self._recovers:
            self._plan_restart(server.failure("it died"))
        problem = self._launch_again()
        self._check_running(what)
        if problem is not None:
            raise PyTritonServerError(f"cannot {what}: the server died, and is not back yet: {problem}") from problem

    def _on_server_exit(self, server: LaunchedServer) -> None:
        with self._lock:  # a thread that starts a server holds it, and notices the server's end itself
            if self._recovers or self._lifecycle.stopping or server is not self._server:
                return
            self._recovers = True
            pause_s = None if self._gave_up else self._plan_restart(server.failure("it died"))
        while pause_s is not None and not self._lifecycle.wake.wait(pause_s):  # without the lock
            with self._lock:
                problem = self._launch_again()
                pause_s = None if problem is None else self._plan_restart(problem)
                if pause_s is None and not self._gave_up:
                    self._recovers = False
                    return
        if self._gave_up:
            self._models.disconnect()  # no client waits for an answer any more
            self.stop()

    def _plan_restart(self, problem: BaseException) -> float | None:
        """Count and log a death, or an attempt that failed, with the lock held.

        Returns:
            Seconds until the next attempt; None if there is none, and :meth:`_is_running` is false from now on.
        """
        restarts = self._restarts
        pause_s = None if self._policy.restart_server is False else restarts.record_exit(time.monotonic())
        self._gave_up = pause_s is None
        if self._lifecycle.stopping:
            pass
        elif pause_s is not None:
            when = f"in {pause_s:.1f} s " if pause_s else ""
            LOGGER.warning("launching the server again %s(restart %d in a row): %s", when, restarts.row, problem)
        elif self._policy.restart_server is False:
            LOGGER.error("the server exited with failure: %s", problem)
        else:
            often = f"it died {restarts.exits} times in a minute and is not launched again"
            LOGGER.error("the server exited with failure: %s; the last time, %s", often, problem)
        return pause_s

    def _launch_again(self) -> BaseException | None:
        """Make one attempt to launch a dead server again, with all its models, with the lock held.

        Returns:
            Why it failed; None if there is a server, or none is wanted any more.
        """
        before, server, began = self._server, None, time.monotonic()
        if self._gave_up or not self._lifecycle.is_wanted() or before is None or before.is_alive():
            return None
        self._restarting = True
        try:
            if self._restarts.row < 2:
                self._wait_for_ports()
            self._models.repair()
            server = self._server = self._start_server()
            self._revival.reload(server)
            self._models.load(server)
        except BaseException as error:  # whatever it is, the next attempt may succeed
            self._launch_failed = True
            if server is not None and server.ends_within(DEATH_NOTICE_S):
                return server.failure("it died while its models were loaded")
            if server is not None:
                server.kill()
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl+C, as in a bind
            return error
        else:
            self._launch_failed = False
            self._restarts.record_ready(time.monotonic())
            if self._observation.metrics is not None:
                self._observation.metrics.count_restart()
            LOGGER.warning("the server was launched again, in %.1f s", time.monotonic() - began)
            return None
        finally:
            self._restarting = False

    def _wait_for_ports(self) -> None:
        """Wait for the ports of a dead server, which may stay in use for a moment."""
        deadline = time.monotonic() + PORTS_TIMEOUT_S
        while self._lifecycle.is_wanted() and time.monotonic() < deadline:
            try:
                return check_ports(self._config)
            except PyTritonServerError:
                time.sleep(PORTS_POLL_S)
