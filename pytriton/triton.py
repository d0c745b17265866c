"""``Triton``: binds Python callables as models and has a Triton Inference Server serve them."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
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
from pytriton.lifecycle import DefaultTritonLifecyclePolicy, TritonLifecyclePolicy, VertextAILifecyclePolicy
from pytriton.model import Model
from pytriton.model_config.validation import checked_copy
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
from pytriton.server.launch import check_ports, endpoints
from pytriton.server.restrictions import Restrictions
from pytriton.server.server import RECEIVING_SHARE, Server
from pytriton.server.weaknesses import warn_exposed
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
        self._security = TritonSecurityConfig() if security_config is None else checked_copy(security_config)
        self._restrictions = Restrictions.merge(merged, self._security)
        self._installation = find_installation()
        self._server: Server | None = None
        self._foreign_models = ForeignModels(self._installation, merged.model_repository)
        self._preloaded: list[str] = []
        self._restarts: deque[float] = deque(maxlen=MOST_RESTARTS)  # times of the last ones
        self._restarting = False
        self._gave_up = False
        self._announced = False
        if triton_lifecycle_policy is None:
            for_vertex_ai = merged.allow_vertex_ai  # whose endpoint needs it, whoever has asked for that
            triton_lifecycle_policy = VertextAILifecyclePolicy if for_vertex_ai else DefaultTritonLifecyclePolicy
        super().__init__(workspace, triton_lifecycle_policy, merged)
        self._config: TritonConfig = merged

    def run(self) -> None:
        """Start serving and return; raises as :meth:`connect`. Safe to call again."""
        self.connect()
        self._foreign_models.warn_of_lacks()
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
        warn_exposed(self._installation, [address for address, _ in endpoints(self._config).values()])
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

    @contextmanager
    def _changing(self, what: str, check: Callable[[str], None] | None = None) -> Iterator[None]:
        with super()._changing(what, check):
            if self._server is not None:
                self._restart(self._server)  # before a change that a dead server would fail
                self._check_running(what)
            yield

    def _end(self, control: ModelControl) -> None:
        if self._server is not None and self._server.is_alive():  # else somebody else may listen on its ports
            self._foreign_models.unload(control, time.monotonic() + self._server.exit_timeout_s)
            self._server.end(self._models.names(loaded=True), partial(self._models.wait_drained, control))
            self._warn_verbose()

    def _before_unload(self, models: Collection[str], timeout_s: float) -> Callable[[], bool]:
        assert self._server is not None
        server, drain = self._server, self._server.drain()
        drain.wait_received(timeout_s * RECEIVING_SHARE)
        return lambda: drain.has_parsed() and not server.pending(models)

    def _kill(self) -> None:
        if self._server is not None:
            self._server.kill()

    def _on_server_exit(self, server: Server) -> None:
        with self._lock:  # whoever starts a server notices its end by himself
            if not self._stopping and (server is not self._server or self._restart(server)):
                return
        self._models.disconnect()  # nobody waits for the callables' answers any more
        if not self._stopping:
            self.stop()

    def _restart(self, server: Server) -> bool:
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
                self._control = server.control
                self._models.reload(server.control, self._preloaded)
                self._load(server.control)
                return
            except Exception as error:  # whatever it is, serve() must not wait for ever
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
        """Announce a restart; raises PyTritonServerError if there were too many."""
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
        """Those of a dead server may stay in use for a moment; the start says so if it is longer."""
        deadline = time.monotonic() + PORTS_TIMEOUT_S
        while not self._stopping and time.monotonic() < deadline:
            try:
                return check_ports(self._config)
            except PyTritonServerError:
                time.sleep(PORTS_POLL_S)

    def _revive(self, control: ModelControl, model: Model) -> None:
        with self._lock:
            if self._control is not control or not self._is_lost(model):
                return
            if self._server is None or not self._server.is_alive():  # somebody else may listen on its ports
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
