"""One round of byte strings: one system, whose model gives them back, so that they are all there is to its work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rounds import Case, Round, Timing, measure_load, stop
from systems import ECHO, MODEL, BenchError, Host, System

__all__ = ["STRINGS", "measure_strings"]

STRINGS = [Case(protocol, connections, strings=1000) for protocol in ("http", "grpc") for connections in (1, 16)]


def measure_strings(system: System, number: int, timing: Timing, folder: Path, say: Callable[[str], None]) -> Round:
    """Run a round.

    Args:
        system: What to measure.
        number: Of the round, from 1.
        timing: Of the loads.
        folder: An empty one for the host's files.
        say: Gets a line of progress at a time.

    Returns:
        All that was measured. What fails is a problem of the round, and ends it.
    """
    result = Round(system.name, number)
    try:
        with Host(system, folder, (ECHO, MODEL)) as host:
            host.wait_first_answer()
            for case in STRINGS:
                measure_load(host, case, timing, result, say)
            stop(host, result)
    except BenchError as error:
        result.problems.append(str(error))
    return result
