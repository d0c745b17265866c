"""A server that this process launches: started, drained and ended."""

from __future__ import annotations

import importlib
import math
import re
import shutil
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from uuid import uuid4

from pytriton.client.exceptions import PyTritonClientTimeoutError
from pytriton.config import TritonConfig
from pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from pytriton.exceptions import PyTritonModelControlError, PyTritonServerError
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.server.access import Access, Restrictions
from pytriton.server.drain import Drain
from pytriton.server.edge import Edge, EdgeDrain
from pytriton.server.installation import NAMES_VARIABLE, Installation, overlay, server_environment, warn_exposed
from pytriton.server.launch import (
    check_cloud_endpoints,
    check_ports,
    command_line,
    endpoints,
    is_for_this_machine,
    local_host,
    socket_path,
    wait_listening,
    warn_unchecked_clouds,
)
from pytriton.server.model_server import ModelServer, WaitDrained, seconds_until
from pytriton.server.process import ServerProcess
from pytriton.server.repository import UserRepository
from pytriton.server.tls import check_certificates, own_client_context, uses_tls
from pytriton.server.watchdog import Watchdog, ask_grpc, ask_http
from pytriton.utils.workspace import SERVER_PREFIX, TEMPORARY_FOLDERS

__all__ = ["LaunchedServer"]

LOGGER = get_logger("pytriton.triton")

ENDPOINTS = {"http_port": "HTTP", "grpc_port": "gRPC", "metrics_port": "metrics"}
KILL_TIMEOUT_S = 10.0
TRACE_TIMEOUT_S = 10.0
METRICS_TIMEOUT_S = 5.0
RECEIVING_SHARE = 0.5  # of the time to end in: new requests are accepted meanwhile
PENDING = re.compile(r'^nv_inference_pending_request_count\{model="([^"]*)".*\} (\S+)$', re.MULTILINE)


