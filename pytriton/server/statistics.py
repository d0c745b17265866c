"""What the server has counted of its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

__all__ = ["RESTRICTED", "BatchStatistics", "Duration", "ModelStatistics", "parse_statistics"]

RESTRICTED = "is restricted"
"""In the error of the server for an API that needs the access token."""


@dataclass(frozen=True)
class Duration:
    """How often something happened, and how long it took in all.

    Attributes:
        count: Times.
        total_s: Seconds, of all times together.
    """

    count: int = 0
    total_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """Seconds of one time, on average; 0 if there was none."""
        return self.total_s / self.count if self.count else 0.0


@dataclass(frozen=True)
class BatchStatistics:
    """Calls of a model with one number of rows.

    Attributes:
        compute_input: Handing the inputs over.
        compute_infer: The call, with its way to the callable and back.
        compute_output: Taking the outputs.
    """

    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True)
class ModelStatistics:
    """What the server has counted of one version of a model since it was loaded.

    With the Python proxy, the server counts a request shortly after it has answered it, and a failure of a callable
    counts as a success: the server's Python backend does not tell them apart (``pytriton_failed_requests_total`` of
    :meth:`~pytriton.triton.Triton.serve_metrics` does).

    Attributes:
        last_inference: When a request came last, in UTC; None if none has come.
        inference_count: Rows that were inferred, without those that came from the cache.
        execution_count: Calls of the model; with batching fewer than requests.
        success: Requests, from their arrival to their answer.
        fail: Requests that the server failed.
        queue: Requests that waited for an instance.
        compute_input: Requests whose inputs were handed over.
        compute_infer: Requests at the model.
        compute_output: Requests whose outputs were taken.
        cache_hit: Requests that the cache answered; the time is that of the look-up.
        cache_miss: Requests that the cache could not answer; with the time of putting the answer there.
        batches: By number of rows in the call.
    """

    name: str
    version: int
    last_inference: datetime | None
    inference_count: int
    execution_count: int
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration
    batches: Mapping[int, BatchStatistics]


_PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
_BATCH_PHASES = ("compute_input", "compute_infer", "compute_output")


def parse_statistics(answer: Mapping[str, Any]) -> list[ModelStatistics]:
    """The server's answer, sorted by name and version.

    Args:
        answer: JSON of the statistics endpoint, of HTTP, or of gRPC with numbers as text and without zeros.
    """
    found = [_model(entry) for entry in answer.get("model_stats", ())]
    return sorted(found, key=lambda each: (each.name, each.version))


def _model(entry: Mapping[str, Any]) -> ModelStatistics:
    last_ms = int(entry.get("last_inference", 0))
    return ModelStatistics(
        name=entry["name"],
        version=int(entry["version"]),
        last_inference=datetime.fromtimestamp(last_ms / 1000, timezone.utc) if last_ms else None,
        inference_count=int(entry.get("inference_count", 0)),
        execution_count=int(entry.get("execution_count", 0)),
        batches={
            int(batch["batch_size"]): BatchStatistics(**_durations(batch, _BATCH_PHASES))
            for batch in entry.get("batch_stats", ())
        },
        **_durations(entry.get("inference_stats", {}), _PHASES),
    )


def _durations(phases: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Duration]:
    return {name: _duration(phases.get(name, {})) for name in names}


def _duration(phase: Mapping[str, Any]) -> Duration:
    return Duration(int(phase.get("count", 0)), int(phase.get("ns", 0)) / 1e9)
