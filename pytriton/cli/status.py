"""``pytriton status``: asks a server about itself and its models, and shows the answers in a terminal."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pytriton.cli import options
from pytriton.cli.calls import app_url, post
from pytriton.cli.errors import exit_on_error
from pytriton.cli.terminal import LiveDisplay, wide_console
from pytriton.client.auth import Tls, TritonUrl, create_auth_headers
from pytriton.client.conversations import Call, Transport
from pytriton.client.exceptions import PyTritonClientConnectionError, PyTritonClientError, PyTritonClientTimeoutError
from pytriton.client.sync import open_transport
from pytriton.client.utils import parse_http_response
from pytriton.server.statistics import RESTRICTED, Duration, ModelStatistics, parse_statistics

__all__ = [
    "CODE_PATH",
    "ModelStatus",
    "ServerStatus",
    "ask_server",
    "format_age",
    "render_status",
    "status",
    "unlock",
]

CODE_PATH = "/#/unlock/"  # in the URL that `pytriton serve` prints
MS = 1000.0
STYLES = {"READY": "green", "LOADING": "yellow", "UNLOADING": "yellow", "UNAVAILABLE": "red"}
COLUMNS = ("queue", "model", "request")
UNKNOWN = "-"
AT_ZERO = "at zero"


def status(
    url: options.Url,
    watch: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="Repeat with this pause.", show_default="once"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for each call.")] = 5.0,
    token: options.Token = None,
    tls: options.Secured = False,
    roots: options.Roots = None,
    key: options.Key = None,
    certificate: options.Certificate = None,
) -> None:
    """Show whether a server is ready, and the statistics of its models.

    The exit status is 0 if it is ready, else 1. The states of the models and their statistics need the access token,
    unless the server says otherwise. The URL with a code that **pytriton serve** prints on this machine takes the place
    of URL and token, once.
    """
    with exit_on_error():
        trusted = options.trust(tls, roots, key, certificate)
        if CODE_PATH in url:
            url, token, trusted = unlock(url, trusted, timeout)
        found = ask_server(url, token, trusted, timeout)
        with LiveDisplay(wide_console()) as display, suppress(KeyboardInterrupt):
            display.show(render_status(found))
            while watch is not None:
                time.sleep(watch)
                found = ask_server(url, token, trusted, timeout)
                display.show(render_status(found))
    raise typer.Exit(not found.ready)


@dataclass(frozen=True)
class ModelStatus:
    """One version of a model.

    Args:
        state: READY, LOADING, UNLOADING or UNAVAILABLE; empty if the server refuses to say.
        statistics: None if the server refuses to say, or has none.
        workers: Their states, in words; empty if there is no app at the URL that tells them, or it refuses.
        reasons: Why most batches leave the queue, in words; empty likewise, and for models whose batches Triton makes.
    """

    name: str
    version: str
    state: str
    statistics: ModelStatistics | None
    workers: str = ""
    reasons: str = ""


@dataclass(frozen=True)
class ServerStatus:
    """The answers of a server.

    Args:
        live: The server answers.
        ready: The server and all its models can serve.
        name: The server's name for itself; None if it is unknown.
        version: The server's version; None if it is unknown.
        models: Sorted by name and version; None if the server refuses to say.
        notes: What is missing, why, and what to do; one sentence each.
    """

    url: str
    live: bool
    ready: bool
    name: str | None
    version: str | None
    models: list[ModelStatus] | None
    notes: list[str]


def ask_server(url: str, access_token: str | None, tls: Tls | None, timeout_s: float) -> ServerStatus:
    """Ask a server for its status. A server that cannot be reached has a status too.

    Args:
        timeout_s: The time limit of each of the five calls.

    Raises:
        PyTritonClientValueError: The URL cannot be understood, or the token is empty.
    """
    server = TritonUrl.from_url(url)
    headers = {} if access_token is None else create_auth_headers(access_token, server.scheme)
    with closing(open_transport(server, headers, tls)) as transport:
        status = _StatusQuery(server, transport, access_token is not None, timeout_s).status()
    workers = _workers(_ask_app(server, headers, tls, timeout_s, "workers")) if status.live else {}
    reasons = _reasons(_ask_app(server, headers, tls, timeout_s, "batches")) if workers else {}
    models = status.models and [
        replace(model, workers=workers.get((model.name, model.version), ""), reasons=reasons.get(model.name, ""))
        for model in status.models
    ]
    return replace(status, models=models)


def _ask_app(server: TritonUrl, headers: dict[str, str], tls: Tls | None, timeout_s: float, page: str) -> Any:
    """What a page of the app, which may be at the same port, shows; None if there is no app, or it refuses."""
    if not (url := app_url(server, tls)):
        return None
    secure = [] if tls is None else [urllib.request.HTTPSHandler(context=tls.context())]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *secure)
    with (
        suppress(OSError, ValueError),
        opener.open(urllib.request.Request(f"{url}/pages/{page}", headers=headers), timeout=timeout_s) as answer,
    ):
        return json.load(answer)
    return None


def _workers(page: Any) -> dict[tuple[str, str], str]:
    """The states of the workers of models, by name and version."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    with suppress(KeyError, TypeError):  # another program answers
        for worker in page["workers"] or ():
            if worker["kind"] != "template":
                found[worker["model"], str(worker["version"])].append(worker)
        return {key: _workers_text(workers) for key, workers in found.items()}
    return {}


def _reasons(page: Any) -> dict[str, str]:
    """Why most batches of models leave, such as ``worker idle 72 %``, by name."""
    texts = {}
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        for model, counts in page["reasons"].items():
            reason = max(counts, key=counts.get)
            texts[model] = f"{reason.replace('_', ' ')} {counts[reason] / sum(counts.values()):.0%}"
    return texts


