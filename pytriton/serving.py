"""Serving in the foreground: until a signal, or the end of what is served, with systemd and a terminal told of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from pytriton.binding import ModelRegistry
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.lifecycle import Lifecycle
from pytriton.logs import get_logger
from pytriton.operations import Console, show_start
from pytriton.rest.hosted import HostedApp
from pytriton.server.model_server import ModelServer
from pytriton.signals import ending_signals
from pytriton.systemd import ServiceManager

__all__ = ["Serving"]

LOGGER = get_logger("pytriton.triton")


class Serving:
    """What serves models, and what a signal ends.

    Args:
        server: The server, if there is one by now; another one after a restart.
        console: What the app's pages ask, if there are any by now.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        models: ModelRegistry,
        app: HostedApp,
        server: Callable[[], ModelServer | None],
        console: Callable[[], Console | None],
    ) -> None:
        self._lifecycle, self._models, self._app = lifecycle, models, app
        self._server, self._console = server, console

    def serve(
        self, begin: Callable[[], object], is_alive: Callable[[], bool], stop: Callable[[], object], period_s: float
    ) -> None:
        """Begin, wait for the end, and stop; the main thread handles SIGINT and SIGTERM meanwhile.

        Args:
            begin: Starts the server and what is beside it.
            is_alive: Whether all is served; checked every ``period_s`` seconds, or as often as systemd wants to hear.
        """
        manager, wake = ServiceManager(), self._lifecycle.wake
        if manager.watchdog_s is not None:
            period_s = min(period_s, manager.watchdog_s / 3)
        with ending_signals(self.on_signal, self.on_second_signal):
            try:
                begin()
            except PyTritonInvalidOperationError:
                if not wake.is_set():  # by a signal, before the server was ready
                    raise
            if not wake.is_set():
                self._show_start()
                manager.ready(f"Serving {', '.join(sorted(self._models.names(loaded=True))) or 'no models'}")
            while not wake.wait(period_s) and is_alive():
                server = self._server()
                if manager.watchdog_s is not None and server is not None and server.is_responding(period_s):
                    manager.alive()
            server = self._server()
            manager.stopping(server.exit_timeout_s if server is not None else 0.0)
            stop()

    def _show_start(self) -> None:
        app, console = self._app.launched, self._console()
        show_start([model.config for model in self._models], self._server(), app)
        if console is not None and app is not None and app.takes_codes:
            console.offer_code(app.url)

    def on_signal(self, number: signal.Signals) -> None:
        """Have :meth:`serve` stop."""
        LOGGER.info("%s received, exiting.", number.name)
        _start(self._end)

    def on_second_signal(self) -> None:
        """End the requests in flight, for which :meth:`serve` waits."""
        _start(self._end_requests)

    def _end(self) -> None:
        self._lifecycle.wake.set()
        self._models.interrupt()

    def _end_requests(self) -> None:
        self._app.kill()
        if (server := self._server()) is not None:
            server.kill()
        self._models.disconnect()


def _start(target: Callable[[], None]) -> None:
    """From a handler of a signal, which may have interrupted the main thread while it held a lock, of an event, too."""
    threading.Thread(target=target, name="pytriton-signal").start()
