"""A page of metrics for Prometheus, beside the server's own."""

from __future__ import annotations

import socket
from socketserver import BaseRequestHandler, TCPServer, ThreadingMixIn
from typing import Any

from pytriton import forks
from pytriton.exceptions import PyTritonServerError
from pytriton.logs import get_logger
from pytriton.server.launch import local_host
from pytriton.threads import keep_running

__all__ = ["MetricsPage"]

LOGGER = get_logger("pytriton.server")

POLL_S = 0.1  # the longest wait of close()


class MetricsPage:
    """Serves a page until it is closed.

    Args:
        handler: Answers a request for it.
        port: To listen on; 0 is any free one.

    Attributes:
        port: The port.
        url: Where the page is, for this machine.

    Raises:
        PyTritonServerError: It cannot listen there.
    """

    def __init__(self, handler: type[BaseRequestHandler], address: str, port: int) -> None:
        try:
            self._server = (_Server6 if ":" in address else _Server)((address, port), handler)
        except (OSError, OverflowError) as error:
            raise PyTritonServerError(
                f"the page of metrics cannot listen on {address}:{port}: {error}; choose another address or port"
            ) from error
        self.port: int = self._server.server_address[1]
        self.url = f"http://{local_host(address)}:{self.port}/metrics"
        forks.register(self)
        self._thread = keep_running(lambda: self._server.serve_forever(POLL_S), "pytriton-metrics")

    def after_fork(self) -> None:
        """In a forked child, do not listen."""
        forks.abandon(self._server.fileno())

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False  # a slow reader of the page shall not hold up our end

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is no news; the base would print each one's traceback."""
        LOGGER.debug("the page of metrics could not be sent to %s", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6
