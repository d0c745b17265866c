"""Kills and stops the processes of a system at random while clients call, and says what became of the calls.

Usage: ``python scripts/chaos.py [--serve threads|processes|python-proxy] [--minutes 30] [--json FILE]``.
Exit status 1 means problems: wrong answers, calls that took longer than their timeouts, a system that was not back in
time, something left behind, memory or files that grow.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from checked import Caller, Found
from hosts import PYTHON_PROXY, BenchError, Host, System, find_system
from payloads import HOST, MODEL, STREAM
from processes import adopt_orphans, names
from report import align
from soak import Sample, grown, look

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError

CALLERS = [("blocking", "http"), ("blocking", "http"), ("blocking", "grpc"), ("blocking", "grpc")]
CALLERS += [("asyncio", "http"), ("stopped", "grpc")]
TIMEOUT_S = 5.0
PROGRAMS = {
    "host": "host",
    "server": "tritonserver",
    "guard": "guard.py",
    "worker": "python -c",
    "stub": "triton_python_backend_stub",
}
TARGETS = {  # of the kills and stops, and how often each is chosen
    "threads": {"server": 4, "guard": 2, "client": 3, "host": 1},
    "processes": {"server": 3, "guard": 2, "worker": 8, "client": 3, "host": 1},
    PYTHON_PROXY: {"server": 3, "guard": 2, "stub": 8, "client": 3, "host": 1},
}
WORKERS = 2
KILL_SHARE = 0.6
PAUSE_S = (2.0, 8.0)
STOP_S = (2.0, 10.0)
SERVER_PAUSE_S = 14.0
"""A server that dies more than five times a minute is given up."""
HOST_LIFE_S = 150.0
"""For so long each host lives at least, or growth could not be seen."""
RESTARTED = "the server was launched again"
TRY_S = 0.3
POLL_S = 0.05
PATIENCE_S = 30.0


@dataclass
class Chaos:
    """What happened.

    Attributes:
        found: By the callers.
        attacks: Their number: ``kill`` or ``stop`` of what.
        back_s: Seconds until the next right answer, by attack: from the kill, the stop's end or a new host's start.
        gone_s: Seconds until a host and all that belongs to it had gone, by the signal that it got.
        own_deaths: How often a server was launched again without having been killed: Triton 2.51 has weaknesses.
        lives: What each host held, looked at after each of these.
    """

    found: Found = field(default_factory=lambda: Found(TIMEOUT_S))
    attacks: Counter[str] = field(default_factory=Counter)
    back_s: dict[str, list[float]] = field(default_factory=dict)
    gone_s: dict[str, list[float]] = field(default_factory=dict)
    own_deaths: int = 0
    lives: list[list[Sample]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Scene:
    """A host and its callers, and what is done to them; a context.

    Args:
        serve: What answers: one of TARGETS.
        seed: Of the random choices.
        back_s: Most seconds to the next right answer.
        folder: An empty one for the hosts' files.
        result: Gets what happens.
    """

    def __init__(self, serve: str, seed: int, back_s: float, folder: Path, result: Chaos) -> None:
        self._targets, self._dice, self._back_s = TARGETS[serve], random.Random(seed), back_s
        self._system, self._folder, self._result = _find_system(serve), folder, result
        self._server_is_to_last = serve != PYTHON_PROXY  # Triton's Python backend may end it when a stub has died
        self._hosts = ExitStack()
        self._callers: list[Caller] = []

    def __enter__(self) -> Scene:
        with ExitStack() as starting:
            starting.push(self)
            self._start_host()
            for kind, protocol in CALLERS:
                self._callers.append(Caller(kind, protocol, self._host.ports[protocol], self._result.found))
            self._wait_first_call()
            self._server_killed = time.monotonic()
            starting.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._hosts:
            for caller in self._callers:
                caller.__exit__()
            if kind is None:
                self._look()
                self._end_host(signal.SIGTERM)

    def attack(self) -> str:
        """Kill or stop a process after a pause; returns what was done to what, such as ``kill server``."""
        time.sleep(self._dice.uniform(*PAUSE_S))
        what = self._choose()
        deed = "kill" if self._dice.random() < KILL_SHARE else "stop"
        if deed == "kill":
            self._kill(what)
        else:
            self._stop(what)
        self._look()
        return f"{deed} {what}"

    def _choose(self) -> str:
        """What is attacked next: something that may be killed now."""
        now, targets = time.monotonic(), dict(self._targets)
        if now < self._server_killed + SERVER_PAUSE_S:
            del targets["server"], targets["guard"]
        if now < self._host_started + HOST_LIFE_S:
            del targets["host"]
        return self._dice.choices(list(targets), list(targets.values()))[0]

    def _kill(self, what: str) -> None:
        if what == "client":
            number = self._dice.randrange(len(self._callers))
            self._callers[number] = self._callers[number].kill()
        elif what == "host":
            self._end_host(signal.SIGKILL)
            self._start_host()
        else:
            with suppress(ProcessLookupError):
                os.kill(self._find(what), signal.SIGKILL)
            if what in ("server", "guard"):
                self._server_killed = time.monotonic()
                self._server_kills += 1
            self._wait_back(f"kill {what}")

    def _stop(self, what: str) -> None:
        seconds = self._dice.uniform(*STOP_S)
        if what == "client":
            with self._dice.choice(self._callers).stopped():
                time.sleep(seconds)
            return
        with suppress(ProcessLookupError):
            pid = self._find(what)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
        self._wait_back(f"stop {what}")

    def _find(self, what: str) -> int:
        """One of the processes of this sort, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            named = names(self._host.family())
            if found := [pid for pid, name in named.items() if name.partition(" #")[0] == PROGRAMS[what]]:
                return self._dice.choice(found)
            time.sleep(POLL_S)
        raise BenchError(f"there is no {what} after {PATIENCE_S} s; the last lines:\n{self._host.tail()}")

    def _wait_first_call(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._result.found.calls["right"]:
            if time.monotonic() > deadline:
                raise BenchError(f"no call was answered in {PATIENCE_S} s; the last lines:\n{self._host.tail()}")
            time.sleep(POLL_S)

    def _start_host(self) -> None:
        """Start a host, where the last one was."""
        lives = self._result.lives
        ports = list(self._host.ports.values()) if lives else ()
        folder = self._folder / str(len(lives))
        self._host = self._hosts.enter_context(Host(self._system, folder, (STREAM, MODEL), ports))
        first_s = self._host.wait_first_answer()
        if lives:
            self._result.back_s.setdefault("kill host", []).append(first_s)
        lives.append([])
        self._server_kills = 0
        self._host_started = time.monotonic()

    def _end_host(self, number: signal.Signals) -> None:
        """End the host, and note what it leaves."""
        self._result.gone_s.setdefault(number.name, []).append(self._host.stop(number))
        status = 0 if number == signal.SIGTERM else -number
        problems = self._host.left_behind(status, [caller.pid for caller in self._callers])
        problems += grown(self._result.lives[-1], lasting=["host"])
        restarts = self._host.output().count(RESTARTED)
        self._result.own_deaths += max(0, restarts - self._server_kills)
        if self._server_is_to_last and restarts < self._server_kills:
            problems.append(f"the server was launched again {restarts} times, but killed {self._server_kills} times")
        if problems:
            self._result.problems += [f"host {len(self._result.lives)}, {number.name}: {each}" for each in problems]
            print(self._host.tail(), flush=True)

    def _look(self) -> None:
        self._result.lives[-1].append(look(self._host, time.monotonic() - self._host_started))

    def _wait_back(self, after: str) -> None:
        seconds = wait_right_answer(self._host)
        self._result.back_s.setdefault(after, []).append(seconds)
        if seconds > self._back_s:
            self._result.problems.append(f"after {after}, it took {seconds:.2f} s to the next right answer")
            print(self._host.tail(), flush=True)


def cause(scene: Scene, minutes: float, result: Chaos) -> None:
    """Attack a system for so many minutes.

    Raises:
        BenchError: A host did not start, or has ended.
    """
    with scene:
        began = time.monotonic()
        while (seconds := time.monotonic() - began) < 60 * minutes:
            what = scene.attack()
            result.attacks[what] += 1
            print(f"{seconds:6.0f} s  {what}  {dict(result.found.calls)}", flush=True)


def _find_system(serve: str) -> System:
    system = find_system("ours", proxy="python" if serve == PYTHON_PROXY else "native")
    workers = [f"--workers={WORKERS}"] if serve == "processes" else []
    return replace(system, command=[*system.command, "--restart", *workers])


def wait_right_answer(host: Host) -> float:
    """Seconds until the server answers a new request, and right.

    Each try is short: a request that was queued for a dead stub fails only after one second per batch before it.
    """
    url = f"http://{HOST}:{host.ports['http']}"
    x = np.ones((1, 16), np.float32)
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        with (
            suppress(PyTritonClientError),
            ModelClient(url, MODEL, init_timeout_s=TRY_S, inference_timeout_s=TRY_S) as client,
        ):
            if np.array_equal(client.infer_batch(x)["OUTPUT"], 2 * x):
                break
    return time.monotonic() - began


def chaos_table(result: Chaos) -> str:
    """A line for each sort of attack, and for what calls came to."""
    lines = [["", "times", "next right answer after s: median", "longest"]]
    for what, times in sorted(result.attacks.items()):
        seconds = result.back_s.get(what)
        back = [f"{median(seconds):.2f}", f"{max(seconds):.2f}"] if seconds else ["", ""]
        lines.append([what, str(times), *back])
    lines += [[f"calls, {what}", str(count), "", ""] for what, count in sorted(result.found.calls.items())]
    lines.append(["the server died by itself", str(result.own_deaths), "", ""])
    lines.append(["longest wait for a response, s", f"{result.found.longest_s:.1f}", "", ""])
    return align(lines)


def as_json(result: Chaos) -> dict[str, Any]:
    found = result.found
    return {
        **{"attacks": result.attacks, "calls": found.calls, "longest_s": found.longest_s},
        **{"back_s": result.back_s, "gone_s": result.gone_s, "problems": result.problems},
        "own_deaths": result.own_deaths,
        "lives": [[asdict(sample) for sample in life] for life in result.lives],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve", choices=list(TARGETS), default="threads", help="what answers (threads)")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--back", type=float, default=2.0, help="most seconds to the next right answer (2)")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--keep", type=Path, help="a new folder for the hosts' files, which keeps their logs")
    chosen = parser.parse_args(arguments)
    adopt_orphans()
    result = Chaos()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        scene = Scene(chosen.serve, chosen.seed, chosen.back, chosen.keep or Path(folder), result)
        try:
            cause(scene, chosen.minutes, result)
        except BenchError as error:
            result.problems.append(str(error))
    result.problems += result.found.problems
    if chosen.json:
        chosen.json.write_text(json.dumps(as_json(result), indent=2) + "\n")
    print(chaos_table(result))
    for problem in result.problems:
        print(f"PROBLEM: {problem}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
