"""``Triton``: binds Python callables as models and has a Triton Inference Server serve them."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from pathlib import Path

from pytriton.base import MONITORING_PERIOD_S, TritonBase
from pytriton.client.exceptions import PyTritonClientTimeoutError
from pytriton.config import TritonConfig, merge_configs
from pytriton.exceptions import PyTritonServerError
from pytriton.lifecycle import DefaultTritonLifecyclePolicy, TritonLifecyclePolicy, VertextAILifecyclePolicy
from pytriton.model import Model
from pytriton.remote import RemoteTriton
from pytriton.security import (
    DEFAULT_PROTECTED_ENDPOINTS,
    TRITON_ACCESS_HEADER,
    VALID_TRITON_ENDPOINTS,
    TritonSecurityConfig,
)
from pytriton.server.clouds import on_vertex_ai
from pytriton.server.control import REFUSED, ModelControl
from pytriton.server.foreign_models import ForeignModels
from pytriton.server.installation import find_installation
from pytriton.server.restrictions import Restrictions
from pytriton.server.server import Server
from pytriton.utils.workspace import Workspace
from pytriton.worker.context import TritonContext

__all__ = [
    "DEFAULT_PROTECTED_ENDPOINTS",
    "MONITORING_PERIOD_S",
    "MONITORING_PERIOD_SEC",
    "TRITON_ACCESS_HEADER",
    "VALID_TRITON_ENDPOINTS",
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
START_ATTEMPTS, START_PAUSE_S = 10, 0.3


class Triton(TritonBase):
    """Serves bound callables with a Triton Inference Server.

    The server starts on entering the context, or at :meth:`run` or :meth:`serve`; it ends with :meth:`stop`, on leaving
    the context, at the interpreter's exit, and with this process whatever ends it.

    Args:
        config: Options of the server; they win over ``PYTRITON_TRITON_CONFIG_*`` in the environment.
        workspace: Folder for the model repository and sockets, which must not exist; default: a new one below
            ``PYTRITON_HOME``. It is removed at the end.
        triton_lifecycle_policy: When the server is launched, and whether again when it has died; default: on entering
            the context and once, or for Vertex AI, if ``config`` allows it, :data:`VertextAILifecyclePolicy`.
        security_config: Which endpoints need the access token; default: those that calling a model does not need.

    Attributes:
        triton_context: What the bound callables share.

    Raises:
        PyTritonServerError: There is no server binary here.
        PyTritonValidationError: The configuration is wrong.
        FileExistsError: ``workspace`` exists.
    """

    def __init__(
        self,
        *,
        config: TritonConfig | None = None,
        workspace: Workspace | str | Path | None = None,
        triton_lifecycle_policy: TritonLifecyclePolicy | None = None,
        security_config: TritonSecurityConfig | None = None,
    ) -> None:
        merged = on_vertex_ai(merge_configs(TritonConfig.from_env(), config))
        self._security = TritonSecurityConfig() if security_config is None else security_config
        self._restrictions = Restrictions.merge(merged, self._security)
        self._installation = find_installation()
        self._server: Server | None = None
        self._foreign_models = ForeignModels(self._installation)
        self._preloaded: list[str] = []
        self._deaths: deque[float] = deque(maxlen=MOST_RESTARTS)
        self._announced = False
        if triton_lifecycle_policy is None:
            for_vertex_ai = merged.allow_vertex_ai  # whose endpoint needs it, whoever has asked for that
            triton_lifecycle_policy = VertextAILifecyclePolicy if for_vertex_ai else DefaultTritonLifecyclePolicy
        super().__init__(workspace, triton_lifecycle_policy, merged)
        self._config: TritonConfig = merged

    def run(self) -> None:
        """Start serving and return; raises as :meth:`connect`. Safe to call again."""
        self.connect()
        if not self._announced:
            self._announced = True
            LOGGER.info(
                "(Press CTRL+C or use the command `kill -SIGINT %d` to send a SIGINT signal and quit)", os.getpid()
            )

    def get_access_token(self) -> str | None:
        """The token that protected endpoints ask for; None if there are none."""
        return self._security.access_token if self._security.restricted_endpoints else None

    def _begin_serving(self) -> None:
        self.run()

    def _reach(self) -> ModelControl:
        self._server = self._start_server()
        return self._server.control

    def _start_server(self) -> Server:
        self._preloaded = []
        if self._policy.local_model_store:
            self._models.start(self._models)
            self._preloaded = self._models.names()
        server = Server(
            self._config,
            self._installation,
            self._workspace.path,
            self._workspace.model_store_path,
            self._on_server_exit,
            self._restrictions,
            [*self._preloaded, *self._foreign_models.to_preload(self._config)],
            self._is_wanted,
        )
        LOGGER.info("Triton Inference Server is ready: %s", server.endpoints())
        self._warn_verbose()
        return server

    def _check_python_backend(self) -> None:
        self._installation.python_backend()

    def _load(self, control: ModelControl) -> None:
        self._models.load(control, self._preloaded)
        if self._config.model_repository is not None:
            self._foreign_models.load(control, self._models.names())

    def _warn_verbose(self) -> None:
        if self._config.log_verbose:
            LOGGER.warning("the server runs with log_verbose=%d, which slows inference down", self._config.log_verbose)

    def _is_running(self) -> bool:
        # A server that has died and will be launched again counts as running: nothing has ended for good.
        server = self._server
        return super()._is_running() and server is not None and (server.is_alive() or self._policy.restart_server)

    def _check_running(self, what: str) -> None:
        super()._check_running(what)
        if self._server is not None and not self._is_running():
            raise self._server.failure(f"cannot {what}: the server has ended")

    def _end(self, control: ModelControl) -> None:
        if self._server is not None and self._server.is_alive():  # else somebody else may listen on its ports
            self._foreign_models.unload(control, time.monotonic() + self._server.exit_timeout_s)
            self._server.end(self._models.names(loaded=True), self._models.wait_drained)
            self._warn_verbose()

    def _kill(self) -> None:
        if self._server is not None:
            self._server.kill()

    def _on_server_exit(self, server: Server) -> None:
        with self._lock:  # whoever starts a server notices its end by himself
            if server is not self._server and not self._stopping:
                return
        if not self._stopping:
            LOGGER.warning("the server exited with failure: %s", server.failure("it ended by itself"))
            if self._policy.restart_server and self._restart():
                return
            self.stop()
        self._models.disconnect()  # nobody waits for the callables' answers any more

    def _restart(self) -> bool:
        """Launch a server that has died again, with all its models; returns whether that worked."""
        died = time.monotonic()
        with self._lock:
            while not self._stopping and self._may_restart():
                try:
                    self._server = self._start_again()
                    self._control = self._server.control
                    self._models.reload(self._control, self._preloaded)
                    self._load(self._control)
                except (PyTritonServerError, PyTritonClientTimeoutError, *REFUSED):
                    if self._stopping:
                        return False
                    if self._server is None or self._server.is_alive():
                        LOGGER.exception("the server cannot be launched again")
                        return False
                    LOGGER.warning("the server died while it was launched again", exc_info=True)
                else:
                    LOGGER.warning("the server was launched again, %.1f s after it had died", time.monotonic() - died)
                    return True
        return False

    def _may_restart(self) -> bool:
        """Count a death; whether there were not too many."""
        now = time.monotonic()
        if len(self._deaths) == MOST_RESTARTS and now - self._deaths[0] < RESTARTS_PERIOD_S:
            LOGGER.error("the server died %d times in %.0f s; giving up", MOST_RESTARTS + 1, now - self._deaths[0])
            return False
        self._deaths.append(now)
        return True

    def _start_again(self) -> Server:
        for _ in range(START_ATTEMPTS):
            try:
                return self._start_server()
            except PyTritonServerError as error:  # the ports of a dead server may stay in use for a moment
                LOGGER.debug("the server cannot be launched again yet: %s", error)
                if self._stopped.wait(START_PAUSE_S) or self._stopping:
                    break
        return self._start_server()

    def _revive(self, control: ModelControl, model: Model) -> None:
        with self._lock:
            if self._control is not control or not self._is_lost(model):
                return
            try:
                if not control.is_model_ready(model.name, model.version):  # a client has unloaded it
                    return
                if not control.is_own(model.name):
                    self._forget_replaced(control, model)
                    return
                if model.was_dismissed():  # somebody else is loading it again
                    return
                LOGGER.warning("model %s: its proxy in the server died; loading the model again", model.name)
                control.unload(model.name)
                control.load(model.name)
            except REFUSED as error:
                if control.is_ready():  # else the server has gone, which has its own message
                    LOGGER.warning("model %s cannot be loaded again: %s", model.name, error)
