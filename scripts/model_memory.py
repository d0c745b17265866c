"""The memory of models in worker processes: what stays shared in a long load, and whether a budget for all is kept.

``python scripts/model_memory.py shared --minutes 60`` calls two models whose workers are forked from a template, 50
times a second in all, and tells how much of each model a worker has for itself. Of an array, it may be 15 %; objects
are told only, as Python writes to each that is used.

``python scripts/model_memory.py budget --minutes 10`` calls 400 models of 20 MiB under a budget of 1 GiB, the first
ones most (Zipf's law). Their workers may take 10 % more than the budget.

Every answer is checked. Those that are wrong, late or missing make the exit status 1, and so does more memory.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from typing import Any

import numpy as np
from hosts import free_ports
from payloads import HOST
from report import align, number

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.pool.resources import memory_of
from pytriton.triton import Triton, TritonConfig
from pytriton.workers import Processes

__all__ = ["Found", "Load", "budget", "shared"]

X = [Tensor(name="x", shape=(1,), dtype=np.float32)]
OUTPUTS = [
    Tensor(name="y", shape=(1,), dtype=np.float32),
    Tensor(name="pid", shape=(1,), dtype=np.int64),
    Tensor(name="bytes", shape=(1,), dtype=np.int64),
]
MIB = 1 << 20
USED_VALUES, USED_OBJECTS = 1 << 18, 20  # by each call
OBJECT_BYTES = 170  # of an item of a dict, its key and its value
BINDERS, CALLERS = 2, 4  # threads
START_TIMEOUT_S = 120.0
SHARES = {"median": 0.5, "99 %": 0.99}  # of the latencies
MOST_PRIVATE = 0.15  # of a model that is an array
MOST_EXCESS = 0.10  # of the budget


def array(number: int, size_bytes: int) -> Callable[[], Any]:
    """The factory of a model that adds its number to what it gets: the mean of a piece of an array."""

    def load() -> Any:
        before = memory_of(os.getpid())
        values = np.full(size_bytes // 8, float(number))
        return answering(lambda: piece(values).mean(), before)

    def piece(values):
        start = random.randrange(len(values))
        return values[start : start + USED_VALUES]

    return load


def objects(number: int, size_bytes: int) -> Callable[[], Any]:
    """The same with a dict of many small objects, of which each call uses some."""

    def load() -> Any:
        before = memory_of(os.getpid())
        values = {str(index): [float(number)] for index in range(size_bytes // OBJECT_BYTES)}

        def mean() -> float:
            chosen = [values[str(random.randrange(len(values)))] for _ in range(USED_OBJECTS)]
            return sum(value for (value,) in chosen) / USED_OBJECTS

        return answering(mean, before)

    return load


def answering(mean: Callable[[], float], before: tuple[int, int] | None) -> Any:
    """The callable of a model that has just been loaded, in a process that took so much memory before."""
    after = memory_of(os.getpid())
    held = after[0] - before[0] if after and before else 0

    @batch
    def add(x):
        return {"y": x + np.float32(mean()), "pid": np.full(x.shape, os.getpid()), "bytes": np.full(x.shape, held)}

    return add


@dataclass
class Found:
    """What calls came to.

    Attributes:
        latencies_s: Of the right answers.
        failures: All others, by what they came to.
        processes: Those that have answered.
        model_bytes: What the factory of each model has loaded.
    """

    latencies_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    processes: set[int] = field(default_factory=set)
    model_bytes: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[list[str]]:
        """Of a table."""
        latencies_ms = [1000 * each for each in sorted(self.latencies_s)]
        return [
            ["right answers", str(len(latencies_ms))],
            ["processes that answered", str(len(self.processes))],
            *[
                [f"latency ms, {title}", number(latencies_ms[int(share * len(latencies_ms))])]
                for title, share in SHARES.items()
            ],
            ["  longest", number(latencies_ms[-1])],
        ]

    def problems(self) -> list[str]:
        """One for each sort of failure."""
        return [f"{count} calls: {what}" for what, count in self.failures.items()]


class Load:
    """Calls models at a rate, from several threads; a context.

    Args:
        port: Of the server.
        shares: How often each model is called. The first is expected to add 0, the next one 1, and so on.
        rate: Calls per second, of all threads.
        callers: Number of threads, each with one call at a time.
        deadline_s: Of each call.
    """

    def __init__(self, port: int, shares: dict[str, float], rate: float, callers: int, deadline_s: float) -> None:
        self.found = Found()
        self._url, self._names, self._bounds = f"http://{HOST}:{port}", [*shares], [*accumulate(shares.values())]
        self._pause_s, self._deadline_s = callers / rate, deadline_s
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._call_often, args=(seed,)) for seed in range(callers)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _call_often(self, seed: int) -> None:
        dice, clients, due = random.Random(seed), dict[int, ModelClient](), time.monotonic()
        with ExitStack() as closing:
            while not self._ended.wait(max(0.0, due - time.monotonic())):
                (index,) = dice.choices(range(len(self._names)), cum_weights=self._bounds)
                if index not in clients:
                    client = ModelClient(self._url, self._names[index], inference_timeout_s=2 * self._deadline_s)
                    clients[index] = closing.enter_context(client).with_options(server_timeout_s=self._deadline_s)
                self._call(index, clients[index])
                due = max(due + self._pause_s, time.monotonic())

    def _call(self, index: int, client: ModelClient) -> None:
        began, found = time.monotonic(), self.found
        try:
            answer = client.infer_sample(np.ones(1, np.float32))
        except PyTritonClientError as error:
            found.failures[f"{type(error).__name__}: {error}"] += 1
            return
        took_s = time.monotonic() - began
        if answer["y"] != [1 + index] or took_s > self._deadline_s:
            found.failures["beyond the deadline" if took_s > self._deadline_s else f"wrong: {answer}"] += 1
            return
        found.latencies_s.append(took_s)
        found.processes.add(int(answer["pid"][0]))
        found.model_bytes[self._names[index]] = int(answer["bytes"][0])


@contextmanager
def serving(memory_budget: int | None = None) -> Iterator[tuple[Triton, int]]:
    """A server, and its port of HTTP."""
    ports = dict(zip(("http_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    places = {"http_address": HOST, "grpc_address": HOST, "metrics_address": HOST}
    with Triton(config=TritonConfig(**ports, **places), memory_budget=memory_budget) as triton:
        yield triton, ports["http_port"]


def looks(minutes: float, pause_s: float) -> Iterator[float]:
    """Pause, again and again, for so many minutes; yields the seconds so far after each pause."""
    began, seconds = time.monotonic(), 60 * minutes
    while (now_s := time.monotonic() - began) < seconds:
        time.sleep(min(pause_s, seconds - now_s))
        yield time.monotonic() - began


def shared(minutes: float, size_bytes: int, rate: float) -> tuple[list[list[str]], list[str]]:
    """Call models whose workers share memory; returns the lines of a table, and problems."""
    factories, samples = {"array": array, "objects": objects}, list[dict[str, float]]()
    with serving() as (triton, port):
        for index, (name, factory) in enumerate(factories.items()):
            triton.bind(name, Processes(factory(index, size_bytes), count=2, share=True), X, OUTPUTS)
        with Load(port, dict.fromkeys(factories, 1.0), rate, 2, START_TIMEOUT_S) as load:
            found = load.found
            for seconds in looks(minutes, min(60.0, 15 * minutes)):
                workers = [each for each in triton.worker_status() if each.kind == "process" and each.private_bytes]
                samples.append({each.name: each.private_bytes / found.model_bytes[each.model] for each in workers})
                print(f"{seconds:6.0f} s  {samples[-1]}  {len(found.latencies_s)} calls", file=sys.stderr, flush=True)
    lines, problems = found.lines(), found.problems()
    for name, size in found.model_bytes.items():
        lines.append([f"MiB of the model {name}", number(size / MIB)])
    chosen = {"at first": samples[0], "after half": samples[len(samples) // 2], "at the end": samples[-1]}
    for name, last in samples[-1].items():
        lines += [
            [f"private of {name}, % of the model, {when}", number(100 * each[name])] for when, each in chosen.items()
        ]
        if name.startswith("array") and last > MOST_PRIVATE:
            problems.append(f"{name} has {100 * last:.0f} % of its model for itself")
    return lines, problems


def budget(
    minutes: float, models: int, size_bytes: int, budget_bytes: int, rate: float, deadline_s: float
) -> tuple[list[list[str]], list[str]]:
    """Call many models under a budget; returns the lines of a table, and problems."""
    names, samples = [f"model-{index}" for index in range(models)], list[int]()
    with serving(budget_bytes) as (triton, port), ThreadPoolExecutor(BINDERS) as binders:

        def bind(index: int) -> None:
            triton.bind(names[index], Processes(array(index, size_bytes), count=1), X, OUTPUTS)

        def look(what: str) -> None:
            samples.append(sum(each.pss_bytes or 0 for each in triton.worker_status()))
            print(f"{what}  {samples[-1] / MIB:.0f} MiB", file=sys.stderr, flush=True)

        began = time.monotonic()
        for index, _ in enumerate(binders.map(bind, range(models))):
            look(f"bound {index + 1}")
        bound_s, bound = time.monotonic() - began, len(samples)
        with Load(port, {name: 1 / rank for rank, name in enumerate(names, 1)}, rate, CALLERS, deadline_s) as load:
            for seconds in looks(minutes, 1.0):
                look(f"{seconds:6.0f} s, {len(load.found.latencies_s)} calls")
    lines, problems = load.found.lines(), load.found.problems()
    lines.append(["seconds until all were bound", number(bound_s)])
    for what, taken in {"models are bound": samples[:bound], "they are called": samples[bound:]}.items():
        shares = {"median": median(taken) / budget_bytes, "most": max(taken) / budget_bytes}
        lines += [
            [f"memory while {what}, % of the budget, {which}", number(100 * each)] for which, each in shares.items()
        ]
        if shares["most"] > 1 + MOST_EXCESS:
            problems.append(f"while {what}, workers take {100 * shares['most']:.0f} % of the budget")
    return lines, problems


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["shared", "budget"])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--mib", type=int, help="size of each model (shared: 400, budget: 20)")
    parser.add_argument("--models", type=int, default=400, help="under the budget (400)")
    parser.add_argument("--budget-mib", type=int, default=1024, help="of all workers (1024)")
    parser.add_argument("--rate", type=float, help="calls per second (shared: 50, budget: 5)")
    parser.add_argument("--deadline", type=float, default=60.0, metavar="S", help="of a call under the budget (60)")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    if chosen.what == "shared":
        lines, problems = shared(chosen.minutes, (chosen.mib or 400) * MIB, chosen.rate or 50.0)
    else:
        size, limit = (chosen.mib or 20) * MIB, chosen.budget_mib * MIB
        lines, problems = budget(chosen.minutes, chosen.models, size, limit, chosen.rate or 5.0, chosen.deadline)
    print(align(lines))
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
