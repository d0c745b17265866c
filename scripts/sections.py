"""What each section of the benchmark measures: ``SECTIONS``. ``bench.py`` says how to add one."""

from __future__ import annotations

import http.client
import json
import resource
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from statistics import fmean

from composition import measure as measure_composition
from connections import check
from hosts import (
    APPS,
    CHAT_PEERS,
    CHATS,
    EVHTP,
    LIMIT,
    OTHERS,
    PYTHON_PROXY,
    REST_PEERS,
    SYSTEMS,
    BenchError,
    Host,
    System,
    find_app,
    find_chats,
    find_other,
)
from load import Values, h2load, warmed
from payloads import BUSY, ENCODER, HOST, MODEL, STREAM, WORKLOADS, LoadError, grpc_request
from predictions import KINDS
from processes import command_line, cpu_s, memory, names
from rounds import Case, Run, Section, order, used_cpu_us
from saved import measure as measure_saved
from tritonclient.grpc import service_pb2

__all__ = ["BARE", "MODELS", "SECTIONS", "cases", "read_events"]

MODELS = 400
PAGES = 10
RESPONSES = 500  # of a stream
BARE = "tritonclient"
IDLE_CONNECTIONS = 10_000
SPARE_FILES = 256
STALL_GRACE_S = 20.0  # beyond the seconds of a load: the server's own endpoint leaves some streams unfinished
LOOPS = 400_000  # of Python, about 10 ms: server and clients need some 2 % of that on the same cores
CHAT_LOADS = (("500 tokens", 500, 0), ("50 tokens, 10 ms each", 50, 0.01))  # title, tokens of a stream, seconds of each
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
        run.put(f"memory after {title} loads, MiB", _memory_mib(run.host))


def _load(workload: str, connections: Sequence[int] = (1, 16, 64)) -> Callable[[Run], None]:
    return lambda run: run.load(*cases(workload, connections))


def _start(run: Run) -> None:
    """Hosts with one model and, of ours, with many: until the first answer, and from SIGTERM until all is gone."""
    for count in (1, MODELS) if run.system.name == "ours" else (1,):
        title = "start and stop" + (f", {count} models" if count > 1 else "")
        models = [*(f"{MODEL}-{number}" for number in range(count - 1)), MODEL]
        with Host(run.system, run.folder / str(count), models) as host:
            run.put(title, {"first answer s": host.wait_first_answer()})
            run.stop(host, title=title)


def _clients(run: Run) -> None:
    for protocol in ("http", "grpc"):
        for caller in run.plan.callers(run.number):
            title = f"ModelClient, {protocol} 1 x 64 B"
            if found := run.try_program(caller, "clients.py", "blocking", protocol):
                client, bare = _measures(found["pytriton"]), _measures(found[BARE])
                run.put(title, {**client, f"p50 / {BARE}'s": client["p50 us"] / bare["p50 us"]}, caller.name)
                if caller.name == "ours":  # the peer's process has a tritonclient of its own
                    run.put(title, bare, BARE)
            if found := run.try_program(caller, "clients.py", "asyncio", protocol, connections=64):
                run.put(f"AsyncioModelClient, {protocol} 64 x 64 B", _measures(found), caller.name)


def _measures(found: Values) -> Values:
    """The figures of a load without the number of its answers."""
    return {name: value for name, value in found.items() if name != "answered"}


def _streams(run: Run) -> None:
    def measure(caller: System, client: str, name: str, title: str) -> None:
        before = cpu_s(run.host.family())
        options = {"model": STREAM, "count": RESPONSES, "client": client}
        if found := run.try_program(caller, "clients.py", "stream", "grpc", **options):
            run.put(title, _measures(found) | used_cpu_us(run.host, before, found["answered"]), name)

    ours = next((system for system in run.plan.systems if system.name == "ours"), run.system)
    measure(ours, BARE, run.system.name, f"stream of {RESPONSES} x 64 B to {BARE}")
    for caller in run.plan.callers(run.number) if run.system.name == "ours" else []:
        measure(caller, "pytriton", caller.name, f"stream of {RESPONSES} x 64 B from ours to DecoupledModelClient")


