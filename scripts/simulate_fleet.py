"""What routing, batching and autoscaling do to 100 servers: a simulation of single requests, and its pictures.

    python scripts/simulate_fleet.py                                  the figures, in some minutes
    python scripts/simulate_fleet.py --pictures docs/images           and the pictures of docs/replicas.md
    python scripts/simulate_fleet.py --bench result.json              with a server as bench.py has measured it

A batch takes the time of the server itself and that of the callable, which each experiment chooses. The first is fitted
to what ``bench.py --sections serving --only "x 64 B" --systems ours --json result.json`` measures. docs/replicas.md
shows the results.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from charts import Panel, write_chart
from fleet import ROUTES, SERVERS, Outcome, Scaling, Server, Times, poisson, simulate

__all__ = ["calibrate", "main"]

OWN = Server(75e-6, 21e-6)  # of a trivial callable, on two shared cores
REQUESTS = 200_000
RATES = (20, 60, 100, 150, 250, 400, 600, 800, 1000, 1150, 1400, 1650)  # requests/s of a server
LOADS = (30, 50, 60, 70, 80, 85, 90, 95)  # percent of the capacity of all servers
DAY_S = 3600.0  # of the autoscaling experiment: a day in an hour


def calibrate(rows: Sequence[dict[str, Any]]) -> Server:
    """The server's own times, from requests/s over 1, 16 and 64 HTTP connections, in the rows of ``bench.py --json``.

    With c connections, c requests pass in ``batch_s + request_s * c``; the line is fitted to relative errors.
    """
    found = {
        int(row["group"].split()[1]): next(iter(row["spreads"].values()))["median"]
        for row in rows
        if row["group"].startswith("http ") and row["group"].endswith("x 64 B") and row["measure"] == "requests/s"
    }
    connections = np.array(sorted(found), float)
    cycles = connections / [found[int(each)] for each in connections]
    matrix = np.stack([1 / cycles, connections / cycles], axis=1)
    batch_s, request_s = np.linalg.lstsq(matrix, np.ones(len(cycles)), rcond=None)[0]
    return Server(float(batch_s), float(request_s))


def serving(own: Server, batch_ms: float, request_ms: float, max_batch: int, delay_ms: float = 0.0) -> Server:
    """A server whose callable takes so many milliseconds for a batch, and for each of its requests."""
    return Server(
        own.batch_s + batch_ms / 1e3, own.request_s + request_ms / 1e3, max_batch, delay_ms / 1e3, variation=0.1
    )


def sweep(server: Server, rates: Sequence[float], **options: Any) -> list[tuple[float, Outcome]]:
    """Outcomes by the load of all servers, in requests per second."""
    return [(rate, simulate(poisson(rate, REQUESTS), server, **options)) for rate in rates]


def routing(own: Server) -> list[Panel]:
    """The 99th percentile by load, for each way to choose a server."""
    batches, singles = serving(own, 5, 0.5, 16), replace(serving(own, 50, 0, 1), variation=1.0)
    equal, unequal = [1.0] * SERVERS, [0.5] * 10 + [1.0] * (SERVERS - 10)
    routes: dict[str, dict[str, Any]] = {route: {"route": route} for route in ROUTES}
    panels = []
    for title, server, speeds, lines in (
        ("batches", batches, equal, routes),
        ("10 servers at half speed", batches, unequal, routes),
        ("no batches, random times", singles, equal, {**routes, "least, 20 balancers": {"balancers": 20}}),
    ):
        full = server.capacity * sum(speeds) / 100
        found = {
            name: sweep(server, [full * load for load in LOADS], speeds=speeds, **options)
            for name, options in lines.items()
        }
        points = {name: [(rate / full, 1e3 * each.p99_s) for rate, each in line] for name, line in found.items()}
        panels.append(Panel(title, "load, % of capacity", "p99, ms", points, top=1000))
    return panels


def batching(own: Server) -> list[Panel]:
    """The 99th percentile by the requests of a server, for limits and delays of batches."""
    sizes = {f"up to {size}": serving(own, 5, 0.5, size) for size in (1, 4, 16, 64)}
    delays = {f"{delay} ms": serving(own, 5, 0.5, 16, delay) for delay in (0, 2, 10, 50)}
    panels = []
    for title, servers in (("max_batch_size", sizes), ("max_queue_delay, up to 16", delays)):
        found = {
            name: sweep(server, [SERVERS * rate for rate in RATES if rate < 0.97 * server.capacity])
            for name, server in servers.items()
        }
        points = {name: [(rate / SERVERS, 1e3 * each.p99_s) for rate, each in line] for name, line in found.items()}
        panels.append(Panel(title, "requests/s of a server", "p99, ms", points))
    return panels


def day(peak: float) -> Times:
    """Arrivals of a day: few at night, ``peak`` per second at noon, and half as many more for five minutes."""
    random = np.random.default_rng(0)
    times = np.cumsum(random.exponential(1 / (1.5 * peak), int(1.6 * peak * DAY_S)))
    times = times[times < DAY_S]
    rates = peak * (0.6 - 0.4 * np.cos(2 * np.pi * times / DAY_S))
    rates = np.where((times > 0.7 * DAY_S) & (times < 0.7 * DAY_S + 300), rates + 0.3 * peak, rates)
    return times[random.random(len(times)) * 1.5 * peak < rates]


def autoscaling(own: Server) -> list[Panel]:
    """The 99th percentile by servers on average, for autoscalers and fixed numbers of servers."""
    server = serving(own, 400, 200, 8)
    arrivals = day(0.6 * SERVERS * server.capacity)
    scalings: dict[str, Sequence[Scaling]] = {
        "busy share": [Scaling("busy", target) for target in (0.5, 0.7, 0.8, 0.9)],
        "queue": [Scaling("queue", target) for target in (1, 2, 4, 8)],
        "queue, slow end": [Scaling("queue", target, shrinking=0.1) for target in (1, 2, 4, 8)],
        "requests/s": [Scaling("rate", share * server.capacity) for share in (0.5, 0.6, 0.7, 0.8, 0.9)],
    }
    found = {"fixed number": [simulate(arrivals, server, count) for count in (60, 65, 70, 80, 90, 100)]}
    for name, each in scalings.items():
        found[name] = [simulate(arrivals, server, 30, scaling=scaling) for scaling in each]
    lines = {name: [(each.server_s / DAY_S, each.p99_s) for each in line] for name, line in found.items()}
    return [Panel("a day in an hour", "servers on average", "p99, s", lines, top=30)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, metavar="FILE", help="what bench.py --json has written")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="write fleet-*.svg there")
    chosen = parser.parse_args()
    own = calibrate(json.loads(chosen.bench.read_text())["rows"]) if chosen.bench else OWN
    print(f"the server takes {own.batch_s * 1e6:.0f} us for a batch and {own.request_s * 1e6:.0f} us for each request")
    for name, experiment in (("routing", routing), ("batching", batching), ("autoscaling", autoscaling)):
        panels = experiment(own)
        for panel in panels:
            print(f"{name}, {panel.title}: {panel.y} by {panel.x}")
            for line, points in panel.lines.items():
                print(f"  {line:20}", "  ".join(f"{x:.4g}: {y:.3g}" for x, y in points), flush=True)
        if chosen.pictures:
            write_chart(chosen.pictures / f"fleet-{name}.svg", f"{name} of {SERVERS} servers, simulated", panels)


if __name__ == "__main__":
    main()
