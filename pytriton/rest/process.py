"""The program of a front's process: serves the application over HTTP until the hosting process ends it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterator
from typing import IO, Any

import uvicorn

from pytriton.rest.app import create_app
from pytriton.rest.config import READY, FrontSpec
from pytriton.rest.host import Channel
from pytriton.rest.middleware import ACCESS_LOGGER
from pytriton.rest.protocol import FrontProtocol
from pytriton.signals import ignored_signals

__all__ = ["main"]

PR_SET_PDEATHSIG = 1
COMMAND_BYTES = 64
KEEP_ALIVE_S = 75  # longer than the idle time after which most clients and proxies close connections themselves
YOUNG_OBJECTS = 20_000  # after which garbage is collected; a request under way has some hundreds
LINGER_S = 0.5  # for which connections that were idle before the drain may send another request
LINGER_POLL_S = 0.02


def main(file: IO[bytes]) -> None:
    """Serve until the end.

    Args:
        file: Has the pickled :class:`FrontSpec`.
    """
    with file:
        spec: FrontSpec = pickle.load(file)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the kernel kills this process with its parent
    if os.getppid() != spec.parent:
        return
    for descriptor in spec.descriptors():
        os.set_inheritable(descriptor, False)
    with ignored_signals():  # the hosting process decides
        _log(spec)
        FrontServer(spec).run([socket.socket(fileno=spec.listener)])


def _log(spec: FrontSpec) -> None:
    """Log to standard error, which the hosting process reads; requests to standard output, which is its own."""
    logging.basicConfig(level=spec.level, format="%(levelname)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if spec.config.access_log:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        requests = logging.getLogger(ACCESS_LOGGER)
        requests.addHandler(handler)
        requests.setLevel(logging.INFO)
        requests.propagate = False


class FrontServer(uvicorn.Server):
    """Serves the application, follows the hosting process, and drains without losing a request.

    Args:
        spec: What to serve.
    """

    def __init__(self, spec: FrontSpec) -> None:
        self._host = Channel(socket.socket(fileno=spec.host))
        app = create_app(spec.endpoints, spec.config, self._host)
        app.state.metrics.share(spec.counters, spec.index)
        app.state.keys.share(spec.limits, spec.config.processes, spec.index)
        config = spec.config
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=FrontProtocol,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                ssl_certfile=config.certificate,
                ssl_keyfile=config.key,
            )
        )
        self._live = app.state.live
        self._control = socket.socket(fileno=spec.control)
        self._listener = os.dup(spec.listener)  # not closed when the drain begins

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: they are for the hosting process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept, and tell the hosting process."""
        sockets = sockets or []
        ours = [each for each in sockets if each.family == socket.AF_UNIX]  # uvicorn knows them as paths only
        await super().startup([each for each in sockets if each not in ours])
        loop = asyncio.get_running_loop()
        self.servers += [await loop.create_unix_server(self._protocol, sock=each) for each in ours]
        gc.collect()
        gc.freeze()  # what lives as long as the process need not be looked at again
        gc.set_threshold(YOUNG_OBJECTS)
        self._control.setblocking(False)
        loop.add_reader(self._control, self._follow)
        self._control.send(READY)

    def _follow(self) -> None:
        command = self._control.recv(COMMAND_BYTES)
        if not command:  # the hosting process has gone
            os._exit(1)
        self._live.end()  # pages that are open shall not hold up the end
        self.config.timeout_graceful_shutdown = max(1, round(float(command)))
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept what waits in the kernel's queue and nothing else, and answer all requests."""
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        await asyncio.sleep(0)  # uvloop closes its copy after this iteration
        accepting = self._accept_rest()
        # From now on responses close their connections, so that clients send the next request elsewhere.
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        for connection in [*self.server_state.connections]:
            cycle = getattr(connection, "cycle", None)  # its present or last request
            if cycle is not None and not cycle.response_complete:
                connection.shutdown()
        loop = asyncio.get_running_loop()
        linger_end = loop.time() + LINGER_S
        while (self.server_state.connections or not accepting.done()) and loop.time() < linger_end:
            await asyncio.sleep(LINGER_POLL_S)
        accepting.cancel()  # who has not finished the handshake of TLS
        await super().shutdown()
        await self._host.close()
        loop.remove_reader(self._control)
        self._control.close()

    def _accept_rest(self) -> asyncio.Future[Any]:
        """Accept the connections that clients have opened already, and close the port."""
        accepted = []
        with socket.socket(fileno=self._listener) as listener, contextlib.suppress(BlockingIOError):
            listener.setblocking(False)
            while True:
                accepted.append(listener.accept()[0])
        loop = asyncio.get_running_loop()
        ends = []
        for each in accepted:
            each.setblocking(False)
            ends.append(loop.connect_accepted_socket(self._protocol, each, ssl=self.config.ssl))
        return asyncio.gather(*ends, return_exceptions=True)

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol
