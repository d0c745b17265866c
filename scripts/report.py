"""Statistics over the rounds, and their table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rounds import Round

__all__ = ["Row", "Spread", "align", "compare", "number", "ratio", "rounds_table", "spread"]


@dataclass(frozen=True)
class Spread:
    """A measure over the rounds."""

    median: float
    minimum: float
    maximum: float

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return number(self.median)
        return f"{number(self.median)} ({number(self.minimum)}-{number(self.maximum)})"


@dataclass(frozen=True)
class Row:
    """One measure: its spread by system, and the ratios of ours to the others."""

    group: str
    measure: str
    spreads: dict[str, Spread]
    ratios: dict[str, Spread]


def spread(values: Sequence[float]) -> Spread:
    """Median, least and greatest of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def ratio(ours: dict[int, float], theirs: dict[int, float]) -> Spread | None:
    """Our median over theirs, with the least and the greatest ratio within a round; None where that is undefined.

    Args:
        ours: Values by the number of their round.
        theirs: Likewise.
    """
    within = [ours[number] / theirs[number] for number in ours.keys() & theirs.keys() if theirs[number]]
    divisor = statistics.median(theirs.values()) if theirs else 0
    if not within or not divisor:
        return None
    return Spread(statistics.median(ours.values()) / divisor, min(within), max(within))


def compare(rounds: Sequence[Round]) -> list[Row]:
    """A row for each measure; groups, measures and systems are in the order in which they first occur."""
    systems = list(dict.fromkeys(each.system for each in rounds))
    found: dict[str, dict[str, dict[str, dict[int, float]]]] = {}  # by group, measure, system and round
    for each in rounds:
        for group, measures in each.values.items():
            for measure, value in measures.items():
                by_system = found.setdefault(group, {}).setdefault(measure, {name: {} for name in systems})
                by_system[each.system][each.number] = value
    rows = []
    for group, by_measure in found.items():
        for measure, values in by_measure.items():
            ratios = {f"ours/{name}": ratio(values.get("ours", {}), values[name]) for name in systems if name != "ours"}
            spreads = {name: spread(list(each.values())) for name, each in values.items() if each}
            rows.append(Row(group, measure, spreads, {name: each for name, each in ratios.items() if each}))
    return rows


def rounds_table(rows: Sequence[Row]) -> str:
    """The rows as text: a line each below the name of their group, a column for each system and ratio."""
    systems = list(dict.fromkeys(name for row in rows for name in row.spreads))
    ratios = list(dict.fromkeys(name for row in rows for name in row.ratios))
    if not rows:
        return "nothing could be measured"
    lines: list[list[str]] = [["", *systems, *ratios]]
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append([group])
        cells = [*(row.spreads.get(name, "-") for name in systems), *(row.ratios.get(name, "-") for name in ratios)]
        lines.append([f"  {row.measure}", *map(str, cells)])
    return align(lines)


def align(lines: Iterable[Sequence[str]]) -> str:
    """Text in columns: the first to the left, the others to the right; a line of one cell is a heading."""
    lines = list(lines)
    widths = [max(map(len, column)) for column in zip(*(line for line in lines if len(line) > 1), strict=True)]
    text = []
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=False)]
        text.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(text)


def number(value: float) -> str:
    """About three digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