def _grpc(run: Run) -> None:
    """Calls and streams from h2load, which takes less of the cores than clients in Python."""
    if not shutil.which("h2load"):
        raise BenchError("h2load is not installed (apt-get install nghttp2-client)")
    port, workload = run.host.ports["grpc"], WORKLOADS["64 B"]
    check("grpc", port, workload)
    one = grpc_request(port, workload, 1)
    many = service_pb2.ModelInferRequest.FromString(one)
    many.model_name = STREAM
    many.inputs.add(name="COUNT", datatype="INT32", shape=[1, 1])
    many.raw_input_contents.append(RESPONSES.to_bytes(4, "little"))
    loads = [(f"{count} x 64 B", "ModelInfer", one, count, 1) for count in (1, 16, 64)]
    loads += [("4 x 16 calls x 64 B", "ModelInfer", one, 4, 16)]
    loads += [(f"64 streams of {RESPONSES} x 64 B", "ModelStreamInfer", many.SerializeToString(), 64, 1)]
    for title, method, message, connections, calls in loads:
        before = cpu_s(run.host.family())
        load = partial(h2load, port, method, message, connections, calls)
        try:
            found = warmed(load, run.plan.warmup_s, run.plan.seconds)
        except LoadError as error:  # the server's own endpoint leaves some streams unfinished
            run.own.problems.append(f"{title}: {error}")
            continue
        used_us = used_cpu_us(run.host, before, found.pop("answered"))
        run.put(f"h2load {title}", found | used_us)


def _churn(run: Run) -> None:
    kinds = [(kind, protocol) for kind in ("Model", "FuturesModel", "AsyncioModel") for protocol in ("http", "grpc")]
    for kind, protocol in [*kinds, ("DecoupledModel", "grpc"), ("AsyncioDecoupledModel", "grpc")]:
        options = {"client": f"{kind}Client", "count": run.plan.clients}
        options |= {"model": STREAM} if "Decoupled" in kind else {}
        if found := run.try_program(run.system, "clients.py", "churn", protocol, **options):
            run.put(f"{run.plan.clients} x {kind}Client, {protocol}", found)


def _inprocess(run: Run) -> None:
    run.load(Case("http", 1), Case("grpc", 1), Case("http", 1, "1 MiB"), Case("http", 16))
    client, over_asyncio = "ModelClient, http 1 x 64 B", "AsyncioModelClient, http 16 x 64 B"
    run.put(over_asyncio, _measures(run.program(run.system, "clients.py", "asyncio", "http", connections=16)))
    for title, values in run.program(run.system, "clients.py", "inprocess", "http").items():
        run.put(title, _measures(values))
    values, ratios = run.own.values, {}
    for name, what, mine, other in (
        ("64 B p50", "p50 us", "in process 1 x 64 B", "http 1 x 64 B"),
        ("64 B p50, over ModelClient", "p50 us", "in process 1 x 64 B", client),
        ("64 B p50, both ModelClient", "p50 us", "ModelClient, in process 1 x 64 B", client),
        ("1 MiB p50", "p50 us", "in process 1 x 1 MiB", "http 1 x 1 MiB"),
        ("16 in flight requests/s", "requests/s", "in process 16 x 64 B", "http 16 x 64 B"),
        ("16 in flight requests/s, over AsyncioModelClient", "requests/s", "in process 16 x 64 B", over_asyncio),
    ):
        if other in values:  # or --only left it out
            ratios[name] = values[mine][what] / values[other][what]
    run.put("in process / HTTP", ratios)


