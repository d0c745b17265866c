"""One round of clients: those of each package, and bare tritonclient, on one server, which is ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from client_programs import run_client
from rounds import LOAD_GRACE_S, Round, Timing, size, stop
from systems import MODEL, BenchError, Host, System
from tally import Result
from wire import Target

__all__ = ["BARE", "measure_clients"]

BARE = "tritonclient"
IN_FLIGHT = 64
_SIZE = size(Target(0, MODEL).values.nbytes)
_BLOCKING, _ASYNCIO = f"ModelClient, {{}} 1 x {_SIZE}", f"AsyncioModelClient, {{}} {IN_FLIGHT} x {_SIZE}"


def measure_clients(
    server: System, callers: Sequence[System], number: int, timing: Timing, folder: Path, say: Callable[[str], None]
) -> list[Round]:
    """Run a round.

    Args:
        server: Ours, which all call.
        callers: The systems whose clients are measured, in this order.
        number: Of the round, from 1.
        timing: Of each measurement.
        folder: An empty one for the host's files.
        say: Gets a line of progress at a time.

    Returns:
        All that was measured: a round of each caller, and one of bare tritonclient under ours. A client that fails is
        a problem of its own system; a host that does not start is one of the server's.
    """
    rounds = {name: Round(name, number) for name in (server.name, BARE, *(caller.name for caller in callers))}
    try:
        with Host(server, folder) as host:
            host.wait_first_answer()
            for protocol in ("http", "grpc"):
                for caller in callers:
                    for measure in (_measure_blocking, _measure_asyncio):
                        try:
                            say(f"round {number}, {caller.name}, {measure(host, caller, protocol, timing, rounds)}")
                        except BenchError as error:
                            rounds[caller.name].problems.append(str(error))
            stop(host, rounds[server.name])
    except BenchError as error:
        rounds[server.name].problems.append(str(error))
    return list(rounds.values())


def _measure_blocking(host: Host, caller: System, protocol: str, timing: Timing, rounds: dict[str, Round]) -> str:
    printed = _run(host, caller, "blocking_load.py", protocol, timing)
    client, bare = Result(**printed["pytriton"]), Result(**printed[BARE])
    title = _BLOCKING.format(protocol)
    ratio = {f"p50 / {BARE}'s": client.p50_us / bare.p50_us}
    rounds[caller.name].values[title] = {**_values(client), **ratio}
    if caller.name == "ours":  # the peer's process has a tritonclient of its own, to which only its ratio refers
        rounds[BARE].values[title] = _values(bare)
    _complain(rounds[caller.name], title, client)
    return f"{title}: {ratio}"


def _measure_asyncio(host: Host, caller: System, protocol: str, timing: Timing, rounds: dict[str, Round]) -> str:
    printed = _run(host, caller, "asyncio_load.py", protocol, timing, in_flight=IN_FLIGHT)
    cpu_us = printed.pop("client_cpu_us")
    result, title = Result(**printed), _ASYNCIO.format(protocol)
    rounds[caller.name].values[title] = {**_values(result), "client CPU us": cpu_us}
    _complain(rounds[caller.name], title, result)
    return f"{title}: {result.requests_per_s:.0f} requests/s"


def _run(host: Host, caller: System, script: str, protocol: str, timing: Timing, **options: object) -> dict[str, Any]:
    timeout_s = 2 * (timing.seconds + timing.warmup_s) + LOAD_GRACE_S
    times = {"seconds": timing.seconds, "warmup": timing.warmup_s}
    return run_client(host, caller, script, protocol, MODEL, timeout_s, **times, **options)


def _values(result: Result) -> dict[str, float]:
    return {
        "requests/s": result.requests_per_s,
        "p50 us": result.p50_us,
        "p99 us": result.p99_us,
        "errors": result.errors,
    }


def _complain(result: Round, title: str, found: Result) -> None:
    if found.errors:
        result.problems.append(f"{title}: {found.errors} errors")