class LaunchedServer(ModelServer):
    """Starts a server; :meth:`wait_started` waits until it is ready.

    Args:
        workspace: Folder for what it needs on disk; removed by the server's guard if this process dies.
        on_exit: Called, on a thread of its own, with this object once the server has ended; also if it ends before it
            was ready.
        user_repository: The models in the user's own repository.
        edge: The edge, if that serves HTTP.
        models: Names of the bound models to load while it starts, for which :meth:`load` does nothing the first time.
        watchdog_timeout_s: A server that does not answer for so long is killed; None: never.

    Raises:
        PyTritonValidationError: Its certificates cannot be used, or Vertex AI's endpoint lacks something.
        PyTritonServerError: It cannot be started here.
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
        edge: Edge | None = None,
        models: Collection[str] = (),
        watchdog_timeout_s: float | None = None,
    ) -> None:
        self._config, self._installation, self._restrictions = config, installation, restrictions
        self._user_repository = user_repository
        self._watchdog_timeout_s = watchdog_timeout_s
        self._preloaded = {*models}
        startup_models = [*models, *user_repository.preloaded(config)]
        check_certificates(config)
        check_cloud_endpoints(config, startup_models)
        if edge is None:
            warn_unchecked_clouds(config, [name for rule in restrictions.rules("http") for name in rule.endpoints])
        super().__init__(Access.to_own(config, restrictions, None if edge is None else edge.url))
        self._edge = edge
        self._edge_drain: EdgeDrain | None = None
        self._watchdog: Watchdog | None = None
        self._hang = ""  # what the watchdog has found
        self._requests = ""  # which there were when it died
        self._is_to_end = False
        self._says_ready = edge is not None and not edge.waits_for_models
        check_ports(config)
        name = f"{SERVER_PREFIX}{uuid4().hex[:12]}"
        folder, prefix = workspace / name, f"{name}-"
        python = overlay(installation, folder)
        environment = server_environment(installation, folder, python)
        if not any(restrictions.rule_of("inference", protocol) for protocol in ("http", "grpc")):
            environment[NAMES_VARIABLE] = "1"  # whoever may call models may know their names
        descriptors: Sequence[int] = ()
        protocols = ["http", "grpc"]  # whose rules the server itself has to know
        if edge is not None:
            config = edge.server_config()
            environment |= edge.prepare(startup_models)
            descriptors = [each for each in (edge.listener,) if each >= 0]
            protocols = [] if edge.serves_grpc else ["grpc"]
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
            lambda _: self._ended(on_exit),
            lambda: self._remove_leftovers(folder),
            restrictions.secrets(),
            verbose=bool(config.log_verbose),
            descriptors=descriptors,
        )

    def wait_started(self, keep_waiting: Callable[[], bool] = lambda: True) -> None:
        """Wait until the server is ready; kill it if it does not get ready.

        Args:
            keep_waiting: Whether to wait on.

        Raises:
            PyTritonServerError: It ended; the message has its last lines.
            PyTritonClientTimeoutError: It was not ready in time; also a TimeoutError.
        """
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
        if not all(is_for_this_machine(address) for address, _ in where.values()):
            warn_exposed(self._installation)
        self._warn_verbose()
        if self._watchdog_timeout_s is not None:
            self._watchdog = self._watch(self._watchdog_timeout_s)

    def is_alive(self) -> bool:
        """Whether the process runs; if not, another server may listen on its ports."""
        return self._process.is_alive()

    def answers(self) -> bool:
        """Whether the process runs, and answered when the watchdog asked the last time."""
        return self.is_alive() and (self._watchdog is None or self._watchdog.is_answered())

    def _watch(self, timeout_s: float) -> Watchdog:
        config, restrictions = self._config, self._restrictions
        questions = dict[str, Callable[[float], bool | None]]()
        where = endpoints(config)
        if self._edge is not None:
            questions["HTTP"] = self._edge.is_responding
        elif "http_port" in where:
            questions["HTTP"] = partial(ask_http, _address(where["http_port"]), restrictions.headers("http"))
        if "grpc_port" in where:
            context = cache(partial(own_client_context, config)) if uses_tls(config) else None
            address = _address(where["grpc_port"])
            questions["gRPC"] = partial(ask_grpc, address, restrictions.headers("grpc"), context=context)
        return Watchdog(questions, timeout_s, self.pid, self._on_answer, partial(self._on_hang, timeout_s))

    def _on_answer(self, answers: bool) -> None:
        if not answers:
            LOGGER.warning("the server does not answer; it is not ready until it does")
        if self._edge is not None and self._says_ready and self._config.strict_readiness is not False:
            self._edge.announce_models(answers)

    def _on_hang(self, timeout_s: float, names: str) -> None:
        self._hang = f"it did not answer over {names} for {timeout_s:g} s and was killed"
        LOGGER.error("the server (process %s) hangs: it does not answer over %s; it is killed", self.pid(), names)
        self._end_process()

    @override
    def pid(self) -> int | None:
        return self._process.pid()

    def ends_within(self, timeout_s: float) -> bool:
        """Whether the process has ended, or ends within some seconds; its connections fail before that is known."""
        return self._process.wait(timeout_s)

    def failure(self, what: str) -> PyTritonServerError:
        """An error for a server that has ended, with its last lines."""
        log_file = self._config.log_file
        what = f"{what}: {self._hang}" if self._hang else what
        return self._process.failure(f"{what}; its log is {log_file}" if log_file else what, self._requests)

    @override
    def load(self, name: str) -> None:
        if name in self._preloaded:
            self._preloaded.discard(name)
        else:
            super().load(name)

    @override
    def load_others(self, bound: Collection[str]) -> None:
        if self._config.model_repository is not None:
            self._user_repository.load(self, bound)

    @override
    def announce_models(self) -> None:
        if self._edge is not None and self._edge.waits_for_models:
            self._edge.announce_models()
            self._says_ready = True

    def _drain(self) -> Drain:
        """What is under way over the connections that there are now, but for those that the edge drains."""
        ports = {name: port for name, (host, port) in endpoints(self._config).items() if not socket_path(host)}
        grpc_port = ports.pop("grpc_port", None)
        if self._edge_drain is not None:
            ports.clear()  # the edge has them all
        if self._edge is not None and self._edge.serves_grpc:
            grpc_port = None
        return Drain(self._process.pid(), [*ports.values()], grpc_port)

    def pending(self, models: Collection[str]) -> int:
        """How many requests to models wait in their queues; 0 if the server has no metrics."""
        where = endpoints(self._config).get("metrics_port")
        if where is None:
            return 0
        http = importlib.import_module("http.client")
        try:
            with closing(http.HTTPConnection(local_host(where[0]), where[1], timeout=METRICS_TIMEOUT_S)) as connection:
                if self._edge is not None:  # which may refuse connections already
                    connection.sock = socket.socket(socket.AF_UNIX)
                    connection.sock.settimeout(METRICS_TIMEOUT_S)
                    connection.sock.connect(self._edge.metrics)
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
        except (OSError, http.HTTPException) as error:
            LOGGER.debug("the server's metrics cannot be read: %s", error)
            return 0
        return sum(int(float(count)) for model, count in PENDING.findall(text) if model in models)

    @override
    def wait_received(self, models: Collection[str], timeout_s: float) -> Callable[[], bool]:
        drain = self._drain()
        drain.wait_received(timeout_s * RECEIVING_SHARE)
        return lambda: drain.has_parsed() and not self.pending(models)

    @property
    @override
    def exit_timeout_s(self) -> float:
        return super().exit_timeout_s if self._config.exit_timeout_secs is None else self._config.exit_timeout_secs

    @override
    def refuse_connections(self) -> bool:
        self._stop_watchdog()
        if self._edge is not None and self._edge_drain is None and self.is_alive():
            self._edge_drain = self._edge.drain()
        return self._edge_drain is not None

    @override
    def wait_http_answered(self, deadline: float = -math.inf) -> bool:
        return self._edge_drain is None or self._edge_drain.wait(deadline)

    def end(self, models: Sequence[str], wait_drained: WaitDrained, deadline: float) -> None:
        """Refuse new requests, answer those in flight, then end the process.

        The process is killed: by then it has nothing left to do but to sleep (1 s for each Python-backend model, up to
        one metrics interval, and 30 s for idle connections).
        """
        if not self.is_alive():
            return
        self._is_to_end = True
        self._stop_watchdog()
        self._user_repository.unload(self, deadline)
        timeout_s = max(0.0, deadline - time.monotonic())
        self.refuse_connections()
        drain = self._drain()
        drain.wait_received(timeout_s * RECEIVING_SHARE)
        self.wait_http_answered(deadline - timeout_s * (1 - RECEIVING_SHARE))
        try:
            for name in models:
                self.unload(name, seconds_until(deadline))
            drained = wait_drained(
                deadline, lambda: drain.is_silent() and self.wait_http_answered() and not self.pending(models)
            )
        except PyTritonModelControlError as error:
            LOGGER.debug("models cannot be unloaded: %s", error)
            self._process.interrupt()
            drained = self._process.wait(max(0.0, deadline - time.monotonic()))
        if self._process.is_alive():
            drained = drain.wait_answered(deadline) and self.wait_http_answered(deadline) and drained
            self._write_traces()
        if not drained:
            waited_s = time.monotonic() - deadline + self.exit_timeout_s  # the stop may have waited for the app before
            LOGGER.warning("requests in flight were ended after %.0f s", waited_s)
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
        self._is_to_end = True
        self._end_process()

    def _end_process(self) -> None:
        self._stop_watchdog()
        self._process.kill()
        if not self._process.wait(KILL_TIMEOUT_S):
            self._process.kill_guard()
            self._process.wait(KILL_TIMEOUT_S)
        self.wait_http_answered()  # closes the connection to the edge, which has ended

    def _stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()

    def _remove_leftovers(self, folder: Path) -> None:
        """Remove what the server has left, and read its last requests, before another server can be launched."""
        shutil.rmtree(folder, ignore_errors=True)  # the next one has a folder of its own
        if self._edge is not None:
            self._edge.remove_public_socket()
            if not self._is_to_end:
                self._requests = self._edge.record_crash()

    def _ended(self, on_exit: Callable[[LaunchedServer], None]) -> None:
        self._stop_watchdog()
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


def _address(endpoint: tuple[str, int]) -> str | tuple[str, int]:
    """How this machine connects to an endpoint."""
    host, port = endpoint
    return socket_path(host) or (local_host(host).strip("[]"), port)
