"""The figures of a load test: as a table, and as JSON."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from pytriton.cli.load import Measurement

__all__ = ["Percentiles", "Summary"]

MS = 1000.0


@dataclass(frozen=True)
class Percentiles:
    """Milliseconds: the mean, the smallest, those that 50, 90 and 99 % of the requests do not exceed, the largest."""

    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: array[float]) -> Percentiles | None:
        """Of durations in seconds; None if there are none."""
        if not seconds:
            return None
        values = np.asarray(seconds) * MS
        p50, p90, p99 = np.percentile(values, [50, 90, 99])
        return cls(float(values.mean()), float(values.min()), float(p50), float(p90), float(p99), float(values.max()))


@dataclass(frozen=True)
class Summary:
    """What a load test has found.

    Args:
        answered: Requests.
        failed: Requests.
        responses: To the requests that were answered.
        rows: Of each request; 0 for a model without batching.
        elapsed_s: Seconds from the first request's start to the last one's end.
        latency_ms: From a request's start to its last response; None if none was answered.
        first_response_ms: Likewise to its first response, for decoupled models.
        errors: How many requests failed with each text.
    """

    answered: int
    failed: int
    responses: int
    rows: int
    elapsed_s: float
    latency_ms: Percentiles | None
    first_response_ms: Percentiles | None
    errors: Mapping[str, int]

    @classmethod
    def of(cls, measurement: Measurement, rows: int) -> Summary:
        """Of what was measured."""
        return cls(
            answered=len(measurement.latencies_s),
            failed=measurement.errors.total(),
            responses=measurement.responses,
            rows=rows,
            elapsed_s=measurement.elapsed_s,
            latency_ms=Percentiles.of(measurement.latencies_s),
            first_response_ms=Percentiles.of(measurement.first_s),
            errors=dict(measurement.errors.most_common()),
        )

    def per_second(self, count: int) -> float:
        """How many of them there were in a second."""
        return count / self.elapsed_s if self.elapsed_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        rates = {
            "requests_per_s": self.per_second(self.answered),
            "rows_per_s": self.per_second(self.answered * max(1, self.rows)),
            "responses_per_s": self.per_second(self.responses),
        }
        return {**asdict(self), **rates}

    def table(self) -> Table:
        """For a terminal."""
        table = Table(show_header=False, box=box.SIMPLE)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("requests answered", f"{self.answered:,}")
        table.add_row("requests failed", f"{self.failed:,}", style="red" if self.failed else "")
        table.add_row("time", f"{self.elapsed_s:.2f} s")
        table.add_row("requests per second", f"{self.per_second(self.answered):,.1f}", style="bold")
        if self.rows > 1:
            table.add_row("rows per second", f"{self.per_second(self.answered * self.rows):,.1f}")
        if self.first_response_ms:
            table.add_row("responses per second", f"{self.per_second(self.responses):,.1f}")
        self._add(table, "latency", self.latency_ms)
        self._add(table, "first response", self.first_response_ms)
        for text, count in self.errors.items():
            table.add_section()
            table.add_row(Text(text), f"{count:,}", style="red")
        return table

    def _add(self, table: Table, what: str, figures: Percentiles | None) -> None:
        if figures:
            table.add_section()
            for name, value in asdict(figures).items():
                table.add_row(f"{what}, {name}", f"{value:,.3f} ms")