def _workers(run: Run) -> None:
    """What worker processes gain and cost, each beside what they are compared with."""
    several = Case("http", 16)
    counts = {f"{count} workers requests/s": f"--workers={count} --loops={LOOPS}" for count in (1, 2)}
    values = _compare(run, counts, several, "requests/s")
    first, second = values.values()
    run.put("a callable of Python alone", {"2 workers / 1": second / first, **values})
    for case in (Case("http", 1), several, Case("grpc", 1), Case("grpc", 16)):
        values = _compare(run, {"thread requests/s": "", "1 worker requests/s": "--workers=1"}, case, "requests/s")
        first, second = values.values()
        run.put(f"a trivial callable, {case.title}", {"1 worker / thread": second / first, **values})
    values = {}
    for name, options in (("thread", ""), ("1 worker", "--workers=1")):  # a busy thread needs the machine for itself
        quiet, busy = (_compare(run, {"": options + more}, Case("http", 1), "p50 us")[""] for more in ("", " --busy"))
        values |= {f"{name} busy / quiet": busy / quiet, f"{name} quiet p50 us": quiet, f"{name} busy p50 us": busy}
    run.put("beside a busy thread of the hosting process", values)


def _values(run: Run) -> None:
    """A function that gets lists of values beside the same one with declared arrays: text in, vectors out."""
    for protocol in ("http", "grpc"):
        case = Case(protocol, 64, "text, 5 ms")
        values = _compare(run, {"arrays": "", "values": "--values"}, case, "requests/s", [ENCODER, MODEL])
        run.put(case.title, {"values / arrays requests/s": values["values"] / values["arrays"], **values})


def _remote(run: Run) -> None:
    """Remote workers, on this machine and over TCP, beside a worker process."""
    local_and_remote = {"local": "--workers=1", "remote": "--remote=1"}
    for title, case, measure in (
        ("64 B", Case("http", 1), "p50 us"),
        ("64 B", Case("http", 64), "requests/s"),
        ("1 MiB", Case("http", 2, "1 MiB"), "requests/s"),
        ("64 B, 5 ms", Case("http", 16, "64 B, 5 ms"), "requests/s"),
    ):
        if run.plan.only in case.title:
            values = _compare(run, local_and_remote, case, measure, [WORKLOADS[title].model, MODEL])
            ratio = {f"remote / local {measure}": values["remote"] / values["local"]}
            run.put(f"{case.title}, {measure}", ratio | values)
    case = Case("http", 16)
    if run.plan.only in f"two {case.title}":
        counts = {f"{count} workers requests/s": f"--remote={count} --loops={LOOPS}" for count in (1, 2)}
        values = _compare(run, counts, case, "requests/s")
        first, second = values.values()
        run.put("remote workers with a callable of Python alone", {"2 workers / 1": second / first, **values})


def _compare(
    run: Run, options: Mapping[str, str], case: Case, measure: str, models: Sequence[str] = (MODEL,)
) -> Values:
    """The mean of a load's measure on hosts that run at the same time, each measured twice: there and back.

    Args:
        run: Of ours.
        options: Options of served.py, by the name of what is compared.
        case: The load.
        measure: One of its figures.
        models: That they serve, MODEL last.
    """
    found, folder = {name: list[float]() for name in options}, run.folder / f"{time.monotonic_ns()}"
    with ExitStack() as stack:
        hosts = {}
        for number, (name, each) in enumerate(options.items()):
            system = replace(run.system, command=[*run.system.command, *each.split()])
            hosts[name] = stack.enter_context(Host(system, folder / str(number), list(dict.fromkeys(models))))
        for host in hosts.values():
            host.wait_first_answer()
        for name in [*hosts, *reversed(hosts)]:
            values = run.measure(hosts[name], case)
            found[name].append(values[measure])
            if values["errors"]:
                run.own.problems.append(f"{name}, {case.title}: {values['errors']:.0f} errors")
        run.stop(*hosts.values())
    return {name: fmean(values) for name, values in found.items()}


def _rest(run: Run) -> None:
    """The app on hosts of its own, beside other frameworks; each round begins with another."""
    apps = [find_app(name, run.system) for name in (*APPS, *OTHERS)]
    apps += [find_other(name, python) for name, python in run.plan.peers.items() if name in REST_PEERS]
    plain = replace(run.system, name="without rest")
    for system in order([plain, *apps], run.number):
        with Host(system, run.folder / system.name, [BUSY, MODEL]) as run.host:
            times = {"first answer s": run.host.wait_first_answer()}
            if system is plain:
                run.put("start", {"first answer without rest s": times["first answer s"]})
            else:
                run.put("start", times | _app_memory(run.host), system.name)
                for workload, connections in (("64 B", (1, 16, 64)), ("1 MiB", (2,)), ("64 B, 5 ms", (64,))):
                    run.load(*(Case("json", count, workload) for count in connections), name=system.name)
            run.stop(run.host, name="" if system is plain else system.name)


