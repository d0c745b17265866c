"""One sample: what the server and the app have done since the sample before."""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from pytriton.constants import LATENCY_BOUNDS_S
from pytriton.exceptions import PyTritonError
from pytriton.logs import get_logger
from pytriton.rest.host import Host
from pytriton.rest.metrics import AppMetrics
from pytriton.rest.pages.processes import ProcessSampler
from pytriton.rest.upstream import Upstream
from pytriton.server.statistics import RESTRICTED, Duration, ModelStatistics, parse_statistics

__all__ = ["MODEL_COLUMNS", "Sampler", "quantile_s"]

LOGGER = get_logger("pytriton.rest")

MODEL_COLUMNS = ("rate", "failures", "refused", "p50", "p99", "mean", "queue", "compute", "batch", "pending")
COUNTED = re.compile(
    r"^(nv_inference_pending_request_count|pytriton_batch_reason_total|pytriton_batch_seconds"
    r"|pytriton_requests_refused_total)\{(.*)\} (\S+)$",
    re.MULTILINE,
)
LABEL = re.compile(r'(\w+)="([^"]*)"')
ADVICE = "the server's statistics need its access token, which the app does not have"
MS = 1000.0
HEALTH_TIMEOUT_S = 2.0


@dataclass
class _Counted:
    """What was counted of one model so far, over all of its versions."""

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute: Duration = field(default_factory=Duration)
    rows: int = 0
    executions: int = 0
    batches: dict[int, tuple[int, float]] = field(default_factory=dict)

    def add(self, one: ModelStatistics) -> None:
        self.success, self.fail = _sum(self.success, one.success), _sum(self.fail, one.fail)
        self.queue = _sum(self.queue, one.queue)
        phases_s = sum(each.total_s for each in (one.compute_input, one.compute_infer, one.compute_output))
        self.compute = _sum(self.compute, Duration(one.compute_infer.count, phases_s))
        self.rows += one.inference_count
        self.executions += one.execution_count
        for size, batch in one.batches.items():
            phases = (batch.compute_input, batch.compute_infer, batch.compute_output)
            count, total_s = self.batches.get(size, (0, 0.0))
            self.batches[size] = count + batch.compute_infer.count, total_s + sum(each.total_s for each in phases)


@dataclass
class Queues:
    """The queues of all models, for each the sum of its versions.

    Attributes:
        pending: Requests that wait.
        reasons: Why how many batches have left; of models whose batches the native proxy makes.
        learned: Seconds that batches of so many rows take; of models with a latency target.
        refused: Requests that were refused, as their answers would have been late.
    """

    pending: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    reasons: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    learned: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def of(cls, metrics: str) -> Queues:
        """Those that the text of the server's metrics tells of."""
        queues = cls()
        for name, text, value in COUNTED.findall(metrics):
            labels = dict(LABEL.findall(text))
            model = labels.get("model", "")
            match name:
                case "pytriton_batch_reason_total":
                    queues.reasons[model][labels.get("reason", "")] += int(float(value))
                case "pytriton_batch_seconds":
                    queues.learned[model][int(labels.get("rows", 0))] = float(value)
                case "pytriton_requests_refused_total":
                    queues.refused[model] += int(float(value))
                case _:
                    queues.pending[model] += float(value)
        return queues


