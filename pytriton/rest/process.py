"""The program of an app's process: serves the application over HTTP until the hosting process ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pickle
import socket
import sys
from collections.abc import Iterator
from typing import IO, Any

import uvicorn

from pytriton.logs import get_logger
from pytriton.pool.pipes import MessagePipe, log_through, run_child
from pytriton.pool.process import ALIVE_PERIOD_S
from pytriton.rest.app import create_app
from pytriton.rest.config import AppSpec
from pytriton.rest.host import Channel
from pytriton.rest.middleware import ACCESS_LOGGER
from pytriton.rest.protocol import AppProtocol
from pytriton.wire.control import ALIVE, DRAIN, READY

__all__ = ["main"]

KEEP_ALIVE_S = 75  # longer than the idle time after which most clients and proxies close connections themselves
YOUNG_OBJECTS = 20_000  # after which garbage is collected; a request under way has some hundreds
LINGER_S = 0.5  # for which connections that were idle before the drain may send another request
LINGER_POLL_S = 0.02


def main(spec: int, pipe: int, parent: int, *descriptors: int) -> None:
    """Serve until the end. Arguments: those of :func:`pytriton.pool.pipes.run_child`."""
    run_child(_serve, spec, pipe, parent, descriptors)


def _serve(file: IO[bytes], pipe: MessagePipe) -> None:
    spec: AppSpec = pickle.load(file)
    _log(spec, pipe)
    AppServer(spec, pipe).run([socket.socket(fileno=spec.listener)])


def _log(spec: AppSpec, pipe: MessagePipe) -> None:
    """Log where the hosting process does; requests to standard output."""
    log_through(pipe, spec.log_levels)
    for name in ("uvicorn", "python_multipart", "mcp"):  # whose lines about requests could fill the log
        logging.getLogger(name).setLevel(logging.ERROR)
    if spec.config.access_log:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        requests = get_logger(ACCESS_LOGGER)
        requests.addHandler(handler)
        requests.setLevel(logging.INFO)
        requests.propagate = False


class AppServer(uvicorn.Server):
    """Serves the application, follows the hosting process, and drains without losing a request.

    Args:
        spec: What to serve.
        pipe: To the hosting process. Its end ends this process at once.
    """

    def __init__(self, spec: AppSpec, pipe: MessagePipe) -> None:
        self._host = Channel(socket.socket(fileno=spec.host))
        app = create_app(spec.endpoints, spec.config, self._host)
        app.state.metrics.share(spec.counters, spec.index)
        app.state.keys.share(spec.limits, spec.config.processes, spec.index)
        config = spec.config
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=AppProtocol,
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
        self._pipe = pipe
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
        loop.add_reader(self._pipe.fileno(), self._follow)
        self._pipe.send(READY)
        self._tell_alive()

    def _tell_alive(self) -> None:
        self._pipe.send(ALIVE)
        asyncio.get_running_loop().call_later(ALIVE_PERIOD_S / 2, self._tell_alive)

    def _follow(self) -> None:
        command = self._pipe.receive()
        if command is None:  # the hosting process has gone
            os._exit(1)
        self._live.end()  # pages that are open shall not hold up the end
        if command[0] == DRAIN:
            self.config.timeout_graceful_shutdown = max(1, round(command[1]))
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
        loop.remove_reader(self._pipe.fileno())

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
