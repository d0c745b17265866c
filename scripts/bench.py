"""The benchmark: pytriton, the same function as a plain Python-backend model, and nvidia-pytriton, in alternation.

``scripts/README.md`` explains the systems, the sections and each row. One command measures each row of the goals:

    HTTP and gRPC, mixed rows with ids        bench.py --rounds 5 --sections ids --systems ours raw limit
    mixed rows, parameters, two inputs,       bench.py --rounds 5 --sections rows parameters pair bytes 256k
    byte strings, 256 KiB
    HTTP and gRPC, equal rows, and the        bench.py --rounds 5 --sections serving --only 64
    worker's CPU time per request
    1 MiB and 16 MiB over both protocols      bench.py --rounds 5 --sections serving --only MiB
    in process, beside clients over HTTP      bench.py --rounds 5 --sections inprocess
    first answer, stop, 400 models            bench.py --rounds 5 --sections start
    the limit of the server's front end       bench.py --rounds 5 --sections serving ids --systems ours limit
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from hosts import LIMIT, PYTHON_PROXY, SYSTEMS, BenchError, System, find_system
from processes import adopt_orphans, end_descendants
from report import Row, compare, rounds_table
from rounds import Plan, Round, Timing
from sections import BARE, SECTIONS
from soak import Soak, soak, soak_table, trends

from pytriton.server.backends import PROXIES

__all__ = ["main", "parse"]

COLUMNS = ["ours", PYTHON_PROXY, "raw", LIMIT, BARE, "peer"]
QUICK = Timing(seconds=1, warmup_s=0.2)
QUICK_CLIENTS = 20
_Outcome = tuple[dict[str, Any], dict[str, list[str]]]  # what was found, as JSON has it, and problems by system
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run what the command line says; returns the exit status, 1 if anything but the peer went wrong."""
    chosen = parse(sys.argv[1:])
    for number in ENDING:
        signal.signal(number, _leave)
    adopt_orphans()
    try:
        systems = [find_system(name, chosen.peer_python, chosen.proxy) for name in chosen.systems]
        about = _about(chosen, systems)
        for subject, facts in about.items():
            print(f"{subject}: {json.dumps(facts)}", flush=True)
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            found, problems = (_soak if chosen.soak else _compare)(chosen, systems, Path(folder))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        end_descendants(grace_s=0)
    for name, complaints in problems.items():
        for complaint in complaints:
            print(f"PROBLEM {name}: {complaint}")
    if chosen.json:
        chosen.json.write_text(json.dumps({**about, **found, "problems": problems}, indent=2) + "\n")
    return 1 if any(complaints for name, complaints in problems.items() if name != "peer") else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; ``systems``, ``sections``, ``rounds``, ``timing`` and ``clients`` are filled in."""
    parser = argparse.ArgumentParser(description="Compare pytriton with what else can serve a Python function.")
    parser.add_argument(
        "--sections", nargs="+", choices=list(SECTIONS), default=["serving"], help="what is measured (serving)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each system is measured (3)")
    parser.add_argument("--seconds", type=float, default=3, help="of each load (3)")
    parser.add_argument("--warmup", type=float, default=1, metavar="SECONDS", help="before each load (1)")
    parser.add_argument("--clients", type=int, default=1000, help="of each kind, which churn opens and closes (1000)")
    parser.add_argument(
        "--memory-requests", type=int, default=0, metavar="COUNT", help="in process, over which memory is looked at (0)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round, short and with few clients: does it work at all?"
    )
    parser.add_argument("--peer-python", metavar="PATH", help="interpreter of an environment with nvidia-pytriton")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, help="default: ours and raw; peer, if there is one")
    parser.add_argument("--only", default="", metavar="TEXT", help="loads on servers whose titles contain this")
    parser.add_argument("--proxy", choices=PROXIES, help="of ours (what PYTRITON_PROXY says, else auto)")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="instead of rounds, one long load of each system")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    chosen = parser.parse_args(arguments)
    durations = [chosen.seconds, *([] if chosen.soak is None else [chosen.soak])]
    if min(chosen.rounds, chosen.clients) < 1 or min(durations) <= 0 or chosen.warmup < 0:
        parser.error("--rounds, --clients, --seconds and --soak must be positive, and --warmup not negative")
    if chosen.systems is None:
        chosen.systems = ["ours", "raw", *(["peer"] if chosen.peer_python else [])]
    if "ours" not in chosen.systems and {"clients", "churn"} & set(chosen.sections):
        parser.error("the sections clients and churn need ours among the --systems")
    chosen.sections = list(dict.fromkeys(chosen.sections))
    chosen.rounds = 1 if chosen.quick else chosen.rounds
    chosen.clients = min(QUICK_CLIENTS, chosen.clients) if chosen.quick else chosen.clients
    chosen.timing = QUICK if chosen.quick else Timing(chosen.seconds, chosen.warmup)
    return chosen


def _compare(chosen: argparse.Namespace, systems: Sequence[System], folder: Path) -> _Outcome:
    plan = Plan(
        systems, chosen.rounds, chosen.timing, chosen.clients, folder, _say, chosen.memory_requests, chosen.only
    )
    rounds: list[Round] = []
    rows: list[Row] = []
    for section in chosen.sections:
        found = SECTIONS[section].rounds(section, plan)
        compared = compare(sorted(found, key=lambda each: COLUMNS.index(each.system)))
        print(f"{section}\n{rounds_table(compared)}", flush=True)
        rounds += found
        rows += compared
    return {"rows": [asdict(each) for each in rows], "rounds": [asdict(each) for each in rounds]}, _problems(rounds)


def _soak(chosen: argparse.Namespace, systems: Sequence[System], folder: Path) -> _Outcome:
    soaks: list[Soak] = []
    for system in systems:
        soaks.append(soak(system, chosen.soak, folder / system.name, _say))
        print(soak_table(soaks[-1]), flush=True)
    found = [{**asdict(each), "trends": {k: asdict(v) for k, v in trends(each.samples).items()}} for each in soaks]
    return {"soaks": found}, _problems(soaks)


def _problems(found: Iterable[Round | Soak]) -> dict[str, list[str]]:
    """What went wrong, by system."""
    result: dict[str, list[str]] = {}
    for each in found:
        result.setdefault(each.system, []).extend(each.problems)
    return result


def _about(chosen: argparse.Namespace, systems: Sequence[System]) -> dict[str, Any]:
    """Where and how the measurements are made."""
    return {
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "load_average": os.getloadavg()[0],
        },
        "generators": {
            "http": "wrk" if shutil.which("wrk") else "ours",
            "grpc": "ours",
        },
        "settings": {
            "sections": chosen.sections,
            "rounds": chosen.rounds,
            **asdict(chosen.timing),
            "clients": chosen.clients,
            "memory_requests": chosen.memory_requests,
            "soak_minutes": chosen.soak,
        },
        "systems": {system.name: system.versions for system in systems},
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _leave(number: int, frame: FrameType | None) -> None:
    """End in an orderly way, however often one is asked to."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
