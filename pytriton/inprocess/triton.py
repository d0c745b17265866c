"""``Triton``: binds Python callables as models of a server in this process, and loads them there."""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pytriton.base import TritonBase
from pytriton.binding import ModelRegistry
from pytriton.composition.connector import Connector
from pytriton.exceptions import PyTritonModelControlError, PyTritonServerError
from pytriton.inprocess.capi import ModelControlMode, RateLimitMode, installation
from pytriton.inprocess.clients import (
    AsyncInprocessTransport,
    InprocessConnector,
    InprocessTransport,
    ModelClient,
    ProtocolAdapter,
)
from pytriton.inprocess.exceptions import InvalidArgumentError, TritonError
from pytriton.inprocess.local_channel import native_proxy
from pytriton.inprocess.options import Options
from pytriton.inprocess.server import Server
from pytriton.introspection import override
from pytriton.lifecycle import weakly
from pytriton.logs import get_logger
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.server.backends import LIBRARY
from pytriton.server.installation import BUNDLED
from pytriton.server.metrics_page import MetricsPage
from pytriton.server.model_server import ModelServer, ServerCapabilities, WaitDrained
from pytriton.utils.workspace import Workspace
from pytriton.worker.interfaces import Accept

__all__ = ["Triton"]

LOGGER = get_logger("pytriton.triton")

UNLOADED = {"", "UNAVAILABLE"}
SERVER_POLL_S = 1.0  # a server that stops checks its models this seldom; most are unloaded at once
POLL_S = 0.002


class Triton(TritonBase):
    """Serves bound callables with a Triton Inference Server in this process: no network, no second process.

    The server's own threads call the callables. It starts on entering the context, or at :meth:`connect`, and ends with
    :meth:`stop`, on leaving the context and at the interpreter's exit::

        with Triton() as triton:
            triton.bind("doubler", double, inputs, outputs, config=ModelConfig(max_batch_size=8))
            with triton.client("doubler") as client:
                print(client.infer_sample(x))

    Args:
        options: Options of the server. Their repositories, if any, are served beside the bound models. The control mode
            is always EXPLICIT.
        workspace: Folder for the bound models' files, which must not exist; default: a new one below
            ``PYTRITON_HOME``. It is removed at the end.
        memory_budget: As that of :class:`pytriton.triton.Triton`.
        kwargs: Fields of :class:`Options`, in place of ``options``.

    Attributes:
        triton_context: Shared by the bound callables.
        server: The server, for models, metrics and so on; started by :meth:`connect`.

    Raises:
        InvalidArgumentError: Options are given twice, or there is no such field.
        FileExistsError: ``workspace`` exists.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        workspace: Workspace | str | Path | None = None,
        memory_budget: int | None = None,
        **kwargs: Any,
    ) -> None:
        given = Server(options, **kwargs).options
        super().__init__(workspace, memory_budget=memory_budget)
        self.server = Server(_with_store(given, self._workspace.model_store_path))
        self.server.owner = self  # for models and clients of the server
        self._started_servers: list[Server] = []
        ends = [] if self._memory is None else [self._memory.end]
        pieces = self._models, self._started_servers, self._workspace, self._pages, ends
        self._forgotten = weakref.finalize(self, _stop_aside, os.getpid(), self._lifecycle.at_exit, *pieces)
        self._forgotten.atexit = False  # the hook stops it

    def client(self, model_name: str, model_version: str | None = None, **settings: Any) -> ModelClient:
        """A client of a model; use :class:`DecoupledModelClient` for decoupled models.

        Args:
            model_version: Its version; None uses the highest.
            settings: Those of :class:`ModelClient`.
        """
        return ModelClient(self.server, model_name, model_version, **settings)

    def async_transport(self) -> AsyncInprocessTransport:
        """What calls the server from coroutines, also for streams."""
        return AsyncInprocessTransport(ProtocolAdapter(self.server))

    async def read_metrics(self) -> str:
        """The server's metrics, as Prometheus reads them."""
        return await asyncio.to_thread(self.server.metrics)

    def _connector(self) -> Connector:
        return InprocessConnector(self._started_servers[-1])

    def _capabilities(self) -> ServerCapabilities:
        options, is_ours = self.server.options, installation().home == BUNDLED
        return ServerCapabilities(
            has_native_backend=is_ours,  # with another installation, our backend would not find the server's functions
            forwards_headers=False,
            caches=bool(options.cache_config),
            limits=options.rate_limiter_mode != RateLimitMode.OFF,
            host_policies=options.host_policies or (),
            check_python_backend=installation().python_backend,
            listen_locally=_listen_locally if is_ours and LIBRARY.is_file() else None,
            cache_option="Options.cache_config",
            limit_option="Options.rate_limiter_mode to RateLimitMode.EXEC_COUNT",
            host_policy_option="Options.host_policies",
        )

    def _start_server(self) -> ModelServer:
        try:
            self.server.start()
        except InvalidArgumentError:
            raise
        except TritonError as error:
            raise PyTritonServerError(f"the server cannot start in this process: {error}") from error
        self._started_servers.append(self.server.successor())
        return InprocessServer(self.server)

    def _exit_hook(self) -> Callable[[], object]:
        return weakly(self._finish)

    def _finish(self) -> bool:
        self._forgotten.detach()
        return super()._finish()


def _stop_aside(process: int, at_exit: Callable[[], object], *pieces: Any) -> None:
    """Stop what a ``Triton`` had, to which nothing refers now, on a new thread: the garbage collector calls this."""
    atexit.unregister(at_exit)
    if os.getpid() == process:
        threading.Thread(target=_stop_pieces, args=pieces, name="pytriton-stop").start()


def _stop_pieces(
    models: ModelRegistry,
    servers: list[Server],
    workspace: Workspace,
    pages: list[MetricsPage],
    ends: Sequence[Callable[[], None]],
) -> None:
    for end in ends:
        end()
    models.interrupt()
    for server in servers:
        LOGGER.info("nothing refers to the server in this process any more; it stops")
        running = InprocessServer(server)
        running.end(models.names(loaded=True), partial(models.wait_drained, running), math.inf)
    models.disconnect()
    for page in pages:
        page.close()
    workspace.clean()
    models.clear()


def _listen_locally(path: str, accept: Accept) -> Callable[[], None]:
    return native_proxy().listen(path, accept)


def _with_store(options: Options, store: Path) -> Options:
    """The user's options, with the folder of bound models."""
    repositories = options.model_repository or []
    if isinstance(repositories, str):
        repositories = [repositories]
    return replace(options, model_repository=[str(store), *repositories], model_control_mode=ModelControlMode.EXPLICIT)


class InprocessServer(ModelServer):
    """A server in this process, called as a library."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = "this process"
        self.id = ""

    def _connect(self) -> InprocessTransport:
        return InprocessTransport(ProtocolAdapter(self._server))

    @override
    def announcement(self, config: TritonModelConfig) -> str:
        return f"Infer function available as model {config.model_name!r} of the server in this process"

    @override
    def end(self, models: Sequence[str], wait_drained: WaitDrained, deadline: float) -> None:
        # The server itself waits for the requests.
        poll_end = time.monotonic() + SERVER_POLL_S
        try:
            for name in models:
                self.unload(name)
            while time.monotonic() < poll_end and any(self.states().get(name, UNLOADED) - UNLOADED for name in models):
                time.sleep(POLL_S)
            self._server.stop()
        except (TritonError, PyTritonModelControlError) as error:
            LOGGER.warning("the server in this process did not end well: %s", error)
