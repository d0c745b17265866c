"""The command line ``pytriton``: its commands, in the order of the help."""

from __future__ import annotations

import gc
import importlib
from importlib.metadata import version as distribution_version
from typing import Annotated, Any

import typer
import typer.core
import typer.main

__all__ = ["app"]

GLOBAL_OPTIONS = ("--help", "--version", "--install-completion", "--show-completion")
PANELS = {
    "This machine": ["check", "env", "examples", "example-add-sub", "example-add-sub-script"],
    "Servers": [
        *("serve", "inspect", "build", "worker", "keys", "bench", "record", "replay", "weigh", "dashboard", "status")
    ],
}
# The modules of this package that have the commands, where those have other names.
MODULES = {
    "env": "check",
    "example-add-sub": "examples",
    "example-add-sub-script": "examples",
    "inspect": "saved",
    "worker": "cluster",
    "keys": "cluster",
}


class CommandGroup(typer.core.TyperGroup):
    """Imports a command's module when the command is run, or all for the help; ``check`` runs if none is named."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        names: dict[str, Any] = dict.fromkeys(name for names in PANELS.values() for name in names)
        self.commands = names

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command."""
        if not args or (args[0].startswith("-") and args[0] not in GLOBAL_OPTIONS):
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, or None."""
        panel = next((panel for panel, names in PANELS.items() if cmd_name in names), None)
        if panel is None:
            return None
        gc.disable()  # imports make many objects and hardly any garbage
        module = importlib.import_module(f"pytriton.cli.{MODULES.get(cmd_name, cmd_name)}")
        gc.enable()
        program = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode="markdown")
        program.command(cmd_name, rich_help_panel=panel)(getattr(module, cmd_name.replace("-", "_")))
        return typer.main.get_command(program)


app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False, rich_markup_mode="markdown")


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
