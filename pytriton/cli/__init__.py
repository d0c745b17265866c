"""The command ``pytriton``, also ``python -m pytriton``.

The extra ``cli`` installs its libraries; the rest of the package does not need them.
"""

from __future__ import annotations

import importlib
import sys

__all__ = ["main"]

EXTRA = ("packaging", "rich", "typer", "watchfiles")


def main() -> None:
    """Run the command line of this process, and exit with its status."""
    try:
        importlib.import_module("pytriton.cli.app").app(prog_name="pytriton")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        sys.exit(f"The command line needs {missing}; install it with: pip install 'pytriton[cli]'")
