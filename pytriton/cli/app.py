"""The command line ``pytriton``: its commands, in the order of the help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from pytriton.cli.bench import bench
from pytriton.cli.check import check, distribution_version, env
from pytriton.cli.dashboard import dashboard
from pytriton.cli.examples import example_add_sub, example_add_sub_script, examples
from pytriton.cli.extras import build, keys, worker
from pytriton.cli.record import record
from pytriton.cli.replay import replay
from pytriton.cli.saved import inspect
from pytriton.cli.serve import serve
from pytriton.cli.status import status
from pytriton.cli.weigh import weigh

__all__ = ["app"]

GLOBAL_OPTIONS = ("--help", "--version", "--install-completion", "--show-completion")
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "This machine": (check, env, examples, example_add_sub, example_add_sub_script),
    "Servers": (serve, inspect, build, worker, keys, bench, record, replay, weigh, dashboard, status),
}


class DefaultCommandGroup(typer.core.TyperGroup):
    """Runs ``check`` if the command line names no command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command."""
        if not args or (args[0].startswith("-") and args[0] not in GLOBAL_OPTIONS):
            args = ["check", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=DefaultCommandGroup, pretty_exceptions_enable=False, rich_markup_mode="markdown")
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


def show_version(wanted: bool) -> None:
    """Show the version and exit."""
    if wanted:
        typer.echo(f"pytriton {distribution_version('pytriton')}")
        raise typer.Exit


@app.callback()
def pytriton_command(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """Serve Python functions with a Triton Inference Server; measure and monitor servers.

    Without a command, **pytriton check** runs.
    """
