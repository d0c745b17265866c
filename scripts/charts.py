"""Line charts as SVG, for the documents: readable on light and on dark pages, without a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path

__all__ = ["Panel", "write_chart"]

WIDTH, HEIGHT = 400, 368  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 34, 102
COLOURS = ("#3b82c4", "#d9791a", "#2f9e6e", "#9a63c9", "#c4504f")
STYLE = """
  .page { fill: #ffffff } .grid { stroke: #e3e5e8 } text { fill: #30343a; font: 12px system-ui, sans-serif }
  @media (prefers-color-scheme: dark) {
    .page { fill: #1f2229 } .grid { stroke: #3a3f49 } text { fill: #d8dbe0 }
  }
"""


@dataclass(frozen=True)
class Panel:
    """A chart with a logarithmic vertical axis.

    Attributes:
        title: Above it.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        lines: Points (x, y) by the name of their line; y is positive, and points above ``top`` are left out.
        top: The end of the vertical axis.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    top: float = float("inf")


def write_chart(file: Path, description: str, panels: Sequence[Panel]) -> None:
    """Write panels side by side."""
    width = WIDTH * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}">',
        f"<title>{escape(description)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{HEIGHT}" rx="6"/>',
    ]
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate({number * WIDTH} 0)">', *_panel(panel), "</g>"]
    file.write_text("\n".join([*parts, "</svg>", ""]))


def _panel(panel: Panel) -> list[str]:
    shown = {name: [point for point in line if point[1] <= panel.top] for name, line in panel.lines.items()}
    points = [point for line in shown.values() for point in line]
    step = _step(max(x for x, _ in points) - min(x for x, _ in points))
    low, high = (turn(end(x for x, _ in points) / step) * step for turn, end in ((floor, min), (ceil, max)))
    ticks = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    bottom = max(tick for tick in ticks if tick <= min(y for _, y in points))
    top = min(tick for tick in ticks if tick >= max(y for _, y in points))

    def across(x: float) -> float:
        return LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - log10(y / bottom) / log10(top / bottom) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="20" font-weight="bold">{escape(panel.title)}</text>']
    for y in (tick for tick in ticks if bottom <= tick <= top):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(y):.1f}" y2="{up(y):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{up(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in (low + number * step for number in range(round((high - low) / step) + 1)):
        parts.append(f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - BOTTOM + 34}" text-anchor="end">{escape(panel.x)}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="20" text-anchor="end">{escape(panel.y)}</text>')
    drawn = [*enumerate(zip(shown.items(), COLOURS, strict=False))]
    for number, ((name, line), colour) in reversed(drawn):  # where lines are equal, the first is seen
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="2.6" fill="{colour}"/>' for x, y in line]
        key_x, key_y = LEFT + 10 + number % 2 * 165, HEIGHT - 48 + number // 2 * 18
        parts.append(f'<path d="M{key_x} {key_y}h22" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{key_x + 28}" y="{key_y + 4}">{escape(name)}</text>')
    return parts


def _step(extent: float) -> float:
    """A round distance of about six ticks."""
    power = 10.0 ** floor(log10(extent / 6))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power * 6 >= extent)
