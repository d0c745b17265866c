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
        return self.launched is None or self.launched.is_alive()

    def announce(self, models: Iterable[TritonModelConfig], is_wanted: Callable[[], bool]) -> None:
        """Log where it is, once it accepts requests; the errors are those of :meth:`LaunchedApp.announce`."""
        if self.launched is not None:
            self.launched.announce([*models], DEFAULT_TRITON_STARTUP_TIMEOUT_S, is_wanted)

    def pids(self) -> list[int]:
        """The process ids of its processes."""
        return [] if self.launched is None else self.launched.pids()

    def drain(self, wait_passed_on: Callable[[float], object], deadline: float) -> None:
        """Have it answer the requests in progress.

        Args:
            wait_passed_on: Waits until the server's edge has no request any more that it passes on to the app.
            deadline: In :func:`time.monotonic` seconds.
        """
        if self.launched is not None:
            self.launched.end_pages()
            wait_passed_on(deadline)
            self.launched.drain(deadline - time.monotonic())

    def kill(self) -> None:
        """End its processes at once; from any thread."""
        if self.launched is not None:
            self.launched.kill()

    def close(self) -> None:
        """End its processes, and the sockets on which it listens. May be called twice."""
        if self.launched is not None:
            self.launched.close()
