"""A server that we launched: started, asked to load and unload models, drained and ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from tritonclient.utils import InferenceServerException

from pytriton.client.exceptions import PyTritonClientTimeoutError
from pytriton.client.transport import passing_client
from pytriton.client.url import TritonUrl
from pytriton.config import TritonConfig
from pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from pytriton.exceptions import PyTritonServerError
from pytriton.server.connections import wait_sent
from pytriton.server.installation import Installation, overlay, server_environment
from pytriton.server.launch import check_ports, command_line, endpoints, local_url
from pytriton.server.process import ServerProcess

LOGGER = logging.getLogger(__name__)

EXIT_TIMEOUT_S = 30
KILL_TIMEOUT_S = 10.0
TRACE_TIMEOUT_S = 10.0
READY_POLL_S = 0.01
CONVERSATION_TIMEOUT_S = 600.0
REFUSED = (InferenceServerException, OSError)


class Server:
    """Starts a server and waits until it is ready.

    Args:
        config: Its options.
        installation: Its binaries.
        workspace: Folder for what it needs on disk; removed by the server's guard if this process dies.
        store: The model repository.
        on_exit: Called, on a thread of its own, with the exit status once the server has ended.

    Raises:
        PyTritonServerError: It cannot be started here, or ended at once; the message has its last lines.
        PyTritonClientTimeoutError: It was not ready in time; also a TimeoutError.
    """

    def __init__(
        self,
        config: TritonConfig,
        installation: Installation,
        workspace: Path,
        store: Path,
        on_exit: Callable[[int], None],
    ) -> None:
        self._config = config
        self.url = local_url(config)
        check_ports(config)
        folder = workspace / "server"
        overlay(installation, folder)
        prefix = f"pytriton-{uuid4().hex[:12]}-"
        if config.trace_config:  # see _write_traces: idle connections must not hold up its exit, which we drain before
            config = replace(config, exit_timeout_secs=2)
        self._process = ServerProcess(
            command_line(installation, config, store, folder, prefix),
            server_environment(installation, folder),
            f"/dev/shm/{prefix}*",
            workspace,
            on_exit,
        )
        try:
            self._wait_ready(DEFAULT_TRITON_STARTUP_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def failure(self, what: str) -> PyTritonServerError:
        """An error for a server that has ended, with its last lines."""
        log_file = self._config.log_file
        return self._process.failure(f"{what}; its log is {log_file}" if log_file else what)

    def endpoints(self) -> str:
        """Where the server listens, as text for the log."""
        names = {"http_port": "HTTP", "grpc_port": "gRPC", "metrics_port": "metrics"}
        where = endpoints(self._config).items()
        return ", ".join(f"{names.get(name, name)} at {address}:{port}" for name, (address, port) in where)

    def load(self, name: str) -> None:
        """Load a model, or what is new of it, from the repository.

        Raises:
            InferenceServerException: The server refused it.
        """
        with self._client() as client:
            client.load_model(name)

    def unload(self, name: str) -> None:
        """Have a model refuse new requests and go once those in flight are answered; returns before it is gone."""
        with self._client() as client:
            client.unload_model(name)

    def is_model_ready(self, name: str, version: int) -> bool:
        """Whether the server can serve a version of a model."""
        with self._client() as client:
            return bool(client.is_model_ready(name, str(version)))

    def end(self, models: list[str], wait_drained: Callable[[float], bool]) -> None:
        """Refuse new requests, answer those in flight, then end the process.

        The process is killed: by then it has nothing left to do but to sleep (1 s for each Python-backend model, up to
        one metrics interval, and 30 s for idle connections).

        Args:
            models: Names of the models to unload.
            wait_drained: Waits until all batches are answered, or a deadline in :func:`time.monotonic` seconds.
        """
        timeout_s = EXIT_TIMEOUT_S if self._config.exit_timeout_secs is None else self._config.exit_timeout_secs
        deadline = time.monotonic() + timeout_s
        try:
            for name in models:
                self.unload(name)
            drained = wait_drained(deadline)
        except REFUSED as error:
            LOGGER.debug("models cannot be unloaded: %s", error)
            self._process.interrupt()
            drained = self._process.wait(timeout_s)
        if self._process.is_alive():
            drained = wait_sent([port for _, port in endpoints(self._config).values()], deadline) and drained
            self._write_traces()
        if not drained:
            LOGGER.warning("requests in flight were ended after %.0f s", time.monotonic() - deadline + timeout_s)
        self.kill()

    def _write_traces(self) -> None:
        """Have the server write the traces that it holds, which it only does at an exit of its own."""
        if self._config.trace_config:
            self._process.interrupt()
            if not self._process.wait(TRACE_TIMEOUT_S):
                LOGGER.warning("the server did not write its last traces in %d s", TRACE_TIMEOUT_S)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait(KILL_TIMEOUT_S)

    def _wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        answer = "not ready"
        with self._client() as client:
            while self._process.is_alive():
                try:
                    if client.is_server_live() and client.is_server_ready() and self._process.is_alive():
                        return
                except (*REFUSED, ValueError) as error:  # ValueError: an answer that was cut short
                    answer = str(error)
                if time.monotonic() > deadline:
                    raise PyTritonClientTimeoutError(
                        f"the server at {self.url} was not ready after {timeout_s} s; it last said: {answer}"
                    )
                time.sleep(READY_POLL_S)
        raise self.failure("the server did not start")

    @contextmanager
    def _client(self) -> Iterator[Any]:
        with closing(passing_client(TritonUrl.from_url(self.url), CONVERSATION_TIMEOUT_S)) as client:
            yield client
