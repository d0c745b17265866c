"""The app's own metrics: requests, latencies and sizes by route and model, over all of its processes."""

from __future__ import annotations

import json
import mmap
import struct
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from pytriton.constants import HISTOGRAM_BOUNDS_S, LATENCY_BOUNDS_S

__all__ = ["CLIENT_WENT_AWAY", "MEMORY_BYTES", "AppMetrics", "Counters", "totals"]

MEMORY_BYTES = 2 << 20  # pages that were never written take none
VALUES = 1 << 17
SCRATCH = 512  # where values are counted for which there is no room any more
USED = struct.Struct("=Q")
NAME = struct.Struct("=HH")
NAMES_AT = USED.size + 8 * VALUES


class Counters:
    """Counters in memory that processes share: each writes its own, on one thread, and reads those of all.

    The memory is a file without a name (``memfd_create``) per process, which outlives the process: the one that takes
    its place counts on. It holds:

    =============  =====================================================================================
    8 bytes        length in bytes of the names that follow the values
    8 bytes each   the values, of :data:`VALUES` of them; the last :data:`SCRATCH` belong to no name
    the rest       for each name: its length and its number of values, 2 bytes each, and the name in UTF-8
    =============  =====================================================================================

    Args:
        file: Descriptor of the memory, which this maps and does not close; None makes memory of this process alone.

    Attributes:
        values: All values, to be added to at the places that :meth:`place` gives.
    """

    def __init__(self, file: int | None = None) -> None:
        self._memory = mmap.mmap(-1 if file is None else file, MEMORY_BYTES)
        self.values = memoryview(self._memory)[USED.size : NAMES_AT].cast("d")
        self._places = {name: place for name, place, _ in self}
        self._next = max((place + width for _, place, width in self), default=0)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Each name, the place of its first value, and the number of its values."""
        (used,) = USED.unpack_from(self._memory)
        offset = place = 0
        while offset < used:
            length, width = NAME.unpack_from(self._memory, NAMES_AT + offset)
            start = NAMES_AT + offset + NAME.size
            yield self._memory[start : start + length].decode(), place, width
            offset, place = offset + NAME.size + length, place + width

    def read(self, name: str) -> list[float]:
        """The values of a name; none if it has none."""
        return next(([*self.values[place : place + width]] for each, place, width in self if each == name), [])

    def place(self, name: str, width: int = 1) -> int:
        """Where a name's values begin; they are 0 at first.

        Args:
            width: How many they are, at most ``SCRATCH``.
        """
        if name not in self._places:
            self._places[name] = self._add(name.encode(), width)
        return self._places[name]

    def _add(self, name: bytes, width: int) -> int:
        (used,) = USED.unpack_from(self._memory)
        record = NAME.pack(len(name), width) + name
        start = NAMES_AT + used
        if start + len(record) > MEMORY_BYTES or self._next + width > VALUES - SCRATCH:
            return VALUES - SCRATCH
        self._memory[start : start + len(record)] = record
        USED.pack_into(self._memory, 0, used + len(record))  # from now on, other processes see it
        place, self._next = self._next, self._next + width
        return place


def totals(processes: Sequence[Counters]) -> dict[str, list[float]]:
    """The values of each name, added over all processes."""
    result: dict[str, list[float]] = {}
    for counters in processes:
        for name, place, width in counters:
            values: list[float] = [*counters.values[place : place + width]]
            before = result.get(name)
            result[name] = values if before is None else [a + b for a, b in zip(before, values, strict=True)]
    return result


# The values of one route and model: requests in each bucket and above all, then these.
SECONDS, RECEIVED, SENT = range(len(HISTOGRAM_BOUNDS_S) + 1, len(HISTOGRAM_BOUNDS_S) + 4)
WIDTH = SENT + 1

LATENCIES = "latencies "  # and the name of the model

# The last requests for a model: how many there were, and of each the end, the status and the duration.
RECENT = "recent "  # and the name of the model
MOST_RECENT, RECENT_WIDTH = 100, 3

REFUSED = "refused "  # and the status, of requests over /v2 and gRPC
IN_PROGRESS = "in progress"
CLIENT_WENT_AWAY = 499
HELP = {
    "requests_total": ("counter", "Requests that were answered, by status; 499 if the client went away before."),
    "request_duration_seconds": ("histogram", "Time from a request's headers to the end of its response."),
    "request_bytes_total": ("counter", "Bytes of the bodies of requests."),
    "response_bytes_total": ("counter", "Bytes of the bodies of responses."),
    "requests_in_progress": ("gauge", "Requests that are not answered yet."),
}


class AppMetrics:
    """Counts the requests of this process, and tells those of all processes of an app.

    To be used by one thread. The edge (``native/edge/shared_counters.cpp``) is one of the processes:
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
        values[place + bisect_left(HISTOGRAM_BOUNDS_S, duration_s)] += 1
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

    def refusals(self) -> dict[tuple[str, int], float]:
        """How many requests were refused, by the model (empty for none) and a status from 400 to 498.

        Those of the pages themselves are left out: they ask again and again.
        """
        found: dict[tuple[str, int], float] = {}
        for name, values in totals(self._processes).items():
            if name.startswith(REFUSED):
                route, model, status = "", "", [int(name.removeprefix(REFUSED))]
            elif name.startswith("["):
                route, model, *status = json.loads(name)
            else:
                continue
            if status and 400 <= status[0] < CLIENT_WENT_AWAY and not route.startswith("/pages"):
                key = model, status[0]
                found[key] = found.get(key, 0.0) + values[0]
        return found

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
            if name.startswith((LATENCIES, RECENT, REFUSED)):
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
    for bound, count in zip((*HISTOGRAM_BOUNDS_S, "+Inf"), accumulate(values[:SECONDS]), strict=True):
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
