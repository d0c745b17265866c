"""What commands show in a terminal: errors, with the exit status, and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from pytriton.cli.errors import InputError, ProgramError, TargetError
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonError

__all__ = ["ERRORS", "USAGE_STATUS", "LiveDisplay", "exit_on_error", "wide_console"]

FILE_COLUMNS = 160
USAGE_ERRORS = (TargetError, InputError, FileExistsError)
ERRORS = (*USAGE_ERRORS, ProgramError, PyTritonClientError, PyTritonError, OSError)
USAGE_STATUS, FAILURE_STATUS = 2, 1


@contextmanager
def exit_on_error(kinds: tuple[type[Exception], ...] = ERRORS) -> Iterator[None]:
    """Show these errors without a traceback, and exit with 2 for a usage error and 1 for any other."""
    try:
        yield
    except kinds as error:
        typer.echo(f"pytriton: {error}", err=True)
        sys.exit(USAGE_STATUS if isinstance(error, USAGE_ERRORS) else FAILURE_STATUS)


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
