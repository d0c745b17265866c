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
    JSON to the app, beside FastAPI           bench.py --rounds 3 --seconds 1.5 --sections rest
    each kind of request to /predict          bench.py --rounds 3 --seconds 1.5 --sections predict
    what pages that are open cost             bench.py --rounds 8 --seconds 10 --sections pages
    OpenAI's routes, beside FastAPI           bench.py --rounds 3 --seconds 3 --sections openai
    files of models, beside MLflow, ...       bench.py --rounds 3 --seconds 3 --sections saved --peers mlflow=PYTHON ...
    models that call models, beside others    bench.py --rounds 3 --sections composition --peers ray=PYTHON ...
    batches of values beside arrays           bench.py --rounds 5 --sections values
    the edge beside the                       bench.py --rounds 5 --sections serving ids --systems ours evhtp raw
    server's own: small, large, ids
    its connections, memory and streams       bench.py --rounds 5 --sections edge --systems ours evhtp
    gRPC, with h2load                         bench.py --rounds 5 --sections grpc --systems ours evhtp raw
    the limit of the server's edge            bench.py --rounds 5 --sections serving ids --systems ours limit

To add a section:

1. A function ``measure(run)`` and an entry of ``SECTIONS`` in ``sections.py``, with the names of the systems that it
   can measure. ``run.load(Case("http", 16, "64 B"), ...)`` puts loads on the running host, ``run.program`` runs another
   program of this folder, ``run.put`` adds values. Rounds, order, medians, ratios and table follow from that.
2. A new sort of request: an entry of ``WORKLOADS`` in ``payloads.py``, or for another protocol of HTTP, such as JSON
   bodies, two functions there (the bytes of a request, the outputs in a response) and an entry of ``PROTOCOLS`` in
   ``connections.py``, whose name is then that of the ``Case`` and of the system that answers it first.
3. A new system: its name in ``SYSTEMS`` and a ``System`` in ``find_system``, both in ``hosts.py``, and a program in
   ``hosts/`` that takes three ports and the names of models, and ends with status 0 on SIGTERM.
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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from hosts import APPS, LOOPBACK, OTHERS, PEERS, SYSTEMS, BenchError, System, find_system
from processes import adopt_orphans, end_descendants
from report import Row, compare, rounds_table
from rounds import Plan, Round
from sections import BARE, SECTIONS

__all__ = ["main", "parse"]

COLUMNS = [*SYSTEMS[:-1], BARE, SYSTEMS[-1], *(name for name in APPS if name not in SYSTEMS), *OTHERS, LOOPBACK, *PEERS]
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run what the command line says; returns the exit status, 1 if anything but the peer went wrong."""
    chosen = parse(sys.argv[1:])
    for number in ENDING:
        signal.signal(number, _leave)
    adopt_orphans()
    try:
        systems = [find_system(name, chosen.peer_python) for name in chosen.systems]
        about = _about(chosen, systems)
        for subject, facts in about.items():
            print(f"{subject}: {json.dumps(facts)}", flush=True)
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            rows, rounds = _compare(chosen, systems, Path(folder))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        end_descendants(grace_s=0)
    problems: dict[str, list[str]] = {}
    for each in rounds:
        problems.setdefault(each.system, []).extend(each.problems)
        for complaint in each.problems:
            print(f"PROBLEM {each.system}: {complaint}")
    if chosen.json:
        found = {"rows": [asdict(each) for each in rows], "rounds": [asdict(each) for each in rounds]}
        chosen.json.write_text(json.dumps({**about, **found, "problems": problems}, indent=2) + "\n")
    return 1 if any(complaints for name, complaints in problems.items() if name not in ("peer", *PEERS)) else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; ``systems`` is filled in."""
    parser = argparse.ArgumentParser(description="Compare pytriton with what else can serve a Python function.")
    parser.add_argument(
        "--sections", nargs="+", choices=list(SECTIONS), default=["serving"], help="what is measured (serving)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each system is measured (3)")
    parser.add_argument("--seconds", type=float, default=3, help="of each load (3)")
    parser.add_argument("--warmup", type=float, default=1, metavar="SECONDS", help="before each load (1)")
    parser.add_argument("--clients", type=int, default=1000, help="of each kind, which churn opens and closes (1000)")
    parser.add_argument("--peer-python", metavar="PATH", help="interpreter of an environment with nvidia-pytriton")
    parser.add_argument(
        "--peers",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help="interpreters of environments with litserve, bentoml, mlflow, mlserver and ray, for some sections",
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, help="default: ours and raw; peer, if there is one")
    parser.add_argument("--only", default="", metavar="TEXT", help="loads on servers whose titles contain this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    chosen = parser.parse_args(arguments)
    if min(chosen.rounds, chosen.clients) < 1 or chosen.seconds <= 0 or chosen.warmup < 0:
        parser.error("--rounds, --clients and --seconds must be positive, and --warmup not negative")
    chosen.peers = dict(each.partition("=")[::2] for each in chosen.peers)
    if unknown := [name for name in chosen.peers if name not in PEERS]:
        parser.error(f"--peers knows {', '.join(PEERS)}, not {', '.join(unknown)}")
    if chosen.systems is None:
        chosen.systems = ["ours", "raw", *(["peer"] if chosen.peer_python else [])]
    for name in chosen.sections:
        if not set(chosen.systems) & set(SECTIONS[name].systems):
            parser.error(f"the section {name} measures none of these systems, but {', '.join(SECTIONS[name].systems)}")
    chosen.sections = list(dict.fromkeys(chosen.sections))
    if chosen.peers and not (with_peers := {"rest", "openai", "saved", "composition"}) & set(chosen.sections):
        parser.error(f"--peers are measured by the sections {', '.join(sorted(with_peers))} alone")
    return chosen


def _compare(chosen: argparse.Namespace, systems: Sequence[System], folder: Path) -> tuple[list[Row], list[Round]]:
    plan = Plan(
        systems=systems,
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        warmup_s=chosen.warmup,
        clients=chosen.clients,
        folder=folder,
        say=lambda line: print(line, file=sys.stderr, flush=True),
        only=chosen.only,
        peers=chosen.peers,
    )
    rows: list[Row] = []
    rounds: list[Round] = []
    for section in chosen.sections:
        found = SECTIONS[section].rounds(section, plan)
        compared = compare(sorted(found, key=lambda each: COLUMNS.index(each.system)))
        print(f"{section}\n{rounds_table(compared)}", flush=True)
        rows, rounds = rows + compared, rounds + found
    return rows, rounds


def _about(chosen: argparse.Namespace, systems: Sequence[System]) -> dict[str, Any]:
    """Where and how the measurements are made."""
    return {
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "load_average": os.getloadavg()[0],
        },
        "generators": {"http": "wrk" if shutil.which("wrk") else "ours", "grpc": "ours"},
        "settings": {name: getattr(chosen, name) for name in ("sections", "rounds", "seconds", "warmup", "clients")},
        "systems": {system.name: system.versions for system in systems},
    }


def _leave(number: int, frame: FrameType | None) -> None:
    """End in an orderly way, however often one is asked to."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