def _predict(run: Run) -> None:
    """Each kind of request to /predict: by the edge, as far as it answers, and by the application alone."""
    models = [*dict.fromkeys(kind.model for kind in KINDS.values()), MODEL]
    for system in order([find_app(name, run.system) for name in ("ours", EVHTP)], run.number):
        with Host(system, run.folder / system.name, models) as run.host:
            run.host.wait_first_answer()
            for kind in KINDS:
                before = cpu_s(run.host.family())
                found = run.program(run.system, "predictions.py", kind, "json")
                used_us = used_cpu_us(run.host, before, found.pop("answered"))
                run.put(kind, found | used_us, system.name)
            run.stop(run.host, name=system.name)


def _pages(run: Run) -> None:
    """The app while no page and while ten are open: CPU time of all processes when idle, and a load."""
    with Host(find_app("ours", run.system), run.folder / "pages", [MODEL]) as run.host:
        run.host.wait_first_answer()
        for count in (0, PAGES) if run.number % 2 else (PAGES, 0):
            with ExitStack() as stack:
                for _ in range(count):
                    page = stack.enter_context(socket.create_connection((HOST, run.host.ports["json"])))
                    page.sendall(b"GET /pages/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    page.recv(1)  # what follows stays in the kernel, some KiB a second
                before_s = sum(cpu_s(run.host.family()).values())
                time.sleep(run.plan.seconds)
                used_s = sum(cpu_s(run.host.family()).values()) - before_s
                run.put("idle", {f"{count} pages CPU %": 100 * used_s / run.plan.seconds})
                found = run.measure(run.host, Case("json", 4))
                run.put("json 4 x 64 B", {f"{count} pages {name}": found[name] for name in ("p50 us", "p99 us")})
        run.stop(run.host)


def _app_memory(host: Host) -> Values:
    """Resident memory of the app's process, if it has one."""
    apps = [pid for pid in host.family() if command_line(pid)[-1].startswith("pytriton-rest:")]
    return {"app RSS MiB": sum(memory(pid).rss_bytes for pid in apps) / 2**20} if apps else {}


def _openai(run: Run) -> None:
    """OpenAI's routes on hosts of their own, beside the same functions in FastAPI; each round begins with another."""
    peers = [find_other(name, python, "chats.py") for name, python in run.plan.peers.items() if name in CHAT_PEERS]
    for system in order([*(find_chats(name, run.system) for name in CHATS), *peers], run.number):
        with Host(system, run.folder / system.name, [MODEL]) as run.host:
            run.host.wait_first_answer()
            for connections in (1, 64):
                for title, count, pause in CHAT_LOADS:
                    options = {"connections": connections, "count": count, "pause": pause}
                    found = run.program(run.system, "chats.py", "streams", "http", **options)
                    run.put(f"{connections} x {title}", found, system.name)
            if system.name in CHATS:
                found = run.program(run.system, "chats.py", "embeddings", "http", connections=64)
                run.put("64 x single texts, 5 ms a batch", found, system.name)
            run.stop(run.host, name=system.name)


def _edge(run: Run) -> None:
    """What an edge does with many connections, idle ones, and streams of server-sent events."""
    before = memory(_server(run.host)).rss_bytes
    run.put("idle", {"server RSS MiB": before / 2**20})
    with ExitStack() as stack:
        for _ in range(_raise_limit(IDLE_CONNECTIONS)):
            stack.enter_context(socket.create_connection((HOST, run.host.ports["http"]), STALL_GRACE_S))
        with closing(
            http.client.HTTPConnection(HOST, run.host.ports["http"], timeout=STALL_GRACE_S)
        ) as last:  # it is accepted after the others
            last.request("GET", "/v2/health/live")
            last.getresponse().read()
        after = memory(_server(run.host)).rss_bytes
        run.put(
            f"{IDLE_CONNECTIONS} idle connections",
            {"server RSS MiB": after / 2**20, "more MiB": (after - before) / 2**20},
        )
    run.load(*(Case("http", count) for count in (64, 1000)))
    cpu_before = cpu_s(run.host.family())
    found = read_events(run.host.ports["http"], run.plan.seconds)
    title, events = f"SSE streams of {RESPONSES} x 64 B", found.pop("answered")
    if found["errors"]:
        run.own.problems.append(f"{title}: stalled")
    used = used_cpu_us(run.host, cpu_before, events) if events else {}
    run.put(title, found | used)


def read_events(port: int, seconds: float, grace_s: float = STALL_GRACE_S) -> Values:
    """Read streams of server-sent events one after the other; a stream that does not end is an error, and the last.

    Args:
        port: Of the server.
        seconds: In which streams begin.
        grace_s: Seconds that the last stream may take beyond those.
    """
    began, events, errors = time.perf_counter(), 0, False
    body = json.dumps({"INPUT": [0.0] * 16, "COUNT": RESPONSES})
    with closing(http.client.HTTPConnection(HOST, port, timeout=seconds + grace_s)) as connection:

        def end() -> None:
            with suppress(OSError):  # it was closed meanwhile
                if (stream := connection.sock) is not None:
                    stream.shutdown(socket.SHUT_RDWR)

        ending = threading.Timer(seconds + grace_s, end)  # the connection's own timeout is of silence only
        ending.start()
        try:
            while time.perf_counter() - began < seconds:
                connection.request("POST", f"/v2/models/{STREAM}/generate_stream", body)
                events += connection.getresponse().read().count(b"data:")
        except (OSError, http.client.HTTPException):
            errors = True
        finally:
            ending.cancel()
            ending.join()
    took_s = time.perf_counter() - began
    errors |= took_s > seconds + grace_s  # a body without a length may have been cut
    return {"responses/s": events / took_s, "errors": int(errors), "answered": events}


def _server(host: Host) -> int:
    return next(pid for pid, name in names(host.family()).items() if name == "tritonserver")


def _raise_limit(count: int) -> int:
    """Let this process open so many files, or as many as it may; returns how many connections it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < wanted:
        raise BenchError(f"{count} connections need more open files than this user may have: ulimit -n")
    return count


OURS = ["ours", PYTHON_PROXY]
SERVERS = [name for name in SYSTEMS if name != LIMIT]
SECTIONS = {
    "serving": Section(_serving, SYSTEMS),
    "start": Section(_start, SYSTEMS, models=()),
    **{
        name: Section(_load(workload), SYSTEMS, tuple(dict.fromkeys([WORKLOADS[workload].model, MODEL])))
        for name, workload in {
            "rows": "1-4 rows",
            "ids": "1-4 rows, ids",
            "parameters": "1-4 rows, ids, parameters",
            "pair": "1-4 rows, ids, two inputs",
            "bytes": "1-4 rows, ids, 16 strings",
            "256k": "256 KiB",
        }.items()
    },
    "strings": Section(_load("1000 strings", (1, 16)), SYSTEMS, ("echo", MODEL)),
    "clients": Section(_clients, ["ours"]),
    "edge": Section(_edge, ["ours", EVHTP], (STREAM, MODEL)),
    "grpc": Section(_grpc, SERVERS, (STREAM, MODEL)),
    "streams": Section(_streams, SERVERS, (STREAM, MODEL)),
    "churn": Section(_churn, ["ours"], (STREAM, MODEL), once=True),
    "workers": Section(_workers, OURS, models=()),
    "remote": Section(_remote, OURS, models=()),
    "values": Section(_values, OURS, models=()),
    "inprocess": Section(_inprocess, OURS),
    "rest": Section(_rest, ["ours"], models=()),
    "predict": Section(_predict, ["ours"], models=()),
    "pages": Section(_pages, ["ours"], models=()),
    "openai": Section(_openai, ["ours"], models=()),
    "saved": Section(measure_saved, ["ours"], models=()),
    "composition": Section(measure_composition, ["ours"], models=()),
}
