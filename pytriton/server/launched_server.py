"""A server that this process launches: started, drained and ended."""

from __future__ import annotations

import importlib
import logging
import math
import re
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from pytriton.client.exceptions import PyTritonClientTimeoutError
from pytriton.config import TritonConfig
from pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from pytriton.exceptions import PyTritonModelControlError, PyTritonServerError
from pytriton.server.access import Access, Restrictions, check_certificates
from pytriton.server.drain import Drain
from pytriton.server.http_frontend import FrontendDrain, HttpFrontend
from pytriton.server.installation import Installation, overlay, server_environment, warn_exposed
from pytriton.server.launch import (
    check_cloud_endpoints,
    check_ports,
    command_line,
    endpoints,
    local_host,
    socket_path,
    wait_listening,
)
from pytriton.server.model_server import ModelServer, WaitDrained
from pytriton.server.process import ServerProcess
from pytriton.server.repository import UserRepository
from pytriton.utils.workspace import SERVER_PREFIX, TEMPORARY_FOLDERS

__all__ = ["LaunchedServer"]

LOGGER = logging.getLogger("pytriton.triton")

ENDPOINTS = {"http_port": "HTTP", "grpc_port": "gRPC", "metrics_port": "metrics"}
KILL_TIMEOUT_S = 10.0
TRACE_TIMEOUT_S = 10.0
METRICS_TIMEOUT_S = 5.0
RECEIVING_SHARE = 0.5  # of the time to end in: new requests are accepted meanwhile
PENDING = re.compile(r'^nv_inference_pending_request_count\{model="([^"]*)".*\} (\S+)$', re.MULTILINE)


