"""``Triton``: launches a Triton Inference Server, binds Python callables as its models, and launches it again."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
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
from pytriton.model_config.validation import checked_copy
from pytriton.remote import RemoteTriton
from pytriton.rest.config import FrontendFiles, RestConfig, checked
from pytriton.security import (
    DEFAULT_PROTECTED_ENDPOINTS,
    TRITON_ACCESS_HEADER,
    VALID_TRITON_ENDPOINTS,
    TritonSecurityConfig,
)
from pytriton.server.access import Restrictions
from pytriton.server.endpoints import ServerEndpoints
from pytriton.server.http_frontend import HttpFrontend, uses_native_frontend
from pytriton.server.installation import find_installation
from pytriton.server.launch import ANY_ADDRESS, check_ports, check_ports_differ, with_vertex_ai_settings
from pytriton.server.launched_server import LaunchedServer
from pytriton.server.model_server import ServerCapabilities
from pytriton.server.repository import UserRepository
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

LOGGER = logging.getLogger(__name__)

MONITORING_PERIOD_SEC = MONITORING_PERIOD_S
MOST_RESTARTS, RESTARTS_PERIOD_S = 5, 60.0
PORTS_TIMEOUT_S, PORTS_POLL_S = 3.0, 0.1
DEATH_NOTICE_S = 2.0


@dataclass(frozen=True)
class TritonLifecyclePolicy:
    """When a server is launched, and from where it loads the bound models.

    Args:
        launch_triton_on_startup: Launch the server on entering the ``with`` block; otherwise at ``run`` or ``serve``.
        local_model_store: Have the server load the models while it starts, so that it is not live without them;
            otherwise it starts empty, and each model is loaded through the repository API.
        restart_server: Whether to launch the server again, with all its models, when it has died. None: after it was
            killed by a signal (a crash, the kernel's OOM killer, ``kill -9``), but not after it has exited by itself.
            True: after either. False: never. A server that is not launched again ends ``serve``, and so does one that
            would be launched more than five times in a minute.
    """

    launch_triton_on_startup: bool = True
    local_model_store: bool = False
    restart_server: bool | None = None


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
            the context, and again when a signal has killed it; for Vertex AI, if ``config`` allows it,
            :data:`VertextAILifecyclePolicy`.
        security_config: Which endpoints need the access token; default: those that calling a model does not need.
        rest: Options of a REST front, which serves the models as JSON in a process of its own: docs/http_api.md. True
            takes those in the environment, ``PYTRITON_REST_*``, and so does None if ``PYTRITON_REST_PORT`` is there.

    Attributes:
        triton_context: What the bound callables share.

    Raises:
        PyTritonServerError: There is no server binary here.
        PyTritonValidationError: The configuration is wrong.
        PyTritonBadParameterError: An option of the REST front is.
        ImportError: The REST front's libraries are not installed.
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
    ) -> None:
        self._config = with_vertex_ai_settings(merge_configs(TritonConfig.from_env(), config))
        self._security = TritonSecurityConfig() if security_config is None else checked_copy(security_config)
        self._restrictions = Restrictions.merge(self._config, self._security)
        self._installation = find_installation()
        self._server: LaunchedServer | None = None
        self._user_repository = UserRepository(self._installation, self._config.model_repository)
        self._restarts: deque[float] = deque(maxlen=MOST_RESTARTS)  # times of the last ones
        self._restarting = False
        self._gave_up = False
        self._announced = False
        default = VertextAILifecyclePolicy if self._config.allow_vertex_ai else DefaultTritonLifecyclePolicy
        self._policy = triton_lifecycle_policy or default
        front = checked(rest)
        if front is not None:
            check_ports_differ(self._config, "RestConfig.port", front.port)
        super().__init__(workspace, self._policy.launch_triton_on_startup, front)
        self._frontend = self._make_frontend() if uses_native_frontend(self._config) else None

    def run(self) -> None:
        """Start serving and return; raises as :meth:`connect`. Safe to call again."""
        self.connect()
        self._user_repository.warn_of_missing_models()
        self._announce_front()
        if not self._announced:
            self._announced = True
            LOGGER.info(
                "(Press CTRL+C or use the command `kill -SIGINT %d` to send a SIGINT signal and quit)", os.getpid()
            )

    def get_access_token(self) -> str | None:
        """The token that protected endpoints ask for; None if there are none."""
        return self._security.access_token if self._security.restricted_endpoints else None

    def endpoints(self) -> ServerEndpoints:
        """Where clients on this machine reach the server, which need not run yet."""
        private_url = None if self._frontend is None else self._frontend.private_url
        return ServerEndpoints.of_own(self._config, self._restrictions, private_url)

    def _make_frontend(self) -> HttpFrontend:
        return HttpFrontend(
            self._config,
            self._restrictions,
            self._workspace.path,
            # One with a certificate has its port itself.
            None if self._rest is None or self._rest.certificate else self._rest.for_frontend(),
            ANY_ADDRESS if self._rest is None else self._rest.address,
        )

    def _frontend_files(self) -> FrontendFiles | None:
        if self._frontend is None or self._frontend.application is None:
            return None
        return FrontendFiles(self._frontend.application, self._frontend.counters)

    def _begin_serving(self) -> None:
        self.run()

    def _capabilities(self) -> ServerCapabilities:
        return ServerCapabilities.of(self._config, self._installation)

    def _start_server(self) -> LaunchedServer:
        if self._policy.local_model_store:
            self._models.start()
        if self._frontend is not None:
            self._frontend.waits_for_models = bool(self._models.names()) and self._config.strict_readiness is not False
            if self._front is not None and self._frontend.application is not None:
                self._frontend.listener = self._front.port[0].fileno()
        return LaunchedServer(
            self._config,
            self._installation,
            self._workspace.path,
            self._workspace.model_store_path,
            self._on_server_exit,
            self._restrictions,
            self._user_repository,
            self._frontend,
            # One that is launched again has them before it answers: without them it would say that they do not exist.
            self._models.names() if self._policy.local_model_store else self._models.names(loaded=True),
            self._is_wanted,
        )

    def is_connected(self) -> bool:
        """Whether there is a server, and every bound model was loaded; false while a server is launched again."""
        server = self._server
        return super().is_connected() and server is not None and server.is_alive() and not self._restarting

    def _is_running(self) -> bool:
        # A server that has died counts as running until it is clear that it will not be launched again.
        return super()._is_running() and self._server is not None and not self._gave_up

    def _check_running(self, what: str) -> None:
        super()._check_running(what)
        if self._server is not None and not self._is_running():
            raise self._server.failure(f"cannot {what}: the server has ended")

    def _check_server(self, what: str) -> None:
        super()._check_server(what)
        if self._server is not None:
            self._restart(self._server)
            self._check_running(what)

    def _on_server_exit(self, server: LaunchedServer) -> None:
        with self._lock:  # a thread that starts a server holds it, and notices the server's end itself
            if not self._stopping and (server is not self._server or self._restart(server)):
                return
        self._models.disconnect()  # no client waits for an answer any more
        if not self._stopping:
            self.stop()

    def _restart(self, server: LaunchedServer) -> bool:
        """Launch a server again, with all its models, if it has died; with the lock held.

        Returns:
            Whether there is a server; if not, :meth:`_is_running` is false from now on.
        """
        if server.is_alive() or self._gave_up:
            return not self._gave_up
        died = time.monotonic()
        self._restarting = True
        try:
            wanted = self._policy.restart_server
            if not (server.was_killed() if wanted is None else wanted):
                raise server.failure("it ended by itself")
            self._launch_again(server.failure("it died"))
            LOGGER.warning("the server was launched again, %.1f s after it had died", time.monotonic() - died)
        except PyTritonServerError as error:
            self._gave_up = True
            if not self._stopping:
                LOGGER.error("the server exited with failure: %s", error)
        finally:
            self._restarting = False
        return not self._gave_up

    def _launch_again(self, reason: Exception) -> None:
        for _ in range(MOST_RESTARTS):
            self._count_restart(reason)
            server = None
            try:
                self._wait_for_ports()
                server = self._server = self._start_server()
                self._models.reload(server)
                self._load(server)
                return
            except Exception as error:  # serve() must not wait for ever
                if server is not None and server.ends_within(DEATH_NOTICE_S):
                    reason = server.failure("it died while its models were loaded")
                    continue
                LOGGER.debug("the server was not launched again", exc_info=True)
                reason = error
                if server is not None or self._stopping or not isinstance(error, PyTritonServerError):
                    break  # it refuses a model or hangs, or its options are no longer right
        if server is not None and not self._stopping:
            server.kill()
        raise PyTritonServerError(f"it died and cannot be launched again: {reason}") from reason

    def _count_restart(self, reason: Exception) -> None:
        """Count and log a restart; raises PyTritonServerError if there were too many."""
        now = time.monotonic()
        if len(self._restarts) == MOST_RESTARTS and now - self._restarts[0] < RESTARTS_PERIOD_S:
            deaths = f"it died {MOST_RESTARTS + 1} times in {now - self._restarts[0]:.0f} s"
            raise PyTritonServerError(f"{deaths} and is not launched again; the last time, {reason}")
        self._restarts.append(now)
        number = sum(now - each < RESTARTS_PERIOD_S for each in self._restarts)
        LOGGER.warning(
            "launching the server again (restart %d of at most %d in %.0f s): %s",
            number,
            MOST_RESTARTS,
            RESTARTS_PERIOD_S,
            reason,
        )

    def _wait_for_ports(self) -> None:
        """Wait for the ports of a dead server, which may stay in use for a moment."""
        deadline = time.monotonic() + PORTS_TIMEOUT_S
        while not self._stopping and time.monotonic() < deadline:
            try:
                return check_ports(self._config)
            except PyTritonServerError:
                time.sleep(PORTS_POLL_S)
