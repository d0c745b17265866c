"""Tables in a terminal, in a file or in a pipe."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["LiveDisplay", "wide_console"]

FILE_COLUMNS = 160


def wide_console() -> Console:
    """Standard output, as wide as the terminal; wide enough for tables in a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=FILE_COLUMNS)


class LiveDisplay:
    """Shows one renderable after another: a terminal replaces the last one, a file appends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> LiveDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, renderable: RenderableType) -> None:
        """Show a renderable in place of the last one."""
        if self._live:
            self._live.update(renderable, refresh=True)
        else:
            self._console.print(renderable)
