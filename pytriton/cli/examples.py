"""``pytriton examples`` lists example programs; ``example-add-sub`` runs one as a self-test."""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from pytriton.cli import add_sub
from pytriton.config import ENVIRONMENT_PREFIX
from pytriton.logs import get_logger

__all__ = [
    "example_add_sub",
    "example_add_sub_script",
    "examples",
    "list_examples",
    "run_add_sub",
    "run_add_sub_script",
]

PACKAGE = Path(__file__).parents[1]
FOLDERS = (PACKAGE.parent / "examples", PACKAGE / "examples")  # of a checkout, of a wheel
COMMANDS = {
    "pytriton example-add-sub": "Serve and call a model in one process.",
    "pytriton example-add-sub-script": "The same as a script: python -m pytriton.cli.add_sub.",
}
SCRIPT_TIMEOUT_S = 180
TAIL_LINES = 20


def examples() -> None:
    """List the example programs, and where they are."""
    for line in list_examples():
        typer.echo(line)


def example_add_sub() -> None:
    """Serve a model that adds and subtracts, and call it over HTTP and gRPC, in one process."""
    with tempfile.TemporaryDirectory(prefix="pytriton-check-") as folder:
        raise typer.Exit(not run_add_sub(Path(folder)))


def example_add_sub_script() -> None:
    """Run the same test as a script: python -m pytriton.cli.add_sub."""
    with tempfile.TemporaryDirectory(prefix="pytriton-check-") as folder:
        raise typer.Exit(not run_add_sub_script(Path(folder)))


def list_examples(folders: Sequence[Path] = FOLDERS) -> Iterator[str]:
    """The lines to show; the programs are those of the first folder that has some."""
    yield "Commands:"
    yield from (f"  {command}\n      {summary}" for command, summary in COMMANDS.items())
    for folder in folders:
        programs = sorted(folder.glob("*.py"))
        if programs:
            yield f"\nPrograms in {folder}:"
            yield from (f"  python {path.name}\n      {_summary(path)}" for path in programs)
            return


def _summary(path: Path) -> str:
    description = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    return " ".join(description.partition("\n\n")[0].split())


def run_add_sub(folder: Path) -> bool:
    """Serve and call a model in this process; ``add_sub.log`` and ``server.log`` in the folder hold the logs.

    Returns:
        True if it worked.
    """
    log, server_log = folder / "add_sub.log", folder / "server.log"
    what = "add_sub in this process"
    start = time.monotonic()
    with _logging_to(log), _without_server_options():
        try:
            for protocol in add_sub.check_add_sub(server_log):
                typer.echo(f"{what}: {protocol} works")
        except Exception as error:
            with log.open("a") as file:
                traceback.print_exc(file=file)
            return _failed(f"{what} failed: {type(error).__name__}: {error}", server_log)
    typer.echo(f"{what}: passed in {time.monotonic() - start:.1f} s")
    return True


def run_add_sub_script(folder: Path) -> bool:
    """Serve and call a model in a child process, which writes ``add_sub_script.log``."""
    log = folder / "add_sub_script.log"
    what = "add_sub as a script"
    start = time.monotonic()
    with log.open("w") as file, _without_server_options():
        try:
            status = subprocess.run(
                [sys.executable, "-m", add_sub.__name__],
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=SCRIPT_TIMEOUT_S,
            ).returncode
        except subprocess.TimeoutExpired as error:
            return _failed(f"{what} failed: {error}", log)
    if status:
        return _failed(f"{what} failed with exit status {status}", log)
    typer.echo(f"{what}: passed in {time.monotonic() - start:.1f} s")
    return True


def _failed(what: str, log: Path) -> bool:
    typer.echo(what)
    if log.exists():
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        typer.echo("\n".join([f"the last lines of {log.name}:", *(f"    {line}" for line in lines)]))
    return False


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Write the package's log records to a file alone."""
    logger = get_logger("pytriton")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
        handler.close()


@contextmanager
def _without_server_options() -> Iterator[None]:
    """Hide the server options of the environment from the self-test; the report shows them."""
    taken = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith(ENVIRONMENT_PREFIX)}
    try:
        yield
    finally:
        os.environ.update(taken)
