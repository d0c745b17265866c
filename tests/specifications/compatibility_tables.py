"""The specifications in tests/specifications, name by name, and the tables of docs/api_compatibility.md.

python tests/specifications/compatibility_tables.py            checks that the tables are up to date
python tests/specifications/compatibility_tables.py --write    writes them

A specification is a stub file. A text at its top level names the module of what follows. A docstring, or a text after a
field, that begins with "differs: " or "cannot: " says how a name is different here, or why it cannot be here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "specifications"
DOCUMENT = ROOT / "docs" / "api_compatibility.md"
BEGIN, END = (
    "<!-- The tables are written by tests/specifications/compatibility_tables.py. -->\n",
    "<!-- End of the tables. -->\n",
)
FAMILIES = {
    "nvidia_pytriton": "nvidia-pytriton",
    "inprocess": "The in-process API (`tritonserver`)",
    "tritonclient": "tritonclient",
    "tensorrtserver": "TensorRT Inference Server 1.8 to 1.15 (`tensorrtserver.api`)",
}
STATES = ("works", "differs", "cannot")


@dataclass(frozen=True)
class Entry:
    """One public name.

    Attributes:
        module: The module that has it here.
        name: With its classes: ``Server.start``.
        node: How the stub file declares it.
        state: One of STATES.
        reason: How it differs, or why it cannot be; empty if it works.
    """

    module: str
    name: str
    node: ast.stmt
    state: str = "works"
    reason: str = ""

    @property
    def leaf(self) -> str:
        """The name without its classes."""
        return self.name.rpartition(".")[2]

    @property
    def is_special(self) -> bool:
        """Whether it is a method that the language calls."""
        return isinstance(self.node, ast.FunctionDef) and self.leaf.startswith("__")


def entries(family: str) -> list[Entry]:
    """All names of one specification, in its order."""
    tree = ast.parse((FOLDER / f"{family}.pyi").read_text(encoding="utf-8"))
    found, module = [], ""
    for node, following in zip_longest(tree.body, tree.body[1:]):
        if (text := _text(node)) and not _state(text):
            module = text
        found += _entries(module, "", node, following)
    return found


def _entries(module: str, prefix: str, node: ast.stmt, following: ast.stmt | None) -> Iterator[Entry]:
    """The names that a statement declares. A text after a field is about the field."""
    match node:
        case ast.ClassDef(name=name):
            yield Entry(module, prefix + name, node, *_state(_text(node.body[0])))
            for member, after in zip_longest(node.body, node.body[1:]):
                yield from _entries(module, f"{prefix}{name}.", member, after)
        case ast.FunctionDef(name=name):
            yield Entry(module, prefix + name, node, *_state(_text(node.body[0])))
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield Entry(module, prefix + name, node, *_state(_text(following)))


def _text(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def _state(text: str) -> tuple[str, ...]:
    """The state and the reason that a text tells of; nothing if it tells of none."""
    state, _, reason = text.partition(": ")
    return (state, reason) if state in STATES else ()


def tables() -> str:
    """The tables of all specifications, in Markdown."""
    return "\n".join(_table(family, title, entries(family)) for family, title in FAMILIES.items())


def _table(family: str, title: str, found: list[Entry]) -> str:
    numbers = ", ".join(
        f"{count} {words}"
        for state, words in zip(STATES, ("work", "work differently", "cannot work"), strict=True)
        if (count := sum(entry.state == state for entry in found))
    )
    names = f"{len(found)} [names](../tests/specifications/{family}.pyi)"
    lines = [f"## {title}", "", f"Of {names}, {numbers}.", ""]
    others = [entry for entry in found if entry.state != "works"]
    if others:
        lines += ["| name | here |", "|---|---|"]
        rows: dict[tuple[str, ...], list[str]] = {}
        for (module, reason), group in groupby(others, lambda entry: (entry.module, _reason(entry))):
            first, *more = _names([*group])
            rows.setdefault((reason, first, *more), []).append(f"`{module}.{first}`")
        lines += [
            f"| {', '.join([*named, *(f'`{name}`' for name in more)])} | {reason} |"
            for (reason, _, *more), named in rows.items()
        ]
    return "\n".join(lines) + "\n"


def _names(found: list[Entry]) -> list[str]:
    """Names of one module; those of the first one's class without the class."""
    first, *others = (entry.name.removesuffix(".__init__") for entry in found)
    owner = first.rpartition(".")[0] + "."
    return [first, *(name.removeprefix(owner) for name in others)]


def _reason(entry: Entry) -> str:
    return entry.reason if entry.state == "differs" else f"cannot work: {entry.reason}"


def updated(document: str) -> str:
    """The document with the present tables."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{DOCUMENT} has no part between {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main() -> int:
    """Write the tables, or say whether they have to be."""
    document = DOCUMENT.read_text(encoding="utf-8")
    wanted = updated(document)
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif document != wanted:
        print(f"{DOCUMENT.relative_to(ROOT)} is out of date: run python {Path(__file__).relative_to(ROOT)} --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
