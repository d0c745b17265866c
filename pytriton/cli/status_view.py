"""A server's status, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pytriton.cli.server_status import ModelStatus, ServerStatus
from pytriton.server.statistics import Duration

__all__ = ["age", "view"]

MS = 1000.0
STYLES = {"READY": "green", "LOADING": "yellow", "UNLOADING": "yellow", "UNAVAILABLE": "red"}
COLUMNS = ("queue", "model", "request")
UNKNOWN = "-"


def view(status: ServerStatus, now: datetime | None = None) -> RenderableType:
    """All of a status.

    Args:
        status: The status.
        now: What the times of the last inferences are told from.
    """
    parts: list[RenderableType] = [_heading(status)]
    if status.models:
        parts.append(_table(status.models, now or datetime.now(timezone.utc)))
    elif status.models is not None:
        parts.append(Text("It has no models."))
    parts += [Text(note, style="yellow") for note in dict.fromkeys(status.notes)]
    return Group(*parts)


def age(moment: datetime, now: datetime) -> str:
    """How long ago something was, in the largest fitting unit."""
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def _heading(status: ServerStatus) -> Text:
    heading = Text(f"{status.url}: ")
    heading.append("live" if status.live else "not live", style="green" if status.live else "red")
    heading.append(", ")
    heading.append("ready" if status.ready else "not ready", style="green" if status.ready else "red")
    if status.name:
        heading.append(f"; {status.name} {status.version}")
    return heading


def _table(models: Sequence[ModelStatus], now: datetime) -> Table:
    timed = any(model.statistics for model in models)
    table = Table(box=box.SIMPLE_HEAD, caption="ms: mean times of a request" if timed else None, caption_justify="left")
    table.add_column("model", overflow="fold")
    table.add_column("v", justify="right")
    table.add_column("state", no_wrap=True)
    for name in ("rows", "requests", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in COLUMNS:
        table.add_column(f"{name} ms", justify="right")
    table.add_column("last", justify="right", no_wrap=True)
    for model in models:
        state = Text(model.state or UNKNOWN, style=STYLES.get(model.state, ""))
        table.add_row(model.name, model.version, state, *_figures(model, now))
    return table


def _figures(model: ModelStatus, now: datetime) -> list[str]:
    found = model.statistics
    if found is None:
        return [UNKNOWN] * (len(COLUMNS) + 4)
    last = UNKNOWN if found.last_inference is None else age(found.last_inference, now)
    counts = (found.inference_count, found.success.count, found.fail.count)
    times = (found.queue, found.compute_infer, found.success)
    return [*(f"{count:,}" for count in counts), *map(_mean, times), last]


def _mean(duration: Duration) -> str:
    return f"{duration.mean_s * MS:,.3f}" if duration.count else UNKNOWN
