"""Clients of each of our kinds, opened, used once and closed: what they leave in their process, and what each takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from client_programs import run_client
from rounds import LOAD_GRACE_S, Round, stop
from systems import MODEL, STREAM, BenchError, Host, System

__all__ = ["count_churn"]

CLIENT_S = 1.0  # more than any client takes
KINDS = [
    ("ModelClient", "http"),
    ("ModelClient", "grpc"),
    ("FuturesModelClient", "http"),
    ("FuturesModelClient", "grpc"),
    ("AsyncioModelClient", "http"),
    ("AsyncioModelClient", "grpc"),
    ("DecoupledModelClient", "grpc"),
    ("AsyncioDecoupledModelClient", "grpc"),
]


def count_churn(server: System, clients: int, folder: Path, say: Callable[[str], None]) -> Round:
    """Count once.

    Args:
        server: Whose clients these are, and who serves them.
        clients: Number of clients of each kind.
        folder: An empty one for the host's files.
        say: Gets a line of progress at a time.
    """
    result = Round(server.name, 1)
    try:
        with Host(server, folder, (STREAM, MODEL)) as host:
            host.wait_first_answer()
            for kind, protocol in KINDS:
                title = f"{clients} x {kind}, {protocol}"
                model = STREAM if "Decoupled" in kind else MODEL
                options = {"client": kind, "clients": clients}
                timeout_s = clients * CLIENT_S + LOAD_GRACE_S
                try:
                    printed = run_client(host, server, "churn_load.py", protocol, model, timeout_s, **options)
                except BenchError as error:
                    result.problems.append(str(error))
                    continue
                result.values[title] = _values(printed)
                say(f"{title}: {printed['client_ms']:.1f} ms each")
            stop(host, result)
    except BenchError as error:
        result.problems.append(str(error))
    return result


def _values(printed: dict[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {}
    for when in ("before", "after"):
        found = printed[when]
        values[f"threads {when}"] = found["threads"]
        values[f"sockets {when}"] = found["sockets"]
        values[f"RSS {when}, MiB"] = found["rss_bytes"] / 2**20
    return {**values, "ms per client": printed["client_ms"]}
