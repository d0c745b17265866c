"""Command-line arguments of the server."""

from __future__ import annotations

from pathlib import PurePath

from pytriton.config import TritonConfig

__all__ = ["flag_value", "flags"]


def flags(config: TritonConfig) -> list[str]:
    """One argument ``--field-name=value`` for each field that is set, and for each item of a list.

    The arguments go to the process as they are, without a shell, so values may hold spaces and quotes.
    """
    arguments = []
    for name, value in config.to_dict().items():
        if value is None:
            continue
        for item in value if isinstance(value, list) else [value]:
            arguments.append(f"--{name.replace('_', '-')}={flag_value(item)}")
    return arguments


def flag_value(value: object) -> str:
    """The value as the server reads it: ``True`` or ``False``, POSIX paths, else ``str(value)``."""
    return value.as_posix() if isinstance(value, PurePath) else str(value)
