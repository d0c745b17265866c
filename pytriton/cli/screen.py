"""Standard output, which may be a terminal or a file."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["Screen", "wide_console"]

FILE_COLUMNS = 160


def wide_console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for tables where it is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=FILE_COLUMNS)


class Screen:
    """Shows one thing after the other: on a terminal in the same place, in a file below each other."""

    def __init__(self) -> None:
        self._console = wide_console()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, what: RenderableType) -> None:
        """Show it, instead of what was shown before."""
        if self._live:
            self._live.update(what, refresh=True)
        else:
            self._console.print(what)
