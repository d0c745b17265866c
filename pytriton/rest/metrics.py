"""The front's own metrics: requests, latencies and sizes by route and model, over all of its processes."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate

from pytriton.rest.counters import Counters, totals

__all__ = ["LATENCY_BOUNDS_S", "FrontMetrics"]

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

# The values of one route and model: requests in each bucket and above all, then these.
SECONDS, RECEIVED, SENT = range(len(BOUNDS_S) + 1, len(BOUNDS_S) + 4)
WIDTH = SENT + 1

# Finer, for quantiles, which are wrong by a bucket, a quarter, at most.
LATENCY_BOUNDS_S = tuple(0.0001 * 1.25**index for index in range(60))
LATENCIES = "latencies "  # and the name of the model
MOST_RECENT = 100

IN_PROGRESS = "in progress"
HELP = {
    "requests_total": ("counter", "Requests that were answered, by status; 499 if the client went away before."),
    "request_duration_seconds": ("histogram", "Time from a request's headers to the end of its response."),
    "request_bytes_total": ("counter", "Bytes of the bodies of requests."),
    "response_bytes_total": ("counter", "Bytes of the bodies of responses."),
    "requests_in_progress": ("gauge", "Requests that are not answered yet."),
}


class FrontMetrics:
    """Counts the requests of this process, and tells those of all processes of a front.

    To be used by one thread.

    Attributes:
        recent: For each model the last requests that this process has answered: when, in seconds since 1970, the
            status, and the seconds since :meth:`begin`.
    """

    def __init__(self) -> None:
        self.share([None], 0)

    def share(self, files: Sequence[int | None], own: int) -> None:
        """Count in memory that other processes see, before the first request.

        Args:
            files: Descriptors of the memory of each process, see :class:`Counters`.
            own: Which of them is that of this process.
        """
        self._processes = [Counters(file) for file in files]
        self._own = self._processes[own]
        self._places: dict[tuple[str, str, int], tuple[int, int, int]] = {}
        self.recent: defaultdict[str, deque[tuple[float, int, float]]] = defaultdict(lambda: deque(maxlen=MOST_RECENT))
        self._in_progress = self._own.place(IN_PROGRESS)
        self._own.values[self._in_progress] = 0  # those of a process that died here

    def begin(self) -> None:
        """Count a request that has come."""
        self._own.values[self._in_progress] += 1

    def end(self, route: str, model: str, status: int, duration_s: float, received_bytes: int, sent_bytes: int) -> None:
        """Count a request that is answered.

        Args:
            route: Path of the route, with names in braces.
            model: That was called; empty if none was.
            status: Of the response.
            duration_s: Seconds since :meth:`begin`.
            received_bytes: Size of the request's body.
            sent_bytes: Size of the response's body.
        """
        key = (route, model, status)
        if key not in self._places:
            count, place = self._own.place(json.dumps(key)), self._own.place(json.dumps(key[:2]), WIDTH)
            latencies = self._own.place(LATENCIES + model, len(LATENCY_BOUNDS_S) + 1)
            self._places[key] = count, place, latencies
        count, place, latencies = self._places[key]
        values = self._own.values
        values[self._in_progress] -= 1
        values[count] += 1
        values[place + bisect_left(BOUNDS_S, duration_s)] += 1
        values[place + SECONDS] += duration_s
        values[place + RECEIVED] += received_bytes
        values[place + SENT] += sent_bytes
        if model:
            values[latencies + bisect_left(LATENCY_BOUNDS_S, duration_s)] += 1
            self.recent[model].append((time.time(), status, duration_s))

    def latencies(self) -> dict[str, list[float]]:
        """For each model, how many requests took up to each of ``LATENCY_BOUNDS_S``, and longer than the last."""
        counted = totals(self._processes).items()
        return {name.removeprefix(LATENCIES): values for name, values in counted if name.startswith(LATENCIES)}

    def text(self) -> str:
        """All metrics, as Prometheus reads them."""
        lines: dict[str, list[str]] = {name: [] for name in HELP}
        for name, values in sorted(totals(self._processes).items()):
            if name == IN_PROGRESS:
                lines["requests_in_progress"].append(f" {_number(values[0])}")
                continue
            if name.startswith(LATENCIES):
                continue
            route, model, *status = json.loads(name)
            labels = f"route={_quoted(route)},model={_quoted(model)}"
            if status:
                lines["requests_total"].append(f'{{{labels},status="{status[0]}"}} {_number(values[0])}')
            else:
                lines["request_duration_seconds"] += _histogram(labels, values)
                lines["request_bytes_total"].append(f"{{{labels}}} {_number(values[RECEIVED])}")
                lines["response_bytes_total"].append(f"{{{labels}}} {_number(values[SENT])}")
        return "".join(
            f"# HELP pytriton_rest_{name} {meaning}\n# TYPE pytriton_rest_{name} {kind}\n"
            + "".join(f"pytriton_rest_{name}{line}\n" for line in lines[name])
            for name, (kind, meaning) in HELP.items()
        )


def _histogram(labels: str, values: Sequence[float]) -> Iterator[str]:
    for bound, count in zip((*BOUNDS_S, "+Inf"), accumulate(values[:SECONDS]), strict=True):
        yield f'_bucket{{{labels},le="{bound}"}} {_number(count)}'
    yield f"_sum{{{labels}}} {_number(values[SECONDS])}"
    yield f"_count{{{labels}}} {_number(sum(values[:SECONDS]))}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
