"""What a command tells in one line, without a traceback."""

from __future__ import annotations

__all__ = ["InputError", "ProgramError", "TargetError"]


class TargetError(Exception):
    """The target cannot be served; the message says what to do."""


class ProgramError(Exception):
    """The module or its object raised an exception; the message is its traceback."""


class InputError(ValueError):
    """The options for inputs do not fit the model; the message says what to change."""