class LaunchedServer(ModelServer):
    """Starts a server and waits until it is ready.

    Args:
        config: Its options.
        installation: Its binaries.
        workspace: Folder for what it needs on disk; removed by the server's guard if this process dies.
        store: The model repository.
        on_exit: Called, on a thread of its own, with this object once the server has ended; also if it ends before it
            was ready.
        restrictions: What its endpoints ask for.
        user_repository: The models in the user's own repository.
        frontend: The native HTTP front end, if that serves HTTP.
        models: Names of the bound models to load while it starts, for which :meth:`load` does nothing the first time.
        keep_waiting: Whether to wait on for the server to be ready.

    Raises:
        PyTritonValidationError: Its certificates cannot be used, or Vertex AI's endpoint lacks something.
        PyTritonServerError: It cannot be started here, or ended at once; the message has its last lines.
        PyTritonClientTimeoutError: It was not ready in time; also a TimeoutError.
    """

    def __init__(
        self,
        config: TritonConfig,
        installation: Installation,
        workspace: Path,
        store: Path,
        on_exit: Callable[[LaunchedServer], None],
        restrictions: Restrictions,
        user_repository: UserRepository,
        frontend: HttpFrontend | None = None,
        models: Collection[str] = (),
        keep_waiting: Callable[[], bool] = lambda: True,
    ) -> None:
        self._config = config
        self._user_repository = user_repository
        self._preloaded = {*models}
        startup_models = [*models, *user_repository.preloaded(config)]
        check_certificates(config)
        check_cloud_endpoints(config, startup_models)
        super().__init__(Access.to_own(config, restrictions, None if frontend is None else frontend.url))
        self._frontend = frontend
        self._frontend_drain: FrontendDrain | None = None
        check_ports(config)
        name = f"{SERVER_PREFIX}{uuid4().hex[:12]}"
        folder, prefix = workspace / name, f"{name}-"
        python = overlay(installation, folder)
        environment = server_environment(installation, folder, python)
        descriptors: Sequence[int] = ()
        protocols = ["http", "grpc"]  # whose rules the server itself has to know
        if frontend is not None:
            config = frontend.server_config()
            environment |= frontend.prepare()
            descriptors = [each for each in (frontend.listener,) if each >= 0]
            protocols.remove("http")
        if config.trace_config:  # see _write_traces: idle connections must not hold up its exit, which we drain before
            config = replace(config, exit_timeout_secs=2)
        self._process = ServerProcess(
            [
                *command_line(installation, config, store, folder, prefix),
                *(f"--load-model={name}" for name in startup_models),
                *restrictions.flags(protocols),
            ],
            environment,
            f"/dev/shm/{prefix}*",
            folder / TEMPORARY_FOLDERS,
            workspace,
            lambda _: self._ended(folder, on_exit),
            restrictions.secrets(),
            verbose=bool(config.log_verbose),
            descriptors=descriptors,
        )
        try:
            self._check_ready(keep_waiting)
        except BaseException:
            self.kill()
            raise
        where = endpoints(self._config)
        listening = ", ".join(
            f"{ENDPOINTS.get(name, name)} at {host if socket_path(host) else f'{host}:{port}'}"
            for name, (host, port) in where.items()
        )
        LOGGER.info("Triton Inference Server is ready: %s", listening)
        warn_exposed(installation, [address for address, _ in where.values()])
        self._warn_verbose()

    def is_alive(self) -> bool:
        """Whether the process runs; if not, another server may listen on its ports."""
        return self._process.is_alive()

    def pid(self) -> int | None:
        """As :meth:`ModelServer.pid`."""
        return self._process.pid()

    def ends_within(self, timeout_s: float) -> bool:
        """Whether the process has ended, or ends within some seconds; its connections fail before that is known."""
        return self._process.wait(timeout_s)

    def was_killed(self) -> bool:
        """Whether a signal ended the process, or the guard that it dies with; false while it runs."""
        return not self.is_alive() and self._process.killed_by() is not None

    def failure(self, what: str) -> PyTritonServerError:
        """An error for a server that has ended, with its last lines."""
        log_file = self._config.log_file
        return self._process.failure(f"{what}; its log is {log_file}" if log_file else what)

    def load(self, name: str) -> None:
        """As :meth:`ModelServer.load`."""
        if name in self._preloaded:
            self._preloaded.discard(name)
        else:
            super().load(name)

    def load_others(self, bound: Collection[str]) -> None:
        """As :meth:`ModelServer.load_others`, of the user's repository."""
        if self._config.model_repository is not None:
            self._user_repository.load(self, bound)

    def announce_models(self) -> None:
        """As :meth:`ModelServer.announce_models`, of the native front end."""
        if self._frontend is not None and self._frontend.waits_for_models:
            self._frontend.announce_models()

    def _drain(self) -> Drain:
        """What is under way over the connections that there are now, but for those that the front end drains."""
        ports = {name: port for name, (host, port) in endpoints(self._config).items() if not socket_path(host)}
        grpc_port = ports.pop("grpc_port", None)
        if self._frontend_drain is not None:
            ports.pop("http_port", None)
        return Drain(self._process.pid(), [*ports.values()], grpc_port)

    def pending(self, models: Collection[str]) -> int:
        """How many requests to models wait in their queues; 0 if the server has no metrics."""
        where = endpoints(self._config).get("metrics_port")
        if where is None:
            return 0
        http = importlib.import_module("http.client")
        try:
            with closing(http.HTTPConnection(local_host(where[0]), where[1], timeout=METRICS_TIMEOUT_S)) as connection:
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
        except (OSError, http.HTTPException) as error:
            LOGGER.debug("the server's metrics cannot be read: %s", error)
            return 0
        return sum(int(float(count)) for model, count in PENDING.findall(text) if model in models)

    def wait_received(self, models: Collection[str], timeout_s: float) -> Callable[[], bool]:
        """As :meth:`ModelServer.wait_received`."""
        drain = self._drain()
        drain.wait_received(timeout_s * RECEIVING_SHARE)
        return lambda: drain.has_parsed() and not self.pending(models)

    @property
    def exit_timeout_s(self) -> float:
        """As :attr:`ModelServer.exit_timeout_s`."""
        return super().exit_timeout_s if self._config.exit_timeout_secs is None else self._config.exit_timeout_secs

    def refuse_connections(self) -> bool:
        """As :meth:`ModelServer.refuse_connections`."""
        if self._frontend is not None and self._frontend_drain is None and self.is_alive():
            self._frontend_drain = self._frontend.drain()
        return self._frontend_drain is not None

    def wait_http_answered(self, deadline: float = -math.inf) -> bool:
        """As :meth:`ModelServer.wait_http_answered`."""
        return self._frontend_drain is None or self._frontend_drain.wait(deadline)

    def end(self, models: Sequence[str], wait_drained: WaitDrained, deadline: float) -> None:
        """Refuse new requests, answer those in flight, then end the process.

        The process is killed: by then it has nothing left to do but to sleep (1 s for each Python-backend model, up to
        one metrics interval, and 30 s for idle connections).
        """
        if not self.is_alive():
            return
        self._user_repository.unload(self, deadline)
        timeout_s = max(0.0, deadline - time.monotonic())
        self.refuse_connections()
        drain = self._drain()
        drain.wait_received(timeout_s * RECEIVING_SHARE)
        self.wait_http_answered(deadline - timeout_s * (1 - RECEIVING_SHARE))
        try:
            for name in models:
                self.unload(name)
            drained = wait_drained(
                deadline, lambda: drain.is_silent() and self.wait_http_answered() and not self.pending(models)
            )
        except PyTritonModelControlError as error:
            LOGGER.debug("models cannot be unloaded: %s", error)
            self._process.interrupt()
            drained = self._process.wait(timeout_s)
        if self._process.is_alive():
            drained = drain.wait_answered(deadline) and self.wait_http_answered(deadline) and drained
            self._write_traces()
        if not drained:
            LOGGER.warning("requests in flight were ended after %.0f s", time.monotonic() - deadline + timeout_s)
        self.kill()
        self._warn_verbose()

    def _write_traces(self) -> None:
        """Have the server write the traces that it holds, which it only does at an exit of its own."""
        if self._config.trace_config:
            self._process.interrupt()
            if not self._process.wait(TRACE_TIMEOUT_S):
                LOGGER.warning("the server did not write its last traces in %d s", TRACE_TIMEOUT_S)

    def _warn_verbose(self) -> None:
        if self._config.log_verbose:
            LOGGER.warning("the server runs with log_verbose=%d, which slows inference down", self._config.log_verbose)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait(KILL_TIMEOUT_S)
        self.wait_http_answered()  # closes the connection to the front end, which has ended

    def _ended(self, folder: Path, on_exit: Callable[[LaunchedServer], None]) -> None:
        shutil.rmtree(folder, ignore_errors=True)  # the next one has a folder of its own
        if self._frontend is not None:
            self._frontend.remove_public_socket()
        on_exit(self)

    def _check_ready(self, keep_waiting: Callable[[], bool]) -> None:
        def may_be_ready() -> bool:
            return self._process.is_alive() and keep_waiting()

        try:
            self.check_ready(DEFAULT_TRITON_STARTUP_TIMEOUT_S, may_be_ready)
        except PyTritonClientTimeoutError:
            if self._process.is_alive():
                raise
            raise self.failure("the server did not start") from None
        # The clouds' endpoints open last, and the server ends if they cannot be opened.
        where = endpoints(self._config)
        ports = [where[name][1] for name in ("sagemaker_port", "vertex_ai_port") if name in where]
        if not wait_listening(ports, may_be_ready):
            raise self.failure("the server did not start")
