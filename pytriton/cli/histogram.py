"""A picture of how long requests took."""

from __future__ import annotations

import importlib
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from pytriton.cli.summary import MS, Percentiles

__all__ = ["Canvas", "NoMatplotlibError", "load_matplotlib"]

BINS = 60
INCHES = (9, 5)
DPI = 150
LINES = {"p50": "tab:green", "p90": "tab:orange", "p99": "tab:red"}
SPREAD = 10
"""From this ratio of the longest time to the shortest on, the axis is logarithmic."""


class NoMatplotlibError(ImportError):
    """A picture is to be drawn, and matplotlib is not installed; the message says how to."""


def load_matplotlib() -> Any:
    """The module ``matplotlib.figure``, which draws without a display.

    Raises:
        NoMatplotlibError: It is not installed.
    """
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise NoMatplotlibError("a plot needs matplotlib; install it with: pip install 'pytriton[cli]'") from error


class Canvas:
    """Draws histograms.

    Raises:
        NoMatplotlibError: It is not installed.
    """

    def __init__(self) -> None:
        self._lib = load_matplotlib()
        self._ticker = importlib.import_module("matplotlib.ticker")

    def draw(self, latencies_s: array[float], title: str, path: Path) -> None:
        """Write a histogram as a picture.

        Args:
            latencies_s: Seconds of each request; at least one.
            title: Of the picture.
            path: PNG, whatever its suffix.

        Raises:
            OSError: It cannot be written.
        """
        milliseconds = np.asarray(latencies_s) * MS
        figure = self._lib.Figure(figsize=INCHES, dpi=DPI, layout="constrained")
        axes = figure.subplots()
        logarithmic = bool(milliseconds.max() > SPREAD * milliseconds.min())
        axes.hist(milliseconds, bins=_edges(milliseconds, logarithmic), color="tab:blue", alpha=0.75)
        figures = Percentiles.of(latencies_s)
        for name, color in LINES.items():
            value = getattr(figures, name)
            axes.axvline(value, color=color, linewidth=1.5, label=f"{name} = {value:.3g} ms")
        axes.set_title(title, fontsize="medium", loc="left")
        axes.set_xlabel("latency (ms)" + ", logarithmic" * logarithmic)
        axes.set_ylabel("requests")
        axes.yaxis.set_major_locator(self._ticker.MaxNLocator(integer=True))
        axes.grid(axis="y", alpha=0.3)
        axes.legend(title=f"{len(latencies_s):,} requests")
        if logarithmic:
            self._label_logarithmic(axes)
        figure.savefig(path, format="png")

    def _label_logarithmic(self, axes: Any) -> None:
        """Plain numbers at 1, 2 and 5 of each decade, instead of powers of ten at each decade alone."""
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(self._ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(self._ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(self._ticker.NullFormatter())


def _edges(values: np.ndarray[Any, np.dtype[np.float64]], logarithmic: bool) -> Any:
    low, high = values.min(), values.max()
    if logarithmic:
        return np.geomspace(low, high, BINS + 1)
    margin = 0.0 if high > low else max(0.01 * high, 1e-6)
    return np.linspace(low - margin, high + margin, BINS + 1)
