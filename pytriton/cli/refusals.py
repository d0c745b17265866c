"""Errors whose text says all that a user needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from pytriton.cli.histogram import NoMatplotlibError
from pytriton.cli.inputs import InputError
from pytriton.cli.target import ProgramError, TargetError
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonError

__all__ = ["refusals_told"]

WRONG_USES = (TargetError, InputError, NoMatplotlibError, FileExistsError)
FAILURES = (ProgramError, PyTritonClientError, PyTritonError, OSError)
WRONG_USE, FAILURE = 2, 1


@contextmanager
def refusals_told(kinds: tuple[type[Exception], ...] = (*WRONG_USES, *FAILURES)) -> Iterator[None]:
    """Show these errors without a traceback of ours, and exit with a status that tells wrong use from failure."""
    try:
        yield
    except kinds as error:
        typer.echo(f"pytriton: {error}", err=True)
        sys.exit(WRONG_USE if isinstance(error, WRONG_USES) else FAILURE)
