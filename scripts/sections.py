"""The sections of the benchmark: what each measures, in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from client_churn import count_churn
from client_rounds import BARE, measure_clients
from inprocess_rounds import measure_inprocess
from rounds import Round, Timing, measure, order
from stream_rounds import measure_streams
from string_rounds import measure_strings
from systems import PYTHON_PROXY, System, find_system
from worker_rounds import measure_workers

__all__ = ["COLUMNS", "SECTIONS", "Plan"]

COLUMNS = ["ours", PYTHON_PROXY, "raw", BARE, "peer"]


@dataclass(frozen=True)
class Plan:
    """What is to be measured, and how.

    Attributes:
        systems: Those that are compared.
        rounds: How often each is measured.
        timing: Of each measurement.
        clients: How many of each kind are opened and closed.
        folder: An empty one, in which each host gets a folder.
        say: Gets a line of progress at a time.
        memory_requests: Over how many memory is looked at, in process; 0: it is not.
    """

    systems: Sequence[System]
    rounds: int
    timing: Timing
    clients: int
    folder: Path
    say: Callable[[str], None]
    memory_requests: int = 0

    @property
    def callers(self) -> list[System]:
        """The systems that have clients of their own."""
        return [system for system in self.systems if system.name in ("ours", "peer")]

    @property
    def ours(self) -> System:
        """Ours, with its proxy if it is compared: its server is what clients call, its tritonclient calls servers."""
        return next((system for system in self.systems if system.name == "ours"), None) or find_system("ours")


def _by_system(name: str, measure: Callable[..., Round], plan: Plan) -> list[Round]:
    rounds = []
    for number in range(1, plan.rounds + 1):
        for system in order(plan.systems, number):
            place = plan.folder / f"{name}-{system.name}-{number}"
            rounds.append(measure(system, number, plan.timing, place, plan.say))
    return rounds


def _clients(plan: Plan) -> list[Round]:
    server, rounds = plan.ours, []
    for number in range(1, plan.rounds + 1):
        place = plan.folder / f"clients-{number}"
        rounds += measure_clients(server, order(plan.callers, number), number, plan.timing, place, plan.say)
    return rounds


def _streams(plan: Plan) -> list[Round]:
    client, rounds = plan.ours, []
    for number in range(1, plan.rounds + 1):
        for system in order(plan.systems, number):
            place = plan.folder / f"streams-{system.name}-{number}"
            callers = order(plan.callers, number) if system.name == "ours" else []
            rounds += measure_streams(system, client, callers, number, plan.timing, place, plan.say)
    return rounds


def _workers(plan: Plan) -> list[Round]:
    return [
        measure_workers(plan.ours, number, plan.timing, plan.folder / f"workers-{number}", plan.say)
        for number in range(1, plan.rounds + 1)
    ]


def _churn(plan: Plan) -> list[Round]:
    return [count_churn(plan.ours, plan.clients, plan.folder / "churn", plan.say)]


def _inprocess(plan: Plan) -> list[Round]:
    rounds = []
    for number in range(1, plan.rounds + 1):
        requests = plan.memory_requests if number == plan.rounds else 0
        place = plan.folder / f"inprocess-{number}"
        rounds.append(measure_inprocess(plan.ours, number, plan.timing, requests, place, plan.say))
    return rounds


SECTIONS: dict[str, Callable[[Plan], list[Round]]] = {
    "serving": partial(_by_system, "serving", measure),
    "strings": partial(_by_system, "strings", measure_strings),
    "clients": _clients,
    "streams": _streams,
    "churn": _churn,
    "workers": _workers,
    "inprocess": _inprocess,
}
