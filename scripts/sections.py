"""What each section of the benchmark measures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from urllib.request import urlopen

from hosts import BenchError, Host, System
from payloads import MODEL, STREAM, WORKLOADS
from processes import cpu_s, family, memory, names
from rounds import IDLE_S, Case, Run, Section, Values, read_program, start_load, used_cpu_us, values_of
from tally import Result

__all__ = ["BARE", "MODELS", "SECTIONS"]

MODELS = 400
RESPONSES = 500  # of a stream
BARE = "tritonclient"
LOOPS = 400_000  # of Python, about 10 ms: server and clients need some 2 % of that on the same cores
KILL_LEAD_S, RESTART_S, RESTART_TIMEOUT_S, POLL_S = 1.0, 3.0, 60.0, 0.005
READY = "is ready after"
_IMPORTS = "import numpy, tritonclient"


def _memory_mib(host: Host) -> Values:
    named = names(host.family())
    found = {name: memory(pid) for pid, name in named.items()}
    result = {"all PSS": sum(each.pss_bytes for each in found.values()) / 2**20}
    for name in sorted(found):
        result |= {f"{name} RSS": found[name].rss_bytes / 2**20, f"{name} PSS": found[name].pss_bytes / 2**20}
    return result


def cases(workload: str, connections: Sequence[int] = (1, 16, 64)) -> list[Case]:
    """A workload over both protocols."""
    return [Case(protocol, count, workload) for protocol in ("http", "grpc") for count in connections]


def _serving(run: Run) -> None:
    began = time.perf_counter()
    subprocess.run([run.system.command[0], "-c", _IMPORTS], env=run.system.environment, check=True)
    imports_s, times = time.perf_counter() - began, run.own.values["start and stop"]
    times |= {f"{_IMPORTS} s": imports_s, "first answer less imports s": times["first answer s"] - imports_s}
    for title, loads in (("small", cases("64 B")), ("large", [*cases("1 MiB", [2]), *cases("16 MiB", [2])])):
        run.load(*loads)
        run.put(run.system.name, f"memory after {title} loads, MiB", _memory_mib(run.host))


def _load(*workloads: str, connections: Sequence[int] = (1, 16, 64)) -> Callable[[Run], None]:
    return lambda run: run.load(*(case for workload in workloads for case in cases(workload, connections)))


def _start(run: Run) -> None:
    """Hosts with one model and, of ours, with many: until the first answer, and from SIGTERM until all is gone."""
    for count in (1, MODELS) if run.system.name == "ours" else (1,):
        models = [*(f"{MODEL}-{number}" for number in range(count - 1)), MODEL]
        with Host(run.system, run.folder / str(count), models) as run.host:
            title = "start and stop" + (f", {count} models" if count > 1 else "")
            run.put(run.system.name, title, {"first answer s": run.host.wait_first_answer()})
            time.sleep(IDLE_S)
            run.put(run.system.name, title, {"stop s": run.host.stop()})
            run.own.problems += run.host.left_behind()


def _clients(run: Run) -> None:
    for protocol in ("http", "grpc"):
        for caller in run.plan.callers(run.number):
            title = f"ModelClient, {protocol} 1 x 64 B"
            if found := run.try_program(caller, "blocking", protocol):
                client, bare = Result(**found["pytriton"]), Result(**found[BARE])
                run.put(caller.name, title, {**values_of(client), f"p50 / {BARE}'s": client.p50_us / bare.p50_us})
                if caller.name == "ours":  # the peer's process has a tritonclient of its own
                    run.put(BARE, title, values_of(bare))
            if found := run.try_program(caller, "asyncio", protocol, connections=64):
                cpu = {"client CPU us": found.pop("client_cpu_us")}
                run.put(caller.name, f"AsyncioModelClient, {protocol} 64 x 64 B", values_of(Result(**found)) | cpu)


def _streams(run: Run) -> None:
    def measure(caller: System, client: str, name: str, title: str) -> None:
        before = cpu_s(run.host.family())
        found = run.try_program(caller, "stream", "grpc", model=STREAM, count=RESPONSES, client=client)
        if found:
            values = {
                "responses/s": found["responses_per_s"],
                "first response p50 us": found["first_p50_us"],
                "first response p99 us": found["first_p99_us"],
                "client CPU us": found["client_cpu_us"],
            }
            run.put(name, title, values | used_cpu_us(run.host, before, found["responses"]))

    measure(run.plan.ours, BARE, run.system.name, f"stream of {RESPONSES} x 64 B to {BARE}")
    for caller in run.plan.callers(run.number) if run.system.name == "ours" else []:
        measure(caller, "pytriton", caller.name, f"stream of {RESPONSES} x 64 B from ours to DecoupledModelClient")


def _churn(run: Run) -> None:
    kinds = [(kind, protocol) for kind in ("Model", "FuturesModel", "AsyncioModel") for protocol in ("http", "grpc")]
    for kind, protocol in [*kinds, ("DecoupledModel", "grpc"), ("AsyncioDecoupledModel", "grpc")]:
        options = {"client": f"{kind}Client", "count": run.plan.clients}
        options |= {"model": STREAM} if "Decoupled" in kind else {}
        if found := run.try_program(run.system, "churn", protocol, timeout_s=run.plan.clients, **options):
            values: Values = {}
            for when in ("before", "after"):
                values |= {f"{what} {when}": found[when][what] for what in ("threads", "sockets")}
                values[f"RSS {when}, MiB"] = found[when]["rss_bytes"] / 2**20
            title = f"{run.plan.clients} x {kind}Client, {protocol}"
            run.put(run.system.name, title, {"ms per client": found["client_ms"], **values})


def _inprocess(run: Run) -> None:
    run.load(Case("http", 1), Case("grpc", 1), Case("http", 1, "1 MiB"), Case("http", 16))
    found = run.program(run.system, "asyncio", "http", connections=16)
    client, over_asyncio = "ModelClient, http 1 x 64 B", "AsyncioModelClient, http 16 x 64 B"
    run.put(run.system.name, over_asyncio, {"requests/s": found["requests_per_s"], "p50 us": found["p50_us"]})
    requests = run.plan.memory_requests if run.number == run.plan.rounds else 0
    printed = run.program(run.system, "inprocess", "http", requests / 2000, memory_requests=requests)
    for title, values in printed.items():
        run.put(run.system.name, title, values)
    values = run.own.values
    ratios = {}
    for name, what, mine, other in (
        ("64 B p50", "p50 us", "in process 1 x 64 B", "http 1 x 64 B"),
        ("64 B p50, over ModelClient", "p50 us", "in process 1 x 64 B", client),
        ("64 B p50, both ModelClient", "p50 us", "ModelClient, in process 1 x 64 B", client),
        ("1 MiB p50", "p50 us", "in process 1 x 1 MiB", "http 1 x 1 MiB"),
        ("16 in flight requests/s", "requests/s", "in process 16 x 64 B", "http 16 x 64 B"),
        ("16 in flight requests/s, over AsyncioModelClient", "requests/s", "in process 16 x 64 B", over_asyncio),
    ):
        if other in values:  # or it was left out
            ratios[name] = values[mine][what] / values[other][what]
    run.put(run.system.name, "in process / HTTP", ratios)


class _WorkerHosts:
    """Hosts with options of served.py, for one run."""

    def __init__(self, run: Run) -> None:
        self._run, self._count = run, 0

    def start(self, options: str) -> Host:
        """A host, to be used as a context."""
        self._count += 1
        command = [*self._run.system.command, *options.split()]
        return Host(replace(self._run.system, command=command), self._run.folder / str(self._count))

    def compare(self, options: Mapping[str, str], case: Case, measure: str) -> Values:
        """The mean of a load's measure on hosts that run at the same time, each measured twice: there and back."""
        timing, found = self._run.plan.timing, {name: list[float]() for name in options}
        with ExitStack() as stack:
            hosts = {name: stack.enter_context(self.start(each)) for name, each in options.items()}
            for host in hosts.values():
                host.wait_first_answer()
            for name in [*hosts, *reversed(hosts)]:
                load = start_load(hosts[name], case, timing.seconds, timing.warmup_s)
                result = Result(**read_program(hosts[name], load))
                found[name].append(getattr(result, measure))
                if result.errors:
                    self._run.own.problems.append(f"{name}, {case.title}: {result.errors} errors")
            self._run.stop(*hosts.values())
        return {name: fmean(values) for name, values in found.items()}


