"""What a load measured."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
from numpy.typing import ArrayLike
from payloads import LoadError

__all__ = ["Result", "Tally", "quantiles"]


@dataclass(frozen=True)
class Result:
    """Requests answered well in the time measured, their latencies in microseconds, and errors of the whole run.

    Attributes:
        generator: What sent the requests.
        answered: Requests answered well in the whole run, warm-up included: what the server's CPU time was spent on.
    """

    generator: str
    requests: int
    answered: int
    errors: int
    requests_per_s: float
    p50_us: float
    p90_us: float
    p99_us: float


def quantiles(latencies: ArrayLike) -> list[float]:
    """The 50th, 90th and 99th percentile, each a latency that occurred."""
    return [float(value) for value in np.percentile(latencies, [50, 90, 99], method="inverted_cdf")]


class Tally:
    """Latencies of the requests that end in the ``seconds`` after the warm-up, and the number of all that failed."""

    def __init__(self, warmup_s: float, seconds: float) -> None:
        self._seconds, self._answered, self._errors, self._latencies_ns = seconds, 0, 0, array("q")
        self._begin_ns = perf_counter_ns() + int(warmup_s * 1e9)
        self._end_ns = self._begin_ns + int(seconds * 1e9)

    def add(self, sent_ns: int, good: bool) -> bool:
        """Count a request that ends now; false when the time is over."""
        now_ns = perf_counter_ns()
        if good and self._begin_ns <= now_ns < self._end_ns:
            self._latencies_ns.append(now_ns - sent_ns)
        self._answered += good
        self._errors += not good
        return now_ns < self._end_ns

    def result(self, generator: str) -> Result:
        """What was measured.

        Raises:
            LoadError: Nothing was.
        """
        count = len(self._latencies_ns)
        if not count:
            raise LoadError(f"no request was answered well in {self._seconds} s, errors: {self._errors}")
        latencies_us = [latency_ns / 1000 for latency_ns in quantiles(self._latencies_ns)]
        return Result(generator, count, self._answered, self._errors, count / self._seconds, *latencies_us)
