"""The app beside a server: it starts with the server, and answers its last requests before that ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.rest.config import EdgeFiles, RestConfig
from pytriton.server.endpoints import ServerEndpoints

if TYPE_CHECKING:
    from pytriton.rest.launched_app import LaunchedApp

__all__ = ["HostedApp"]


class HostedApp:
    """The app of one object; without :meth:`launch`, its other methods do nothing.

    Args:
        on_end: Called when the app has ended by itself, for good.

    Attributes:
        launched: Its processes, once they were launched.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self.launched: LaunchedApp | None = None

    def launch(
        self, config: RestConfig, endpoints: ServerEndpoints, answer: Callable[..., Any], files: EdgeFiles | None
    ) -> None:
        """Launch its processes; the arguments are those of :class:`LaunchedApp`."""
        from pytriton.rest.launched_app import LaunchedApp

        self.launched = LaunchedApp(config, endpoints, self._on_end, answer, files)

    def is_alive(self) -> bool:
        """Whether it serves; True without an app."""
        launched = self.launched
        return launched is None or launched.is_alive()

    def announce(self, models: Iterable[TritonModelConfig], is_wanted: Callable[[], bool]) -> None:
        """Log where it is, once it accepts requests; the errors are those of :meth:`LaunchedApp.announce`."""
        launched = self.launched
        if launched is not None:
            launched.announce([*models], DEFAULT_TRITON_STARTUP_TIMEOUT_S, is_wanted)

    def pids(self) -> list[int]:
        """The process ids of its processes."""
        launched = self.launched
        return [] if launched is None else launched.pids()

    def drain(self, wait_passed_on: Callable[[float], object], deadline: float) -> None:
        """Have it answer the requests in progress.

        Args:
            wait_passed_on: Waits until the server's edge has no request any more that it passes on to the app.
            deadline: In :func:`time.monotonic` seconds.
        """
        launched = self.launched
        if launched is not None:
            launched.end_pages()
            wait_passed_on(deadline)
            launched.drain(deadline - time.monotonic())

    def kill(self) -> None:
        """End its processes at once; from any thread."""
        launched = self.launched
        if launched is not None:
            launched.kill()

    def close(self) -> None:
        """End its processes, and the sockets on which it listens. May be called twice."""
        launched, self.launched = self.launched, None  # another one may follow
        if launched is not None:
            launched.close()