def _workers(run: Run) -> None:
    """What worker processes gain, cost and lose, each beside what they are compared with."""
    hosts, one, several = _WorkerHosts(run), Case("http", 1), Case("http", 16)
    counts = {f"{count} workers requests/s": f"--workers={count} --loops={LOOPS}" for count in (1, 2)}
    values = hosts.compare(counts, several, "requests_per_s")
    first, second = values.values()
    run.put(run.system.name, "a callable of Python alone", {"2 workers / 1": second / first, **values})
    for case in (one, several, Case("grpc", 1), Case("grpc", 16)):
        kinds = {"thread requests/s": "", "1 worker requests/s": "--workers=1"}
        values = hosts.compare(kinds, case, "requests_per_s")
        first, second = values.values()
        run.put(run.system.name, f"a trivial callable, {case.title}", {"1 worker / thread": second / first, **values})
    values = {}
    for name, options in (("thread", ""), ("1 worker", "--workers=1")):  # a busy thread needs the machine for itself
        quiet, busy = (hosts.compare({"": options + more}, one, "p50_us")[""] for more in ("", " --busy"))
        values |= {f"{name} busy / quiet": busy / quiet, f"{name} quiet p50 us": quiet, f"{name} busy p50 us": busy}
    run.put(run.system.name, "beside a busy thread of the hosting process", values)
    run.put(run.system.name, "one of two workers is killed", _kill_worker(run, hosts, several))