def _workers_text(workers: Sequence[dict[str, Any]]) -> str:
    """Such as ``2 ready``, or ``at zero for 5 min`` if none has a process; of a split, the requests of each model."""
    if counts := workers[0].get("counts"):
        return ", ".join(f"{count:,} {name}" for name, count in counts.items())
    states = Counter(worker["state"] for worker in workers)
    if set(states) == {AT_ZERO}:
        return f"{AT_ZERO} for {_length(time.time() - max(worker['since'] for worker in workers))}"
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))


def unlock(url: str, tls: Tls | None, timeout_s: float) -> tuple[str, str, Tls | None]:
    """Give the code in a URL back for the server's URL, its access token, and what to trust there.

    Args:
        tls: What to trust where a connection is encrypted, which the URL and the answer say; None is the system's.
        timeout_s: The time limit of the call.

    Raises:
        PyTritonClientInferenceServerError: The code was used before, or is none.
        PyTritonClientConnectionError: The app cannot be reached.
    """
    app, _, code = url.partition(CODE_PATH)
    trusted = tls or Tls()
    found = post(app, "/pages/unlock", {"code": code}, trusted, timeout_s, "the code")
    try:
        return found["server"], found["token"], trusted if found["tls"] else None
    except (KeyError, TypeError) as error:
        raise PyTritonClientConnectionError(f"{app} does not take the code: {error}") from error


class _StatusQuery:
    def __init__(self, server: TritonUrl, transport: Transport, has_token: bool, timeout_s: float) -> None:
        self._server = server
        self._transport = transport
        self._has_token = has_token
        self._timeout_s = timeout_s
        self._reachable = True
        self._notes: list[str] = []

    def status(self) -> ServerStatus:
        live = bool(self._ask("whether it is live", "is_server_live"))
        ready = bool(self._ask("whether it is ready", "is_server_ready"))
        metadata = self._ask("its name and version", "get_server_metadata") or {}
        if metadata and not live and not self._notes:  # over HTTP, a refusal looks like a no
            self._notes.append(f"It answers, so its health is probably protected; {self._advice()}.")
        models = self._models()
        return ServerStatus(
            self._server.with_scheme, live, ready, metadata.get("name"), metadata.get("version"), models, self._notes
        )

    def _models(self) -> list[ModelStatus] | None:
        index = self._ask("the states of its models", "get_model_repository_index")
        answer = self._ask("its statistics", "get_inference_statistics")
        if index is None and answer is None:
            return None
        statistics = {(each.name, str(each.version)): each for each in parse_statistics(answer or {})}
        states = parse_http_response(index or [])
        keys = sorted({*states, *statistics}, key=lambda key: (key[0], int(key[1])))
        return [
            ModelStatus(*key, state=states[key].value if key in states else "", statistics=statistics.get(key))
            for key in keys
        ]

    def _ask(self, what: str, method: str, **arguments: Any) -> Any:
        """The server's answer; None, and a note, if there is none."""
        if not self._reachable:
            return None
        try:
            return self._transport.call(Call(method, self._timeout_s, arguments))
        except PyTritonClientError as error:
            # A server that did not answer once would make the user wait again.
            self._reachable = not isinstance(error, (PyTritonClientConnectionError, PyTritonClientTimeoutError))
            protected = RESTRICTED in str(error)
            self._notes.append(f"It does not report {what}: {self._advice()}." if protected else str(error))
            return None

    def _advice(self) -> str:
        if self._has_token:
            return "the access token is wrong"
        return (
            "it needs the access token. Set PYTRITON_ACCESS_TOKEN, or pass --token; in the program that serves, "
            "triton.get_access_token() returns it"
        )


def render_status(status: ServerStatus, now: datetime | None = None) -> RenderableType:
    """A heading, the table of models, and the notes.

    Args:
        now: The ages of the last inferences count back from this moment; None is the present.
    """
    parts: list[RenderableType] = [_heading(status)]
    if status.models:
        parts.append(_table(status.models, now or datetime.now(timezone.utc)))
    elif status.models is not None:
        parts.append(Text("It has no models."))
    parts += [Text(note, style="yellow") for note in dict.fromkeys(status.notes)]
    return Group(*parts)


def format_age(moment: datetime, now: datetime) -> str:
    """The time since ``moment``, in the largest unit that fits."""
    return f"{_length((now - moment).total_seconds())} ago"


def _length(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= length:
            return f"{whole // length} {unit}"
    return f"{whole} s"


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
    told = {"batches leave": "reasons", "workers": "workers"}
    told = {name: member for name, member in told.items() if any(getattr(model, member) for model in models)}
    for name in told:
        table.add_column(name, no_wrap=True)
    for model in models:
        state = Text(model.state or UNKNOWN, style=STYLES.get(model.state, ""))
        extra = [getattr(model, member) or UNKNOWN for member in told.values()]
        table.add_row(model.name, model.version, state, *_cells(model, now), *extra)
    return table


def _cells(model: ModelStatus, now: datetime) -> list[str]:
    found = model.statistics
    if found is None:
        return [UNKNOWN] * (len(COLUMNS) + 4)
    last = UNKNOWN if found.last_inference is None else format_age(found.last_inference, now)
    counts = (found.inference_count, found.success.count, found.fail.count)
    times = (found.queue, found.compute_infer, found.success)
    return [*(f"{count:,}" for count in counts), *map(_mean, times), last]


def _mean(duration: Duration) -> str:
    return f"{duration.mean_s * MS:,.3f}" if duration.count else UNKNOWN
