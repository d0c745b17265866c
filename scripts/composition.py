"""The section ``composition``: callables that call models, beside clients on loopback, Triton's BLS and others.

As a program, ``composition.py SYSTEM http --port 8080 --model chain --connections 64``, it puts a load on a system of
``hosts/chained.py``, of 16 numbers as JSON, or with ``--floats`` of so many by a client, and prints a line of JSON.
Answers are checked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from connections import HttpConnection
from hosts import LOOPBACK, BenchError, Host, System
from load import Tally, Values, whole_requests
from payloads import HOST, LoadError
from rounds import Run, order

from pytriton.client import ModelClient

__all__ = ["LOADS", "MODELS", "ask", "measure", "request"]

MODELS = ("one", "two", "three", "nested", "chain")  # of all systems; the last one is ready last
OWN = ("coroutine", "pipeline", "split", "shadow")  # of ours alone
SMALL, LARGE = 16, 1 << 22  # numbers of a request; 16 MiB
LOADS = [(model, connections, SMALL) for model in ("one", "nested", "chain", *OWN) for connections in (1, 64)]
LOADS += [(model, 1, LARGE) for model in ("one", "nested")]
ANSWER_S = 5.0
V2 = ("ours", LOOPBACK, "raw")  # speak the server's protocol, and run under our interpreter
_HOSTS = Path(__file__).with_name("hosts")


def request(system: str, port: int, model: str) -> bytes:
    """A whole request in the protocol of a system."""
    values = [float(each) for each in range(SMALL)]
    path, body = f"/{model}", json.dumps({"x": values})
    if system in V2:
        path = f"/v2/models/{model}/infer"
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, SMALL], "data": values}]})
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def ask(system: str, port: int, model: str = MODELS[-1]) -> None:
    """Send a request once; raises LoadError unless the answer is its input."""
    # Some systems do not answer what comes before they are ready.
    with closing(HttpConnection(port, [request(system, port, model)], ANSWER_S)) as connection:
        _, body = connection.fetch()
    answer = json.loads(body)
    if isinstance(answer, dict):
        answer = answer["outputs"][0]["data"] if "outputs" in answer else answer.get("x")
    if answer != [*range(SMALL)]:
        raise LoadError(f"{system} answers {body[:200]!r}")


def measure(run: Run) -> None:
    """Each system on a host of its own; each round begins with another."""
    names = ["ours", LOOPBACK, "raw", *(name for name in ("ray", "bentoml") if name in run.plan.peers)]
    for system in order([_system(run, name) for name in names], run.number):
        try:
            _measure(run, system)
        except BenchError as error:  # which keeps no other system from being measured
            run.round_of(system.name).problems.append(str(error))


def _measure(run: Run, system: System) -> None:
    models = [*MODELS, *OWN] if system.name == "ours" else MODELS
    with Host(system, run.folder / system.name, models) as run.host:
        run.put("start", {"first answer s": run.host.wait_first_answer(partial(ask, system.name))}, system.name)
        for model, connections, floats in LOADS:
            title = f"{model}, {connections} x {floats} floats"
            if run.plan.only in title and model in models and (floats == SMALL or system.name in V2):
                options = {"model": model, "connections": connections, "floats": floats}
                found = run.program(run.system, "composition.py", system.name, "http", **options)
                del found["answered"]
                run.put(title, found, system.name)
        run.stop(run.host, name=system.name)


def _system(run: Run, name: str) -> System:
    environment = dict(run.system.environment)
    if name not in V2:
        environment.pop("PYTHONPATH", None)
    return System(
        name, [run.plan.peers.get(name, run.system.command[0]), str(_HOSTS / "chained.py"), name], environment, {}
    )


def _by_client(port: int, model: str, floats: int, begin: Callable[[], Tally]) -> Values:
    """One request of a client after the other."""
    values, going = np.zeros((1, floats), np.float32), True
    with ModelClient(f"http://{HOST}:{port}", model) as client:
        client.infer_batch(values)
        tally = begin()
        while going:
            sent_ns = perf_counter_ns()
            going = tally.add(sent_ns, client.infer_batch(values)["x"].shape == values.shape)
    return tally.figures()


def main() -> None:
    """Put the load on, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("protocol", choices=["http"])
    parser.add_argument("--model", required=True)
    for option, kind in {"port": int, "floats": int, "connections": int, "seconds": float, "warmup": float}.items():
        parser.add_argument(f"--{option}", type=kind, required=True)
    chosen = parser.parse_args()
    if chosen.floats != SMALL:
        begin = partial(Tally, chosen.warmup, chosen.seconds)
        print(json.dumps(_by_client(chosen.port, chosen.model, chosen.floats, begin)))
        return
    ask(chosen.system, chosen.port, chosen.model)
    requests = [request(chosen.system, chosen.port, chosen.model)]
    found = whole_requests(chosen.port, requests, chosen.connections, chosen.warmup, chosen.seconds)
    ask(chosen.system, chosen.port, chosen.model)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