class Sampler:
    """Takes samples.

    Args:
        host: The process that runs the app, if it can be asked.

    Attributes:
        batches: For each model ``{rows: [executions, seconds of compute]}`` since it was loaded, in the last sample.
        queues: In the last sample.
    """

    def __init__(self, upstream: Upstream, metrics: AppMetrics, host: Host | None) -> None:
        self.batches: dict[str, dict[int, tuple[int, float]]] = {}
        self.queues = Queues()
        self._upstream = upstream
        self._metrics = metrics
        self._host = host
        self._processes = ProcessSampler()
        self._counted: dict[str, _Counted] = {}
        self._latencies: dict[str, list[float]] = {}
        self._refusals: dict[tuple[str, int], float] = metrics.refusals()
        self._at = time.monotonic()

    async def take(self) -> dict[str, Any]:
        """A sample, as JSON; its figures are since the sample before.

        Returns:
            ``time`` in seconds since 1970, ``interval`` in seconds, ``live``, ``ready``, ``problem``, ``models``,
            ``processes``, and ``refused``: requests per second by status. Times of a model are in milliseconds; None
            where there was no request.
        """
        live = await _in_time(self._upstream.is_live())
        index: Iterable[Mapping[str, Any]] = ()
        statistics: list[ModelStatistics] = []
        queues = Queues()
        problem = ""
        if live:
            try:
                index = await self._upstream.index()
                statistics = parse_statistics(await self._upstream.statistics())
                queues = self.queues = Queues.of(await self._upstream.metrics())
            except (PyTritonError, OSError, TimeoutError) as error:
                problem = ADVICE if RESTRICTED in str(error) else str(error)
        now = time.monotonic()
        interval_s, self._at = max(now - self._at, 0.001), now
        refusals = self._refused(interval_s)
        by_status: dict[str, float] = defaultdict(float)
        for (_, status), rate in sorted(refusals.items()):
            by_status[str(status)] += rate
        return {
            "time": time.time(),
            "interval": interval_s,
            "live": live,
            "ready": live and await _in_time(self._upstream.is_ready()),
            "problem": problem,
            "refused": by_status,
            "models": self._models(index, statistics, queues.pending, interval_s, refusals),
            "processes": self._processes.sample(await self._process_list()),
        }

    def recent(self, model: str) -> list[dict[str, Any]]:
        """The last requests that were answered, the oldest first; durations in ms."""
        found = self._metrics.recent(model)
        return [{"end": end, "status": status, "duration": duration_s * MS} for end, status, duration_s in found]

    async def _process_list(self) -> list[dict[str, Any]]:
        if self._host is None:
            return []
        try:
            found: list[dict[str, Any]] = await self._host.ask("processes")
        except PyTritonError as error:
            LOGGER.debug("the hosting process does not answer: %s", error)
            return []
        return found

    def _models(
        self,
        index: Iterable[Mapping[str, Any]],
        statistics: Sequence[ModelStatistics],
        pending: Mapping[str, float],
        interval_s: float,
        refusals: Mapping[tuple[str, int], float],
    ) -> dict[str, Any]:
        versions: dict[str, list[dict[str, str]]] = defaultdict(list)
        for entry in index:
            known = {name: str(entry.get(name) or "") for name in ("version", "state", "reason")}
            versions[entry["name"]].append(known)
        counted: dict[str, _Counted] = defaultdict(_Counted)
        for each in statistics:
            counted[each.name].add(each)
        self.batches = {name: each.batches for name, each in counted.items()}
        latencies = self._metrics.latencies()
        found = {}
        for name in sorted(versions.keys() | counted.keys()):
            before, after = self._counted.get(name, _Counted()), counted[name]
            if name not in self._counted or after.success.count < before.success.count:
                before = after if name not in self._counted else _Counted()  # it was loaded again
            figures = _difference(before, after, interval_s)
            requests = _since(self._latencies.get(name), latencies.get(name, ()))
            found[name] = {
                "versions": versions.get(name, []),
                **figures,
                "refused": sum(rate for (model, _), rate in refusals.items() if model == name),
                "p50": _ms(quantile_s(requests, 0.5)),
                "p99": _ms(quantile_s(requests, 0.99)),
                "pending": pending.get(name),
                "total": after.success.count,
                "failed": after.fail.count,
            }
        self._counted, self._latencies = dict(counted), latencies
        return found

    def _refused(self, interval_s: float) -> dict[tuple[str, int], float]:
        """Requests per second that were refused since the sample before, by model and status."""
        before, self._refusals = self._refusals, self._metrics.refusals()
        rates = {key: (count - before.get(key, 0.0)) / interval_s for key, count in self._refusals.items()}
        return {key: rate for key, rate in rates.items() if rate > 0}


async def _in_time(answer: Coroutine[Any, Any, bool]) -> bool:
    """An answer; false if it takes too long, as that of a server that hangs."""
    try:
        return await asyncio.wait_for(answer, HEALTH_TIMEOUT_S)
    except asyncio.TimeoutError:
        return False


def quantile_s(counts: Sequence[float], share: float) -> float | None:
    """A quantile of latencies, interpolated within its bucket; None if there are none.

    Args:
        counts: How many took up to each of ``LATENCY_BOUNDS_S``, without those of the bounds before, and longer.
        share: From 0 to 1.
    """
    sums = [*accumulate(counts)]
    if not sums or not sums[-1]:
        return None
    index = bisect_left(sums, share * sums[-1])
    low = LATENCY_BOUNDS_S[index - 1] if index else 0.0
    if index >= len(LATENCY_BOUNDS_S):
        return low
    earlier = sums[index - 1] if index else 0.0
    return low + (LATENCY_BOUNDS_S[index] - low) * (share * sums[-1] - earlier) / max(counts[index], 1.0)


def _difference(before: _Counted, after: _Counted, interval_s: float) -> dict[str, float | None]:
    success, fail = after.success.count - before.success.count, after.fail.count - before.fail.count
    executions = after.executions - before.executions
    return {
        "rate": (success + fail) / interval_s,
        "failures": fail / interval_s,
        "mean": _mean_ms(before.success, after.success),
        "queue": _mean_ms(before.queue, after.queue),
        "compute": _mean_ms(before.compute, after.compute),
        "batch": (after.rows - before.rows) / executions if executions > 0 else None,
    }


def _mean_ms(before: Duration, after: Duration) -> float | None:
    count = after.count - before.count
    return (after.total_s - before.total_s) / count * MS if count > 0 else None


def _since(before: Sequence[float] | None, after: Sequence[float]) -> list[float]:
    return [*after] if before is None else [max(0.0, b - a) for a, b in zip(before, after, strict=False)]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MS


def _sum(one: Duration, other: Duration) -> Duration:
    return Duration(one.count + other.count, one.total_s + other.total_s)
