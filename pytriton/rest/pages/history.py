"""Samples of the last 15 minutes, and of the last 24 hours, in memory of a fixed size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_SERIES", "History", "Ring"]

SECOND_S, SECONDS = 1.0, 900
MINUTE_S, MINUTES = 60.0, 1440
MOST_SERIES = 160

NAN = math.nan
Row = Sequence[float]


class Ring:
    """One row of numbers for each interval of time; the oldest rows are overwritten.

    Args:
        step_s: Length of an interval in seconds.
        slots: How many intervals there are.
        width: Numbers in a row.
    """

    def __init__(self, step_s: float, slots: int, width: int) -> None:
        self._step_s = step_s
        self._rows: NDArray[np.float32] = np.full((slots, width), NAN, np.float32)
        self._last = -1  # number of the interval that was written last

    def put(self, time_s: float, row: Row) -> None:
        """Write the row of an interval.

        Args:
            time_s: Within the interval, in seconds since 1970. Times before the last interval's are ignored.
            row: The numbers; NaN where there is none.
        """
        number = int(time_s // self._step_s)
        if number < self._last:
            return
        slots = len(self._rows)
        if 0 <= self._last < number - 1:  # intervals were skipped
            self._rows[np.arange(max(self._last + 1, number - slots + 1), number) % slots] = NAN
        self._rows[number % slots] = row
        self._last = number

    def read(self, since_s: float = 0.0) -> tuple[list[int], list[list[float | None]]]:
        """The rows that have a number.

        Args:
            since_s: Seconds since 1970; earlier intervals are left out.

        Returns:
            The begin of each interval in seconds since 1970, and for each column its numbers, None for NaN.
        """
        if self._last < 0:
            return [], [[] for _ in range(self._rows.shape[1])]
        slots = len(self._rows)
        first = max(self._last - slots + 1, 0, math.ceil(since_s / self._step_s))
        numbers = np.arange(first, self._last + 1)
        rows = self._rows[numbers % slots]
        written = ~np.isnan(rows).all(axis=1)
        columns = rows[written].T.round(4).tolist()
        times = (numbers[written] * self._step_s).astype(np.int64).tolist()
        return times, [[None if value != value else value for value in column] for column in columns]


class _Series:
    """The history of one thing: by second, and by minute.

    Args:
        width: Numbers in a row.
        peaks: Columns of which a minute keeps the highest number; of others it keeps the mean.
    """

    def __init__(self, width: int, peaks: Sequence[int]) -> None:
        self.seconds = Ring(SECOND_S, SECONDS, width)
        self.minutes = Ring(MINUTE_S, MINUTES, width)
        self._peaks = [*peaks]
        self._minute = -1
        self._sums = np.zeros(width)
        self._weights = np.zeros(width)
        self._highest = np.full(width, NAN)

    def put(self, time_s: float, interval_s: float, row: Row) -> None:
        self.seconds.put(time_s, row)
        values = np.asarray(row, np.float64)
        if (minute := int(time_s // MINUTE_S)) != self._minute:
            self._minute = minute
            self._sums[:] = self._weights[:] = 0.0
            self._highest[:] = NAN
        known = ~np.isnan(values)
        self._sums[known] += values[known] * interval_s
        self._weights[known] += interval_s
        self._highest = np.fmax(self._highest, values)
        with np.errstate(invalid="ignore"):
            mean = self._sums / self._weights
        mean[self._peaks] = self._highest[self._peaks]
        self.minutes.put(time_s, mean.tolist())


class History:
    """The samples of any number of things by name, of which some have a history.

    Args:
        columns: Names of the numbers in a row.
        peaks: Those of which a minute keeps the highest.
        most: The most things that have a history; further ones take the place of those that have gone.
    """

    def __init__(self, columns: Sequence[str], peaks: Sequence[str] = (), most: int = MOST_SERIES) -> None:
        self.columns = tuple(columns)
        self._peaks = [self.columns.index(name) for name in peaks]
        self._most = most
        self._series: dict[str, _Series] = {}

    def put(self, time_s: float, interval_s: float, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Take a sample.

        Args:
            time_s: When, in seconds since 1970.
            interval_s: The seconds that it is about.
            rows: For each thing, numbers by column; None and absent ones are not known.
        """
        for name, values in rows.items():
            series = self._series.get(name)
            if series is None:
                if len(self._series) >= self._most:
                    gone = next((each for each in self._series if each not in rows), None)
                    if gone is None:
                        continue
                    del self._series[gone]
                series = self._series[name] = _Series(len(self.columns), self._peaks)
            row = [NAN if values.get(column) is None else float(values[column]) for column in self.columns]
            series.put(time_s, interval_s, row)

    def read(self, *, by_minute: bool, since_s: float = 0.0) -> dict[str, Any]:
        """All samples: of the last 24 hours by minute, or of the last 15 minutes.

        Returns:
            For each thing ``{"time": [...], column: [...]}``, with None for what is not known.
        """
        found = {}
        for name, series in self._series.items():
            times, columns = (series.minutes if by_minute else series.seconds).read(since_s)
            if times:
                found[name] = {"time": times, **dict(zip(self.columns, columns, strict=True))}
        return found