def _kill_worker(run: Run, hosts: _WorkerHosts, case: Case) -> Values:
    """Kill one of two workers under load.

    The throughput is what the server counts, before the kill, and from then on until the new worker has worked as long.
    What is missing then, divided by what one worker answers, is for how long there was one worker less.
    """

    def count() -> tuple[float, int]:
        with urlopen(f"http://127.0.0.1:{host.ports['http']}/v2/models/{MODEL}/stats") as answer:
            (model,) = json.load(answer)["model_stats"]
        return time.perf_counter(), int(model["inference_stats"]["success"]["count"])

    seconds = run.plan.timing.seconds
    with hosts.start(f"--workers=2 --loops={LOOPS}") as host:
        host.wait_first_answer()
        load = start_load(host, case, KILL_LEAD_S + 2 * seconds + RESTART_S, 0)
        time.sleep(KILL_LEAD_S)
        began_s, before = count()
        time.sleep(seconds)
        (killed_s, answered), ready = count(), host.output().count(READY)
        rate = (answered - before) / (killed_s - began_s)
        os.kill(_workers_of(host)[0], signal.SIGKILL)
        began = time.perf_counter()
        while host.output().count(READY) <= ready:
            if time.perf_counter() > began + RESTART_TIMEOUT_S:
                raise BenchError(f"no worker was ready {RESTART_TIMEOUT_S} s after the kill:\n{host.tail()}")
            time.sleep(POLL_S)
        restart_s = time.perf_counter() - began
        time.sleep(seconds)
        ended_s, after = count()
        found = Result(**read_program(host, load))
        run.stop(host)
    missing = rate * (ended_s - killed_s) - (after - answered)
    values = {"requests/s before": rate, "failed requests": found.errors, "restart s": restart_s}
    return values | {"one worker's seconds lost": missing / (rate / 2)}


def _workers_of(host: Host) -> list[int]:
    """The worker processes, oldest first."""
    found = []
    for pid in sorted(family(host.pid)):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


SECTIONS = {
    "serving": Section(_serving, limit=True),
    "start": Section(_start, models=(), limit=True),
    **{
        name: Section(_load(workload), tuple(dict.fromkeys([WORKLOADS[workload].model, MODEL])), limit=True)
        for name, workload in {
            "rows": "1-4 rows",
            "ids": "1-4 rows, ids",
            "parameters": "1-4 rows, ids, parameters",
            "pair": "1-4 rows, ids, two inputs",
            "bytes": "1-4 rows, ids, 16 strings",
            "256k": "256 KiB",
        }.items()
    },
    "strings": Section(_load("1000 strings", connections=(1, 16)), ("echo", MODEL), limit=True),
    "clients": Section(_clients, compared=False),
    "streams": Section(_streams, (STREAM, MODEL)),
    "churn": Section(_churn, (STREAM, MODEL), compared=False, once=True),
    "workers": Section(_workers, (), compared=False),
    "inprocess": Section(_inprocess, compared=False),
}
