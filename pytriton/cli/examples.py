"""``pytriton examples``: which example programs there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["COMMANDS", "find_examples", "listing"]

FOLDER = Path(__file__).parents[2] / "examples"
COMMANDS = {
    "pytriton example-add-sub": "Serve and call a model in one process.",
    "pytriton example-add-sub-script": "The same as a script: python -m pytriton.cli.add_sub.",
}


def find_examples(folder: Path = FOLDER) -> dict[Path, str]:
    """The programs of a checkout, each with the first sentence of its description; none in an installed package."""
    return {path: _summary(path) for path in sorted(folder.glob("*.py"))}


def listing(folder: Path = FOLDER) -> Iterator[str]:
    """The lines to show."""
    yield "Commands:"
    yield from (f"  {command}\n      {what}" for command, what in COMMANDS.items())
    found = find_examples(folder)
    if found:
        yield f"\nPrograms in {folder}, which the README describes:"
        yield from (f"  python {path.name}\n      {summary}" for path, summary in found.items())
    else:
        yield "\nMore programs are in the folder examples of the source; the installed package is without them."


def _summary(path: Path) -> str:
    description = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    return " ".join(description.partition("\n\n")[0].split())
