"""What a command tells in one line, without a traceback, and the exit status that follows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonError

__all__ = ["ERRORS", "USAGE_STATUS", "InputError", "ProgramError", "TargetError", "exit_on_error"]


class TargetError(Exception):
    """The target cannot be served; the message says what to do."""


class ProgramError(Exception):
    """The module or its object raised an exception; the message is its traceback."""


class InputError(ValueError):
    """The options for inputs do not fit the model; the message says what to change."""


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
