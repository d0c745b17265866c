"""The front's own metrics: requests, latencies and sizes by route and model, over all of its processes."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
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

# The last requests for a model: how many there were, and of each the end, the status and the duration.
RECENT = "recent "  # and the name of the model
MOST_RECENT, RECENT_WIDTH = 100, 3

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

    To be used by one thread. The native HTTP front end (``native/http/shared_counters.cpp``) is one of the processes:
    it counts the predictions that it answers itself, and the latencies of all its inferences.
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
        self._places: dict[tuple[str, str, int], tuple[int, int, int, int]] = {}
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
            count, place = self._own.place(_name(key)), self._own.place(_name(key[:2]), WIDTH)
            latencies = self._own.place(LATENCIES + model, len(LATENCY_BOUNDS_S) + 1)
            recent = self._own.place(RECENT + model, 1 + MOST_RECENT * RECENT_WIDTH)
            self._places[key] = count, place, latencies, recent
        count, place, latencies, recent = self._places[key]
        values = self._own.values
        values[self._in_progress] -= 1
        values[count] += 1
        values[place + bisect_left(BOUNDS_S, duration_s)] += 1
        values[place + SECONDS] += duration_s
        values[place + RECEIVED] += received_bytes
        values[place + SENT] += sent_bytes
        if model:
            values[latencies + bisect_left(LATENCY_BOUNDS_S, duration_s)] += 1
            entry = recent + 1 + int(values[recent]) % MOST_RECENT * RECENT_WIDTH
            values[entry], values[entry + 1], values[entry + 2] = time.time(), status, duration_s
            values[recent] += 1

    def latencies(self) -> dict[str, list[float]]:
        """For each model, how many requests took up to each of ``LATENCY_BOUNDS_S``, and longer than the last."""
        counted = totals(self._processes).items()
        return {name.removeprefix(LATENCIES): values for name, values in counted if name.startswith(LATENCIES)}

    def recent(self, model: str) -> list[tuple[float, int, float]]:
        """The last requests for a model that were answered, the oldest first.

        Returns:
            When they were, in seconds since 1970, the status, and the duration in seconds.
        """
        values = [value for each in self._processes for value in each.read(RECENT + model)[1:]]
        entries = zip(values[::RECENT_WIDTH], values[1::RECENT_WIDTH], values[2::RECENT_WIDTH], strict=True)
        found = sorted((end, int(status), duration_s) for end, status, duration_s in entries if end)
        return found[-MOST_RECENT:]

    def text(self) -> str:
        """All metrics, as Prometheus reads them."""
        lines: dict[str, list[str]] = {name: [] for name in HELP}
        for name, values in sorted(totals(self._processes).items()):
            if name == IN_PROGRESS:
                lines["requests_in_progress"].append(f" {_number(values[0])}")
                continue
            if name.startswith((LATENCIES, RECENT)):
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


def _name(key: Sequence[str | int]) -> str:
    return json.dumps(key, ensure_ascii=False)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
