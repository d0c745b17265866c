"""One round of streams of responses: one system as a server, and clients of streams where that is ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from client_programs import run_client
from processes import cpu_s
from rounds import LOAD_GRACE_S, Round, Timing, size, stop, used_cpu_us
from stream_load import StreamResult
from systems import MODEL, STREAM, BenchError, Host, System
from wire import Target

__all__ = ["measure_streams"]

COUNT = 500
_SIZE = size(Target(0, STREAM).values.nbytes)
SERVER_TITLE = f"stream of {COUNT} x {_SIZE} to tritonclient"
CLIENT_TITLE = f"stream of {COUNT} x {_SIZE} from ours to DecoupledModelClient"


def measure_streams(
    system: System,
    client: System,
    callers: Sequence[System],
    number: int,
    timing: Timing,
    folder: Path,
    say: Callable[[str], None],
) -> list[Round]:
    """Run a round.

    Args:
        system: The server to measure.
        client: The system whose tritonclient it is measured with.
        callers: Systems whose clients are measured, too, on this server.
        number: Of the round, from 1.
        timing: Of each measurement.
        folder: An empty one for the host's files.
        say: Gets a line of progress at a time.

    Returns:
        All that was measured: a round of the system, then one of each caller. What fails is a problem of its round.
    """
    result = Round(system.name, number)
    called = [Round(caller.name, number) for caller in callers]
    try:
        with Host(system, folder, (STREAM, MODEL)) as host:
            host.wait_first_answer()
            _measure(host, client, timing, "tritonclient", result)
            say(f"round {number}, {system.name}, {SERVER_TITLE}: {result.values[SERVER_TITLE]['responses/s']:.0f}/s")
            for caller, found in zip(callers, called, strict=True):
                try:
                    _measure(host, caller, timing, "pytriton", found)
                except BenchError as error:
                    found.problems.append(str(error))
            stop(host, result)
    except BenchError as error:
        result.problems.append(str(error))
    return [result, *called]


def _measure(host: Host, caller: System, timing: Timing, client: str, result: Round) -> None:
    before = cpu_s(host.family())
    timeout_s = timing.seconds + timing.warmup_s + LOAD_GRACE_S
    options = {"seconds": timing.seconds, "warmup": timing.warmup_s, "count": COUNT, "client": client}
    printed = run_client(host, caller, "stream_load.py", "grpc", STREAM, timeout_s, **options)
    found = StreamResult(**printed)
    result.values[SERVER_TITLE if client == "tritonclient" else CLIENT_TITLE] = {
        "responses/s": found.responses_per_s,
        "first response p50 us": found.first_p50_us,
        "first response p99 us": found.first_p99_us,
        "client CPU us": found.client_cpu_us,
        **used_cpu_us(host, before, found.responses),
    }
