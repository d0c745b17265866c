"""A long load whose every answer is checked, and what becomes of memory and files meanwhile.

``python scripts/soak.py --minutes 60`` loads a server. ``--attacks kill pause`` also kills its processes, or the
callers', or stops them for 2 to 10 s, at random; ``stop`` stops the host by SIGTERM, ``unbind`` unbinds its models.

Each call must be answered right, unless an attack excuses it: a kill or a pause excuses every failure until a new
request is answered, and for some seconds more; a stop or an unbind excuses refusals, and a stop a connection that it
closed before a request that began after it. Other problems are calls that take longer than their timeouts, a server
that does not answer again in time, growth of memory or files, and what is left behind. They make the exit status 1.
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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import resource_tracker
from pathlib import Path
from statistics import median

from callers import Caller, Failure, Found
from connections import check
from growth import Sample, grown, look, settled
from hosts import PYTHON_PROXY, BenchError, Host, System, find_system
from payloads import ERRANT, MODEL, NESTED, STEPS, STREAM, WORKLOADS, LoadError
from processes import adopt_orphans, descendants, names
from report import align, number

__all__ = ["Attack", "Soak", "excused", "soak", "table"]

CALLERS = [("blocking", "http"), ("blocking", "grpc"), ("asyncio", "http"), ("asyncio", "grpc"), ("raw", "http")]
CALLERS += [("streams", "grpc"), ("stopped", "grpc"), ("bad", "http"), ("bad", "grpc")]
KINDS = list(dict.fromkeys(kind for kind, _ in CALLERS))
CHAINED = [(kind, protocol) for kind in ("nested", "pipeline") for protocol in ("http", "grpc")]  # need more models
TIMEOUT_S = 10.0
DEEDS = {"kill": 6, "pause": 4, "stop": 2, "unbind": 2}  # the attacks, and how often each is chosen
TARGETS = {"server": 4, "guard": 2, "worker": 8, "template": 6, "remote": 8, "stub": 8}  # of kills and pauses
TARGETS |= {"client": 3, "host": 1}
PROGRAMS = {"host": "host", "server": "tritonserver", "guard": "guard.py", "remote": "pytriton"}
PROGRAMS |= {"worker": "python -c", "template": "template", "stub": "triton_python_backend_stub"}
ORDERLY = ("stop", "unbind")
BETWEEN_S = (2.0, 8.0)
PAUSE_S = (2.0, 10.0)
SERVER_PAUSE_S = 14.0  # a server that dies more than five times a minute is given up
HOST_LIFE_S = 150.0  # of hosts whose growth counts, and before one is killed
EXCUSED_S = 5.0  # after the first right answer: what was queued for a dead process fails later
RESTARTED, UNBOUND = "the server was launched again", "bound again"
TRY_S, PATIENCE_S, POLL_S, SAMPLE_S = 0.3, 30.0, 0.05, 5.0
IDLE_S = 1.5


@dataclass
class Attack:
    """What was done to what, such as ``kill server``, and from when to when it excuses failures."""

    what: str
    began: float
    ended: float = float("inf")
    back_s: float | None = None


@dataclass
class Soak:
    """What happened.

    Attributes:
        found: By the callers.
        attacks: In their order.
        gone_s: Seconds until a host and all that belongs to it had gone, by the signal that it got.
        own_deaths: How often a server was launched again without having been killed: Triton 2.51 has weaknesses.
        lives: What each host held at times.
    """

    found: Found = field(default_factory=Found)
    attacks: list[Attack] = field(default_factory=list)
    gone_s: dict[str, list[float]] = field(default_factory=dict)
    own_deaths: int = 0
    lives: list[list[Sample]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def excused(failure: Failure, attacks: Sequence[Attack]) -> bool:
    """Whether an attack excuses a call that was not answered right; none excuses a wrong answer.

    Those on templates excuse nothing, as their workers live on.
    """
    for each in attacks:
        if failure.ended < each.began or failure.began > each.ended or failure.what.startswith("wrong"):
            continue
        if failure.what == "slow" and each.what != "pause client":
            continue
        deed, _, target = each.what.partition(" ")
        if target == "template":
            continue
        if deed not in ORDERLY or failure.what == "refused":
            return True
        if deed == "stop" and failure.what == "closed" and failure.sent >= each.began:
            return True
    return False


class Scene:
    """A host and its callers, and what is done to them; a context.

    Args:
        system: What answers.
        attacks: Those of DEEDS that happen.
        seed: Of the random choices.
        back_s: Most seconds to the next right answer.
        folder: An empty one for the hosts' files.
        result: Gets what happens.
        kinds: Of the callers; default: all that fit.
    """

    def __init__(
        self,
        system: System,
        attacks: Sequence[str],
        seed: int,
        back_s: float,
        folder: Path,
        result: Soak,
        kinds: Collection[str] = (),
    ) -> None:
        self._system, self._attacks, self._dice, self._back_s = system, attacks, random.Random(seed), back_s
        self._folder, self._result = folder, result
        self._ours = system.name != "raw"  # which does not end by itself after stopped streams, and has no errors
        lacking = {"bad"} if attacks else set() if self._ours else {"bad", "stopped"}
        self._kinds = [each for each in CALLERS + CHAINED if each[0] in (kinds or KINDS) and each[0] not in lacking]
        self._hosts, self._callers = ExitStack(), list[Caller]()
        resource_tracker.ensure_running()  # of multiprocessing, which callers start
        self._others = descendants()

    def __enter__(self) -> Scene:
        with ExitStack() as starting:
            starting.push(self)
            self._start_host()
            for kind, protocol in self._kinds:
                self._callers.append(Caller(kind, protocol, self._host.ports[protocol], TIMEOUT_S, self._result.found))
            self._poll(lambda: self._result.found.calls["right"], "call was answered")
            starting.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._hosts:
            ended = [each.title for each in self._callers if not each.end()]
            self._result.problems += [f"the {title} caller ended by itself" for title in ended]
            if kind is None:
                time.sleep(IDLE_S)
                self._end_host(signal.SIGTERM)

    def step(self) -> str:
        """Wait, attack, and look; returns the attack, or what was seen."""
        if not self._attacks:
            time.sleep(SAMPLE_S)
            return f"{sum(self._look().rss_bytes.values()) / 2**20:.0f} MiB"
        time.sleep(self._dice.uniform(*BETWEEN_S))
        deed = self._dice.choices(list(self._attacks), [DEEDS[each] for each in self._attacks])[0]
        target = {"stop": "host", "unbind": "models"}.get(deed) or self._target()
        self._look()
        with self._attack(f"{deed} {target}") as attack:
            if deed == "unbind":
                again = self._host.output().count(UNBOUND)
                os.kill(self._host.pid, signal.SIGUSR1)
                self._poll(lambda: self._host.output().count(UNBOUND) > again, "unbound model was bound again")
            elif deed == "stop" or (deed, target) == ("kill", "host"):
                self._end_host(signal.SIGTERM if deed == "stop" else signal.SIGKILL)
                attack.back_s = self._start_host()
            elif target == "client":
                self._disturb_client(deed)
            else:
                self._disturb(deed, target)
                attack.back_s = wait_right_answer(self._host)
                if attack.back_s > self._back_s:
                    complaint = f"after {attack.what}, it took {attack.back_s:.2f} s to the next right answer"
                    self._result.problems.append(f"{complaint}; the last lines:\n{self._host.tail()}")
        self._look()
        return attack.what

    @contextmanager
    def _attack(self, what: str) -> Iterator[Attack]:
        attack = Attack(what, time.monotonic())
        self._result.attacks.append(attack)
        yield attack
        attack.ended = time.monotonic() + (0 if what.startswith(ORDERLY) else EXCUSED_S)

    def _target(self) -> str:
        """What is killed or paused next: something that may be now."""
        now, programs = time.monotonic(), {name.partition(" #")[0] for name in names(self._host.family()).values()}
        targets = {name: share for name, share in TARGETS.items() if name == "client" or PROGRAMS[name] in programs}
        if now < self._server_killed + SERVER_PAUSE_S:
            targets = {name: share for name, share in targets.items() if name not in ("server", "guard")}
        if now < self._host_started + HOST_LIFE_S:
            del targets["host"]
        return self._dice.choices(list(targets), list(targets.values()))[0]

    def _disturb_client(self, deed: str) -> None:
        index = self._dice.randrange(len(self._callers))
        if deed == "kill":
            self._callers[index] = self._callers[index].restart()
        else:
            self._pause(self._callers[index].pid)

    def _disturb(self, deed: str, target: str) -> None:
        named = names(self._host.family())
        found = [pid for pid, name in named.items() if name.partition(" #")[0] == PROGRAMS[target]]
        with suppress(ProcessLookupError, IndexError):  # it may have just ended
            pid = self._dice.choice(found)
            if deed == "pause":
                self._pause(pid)
                return
            os.kill(pid, signal.SIGKILL)
            if target in ("server", "guard"):
                self._server_killed = time.monotonic()
                self._kills += 1

    def _pause(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._dice.uniform(*PAUSE_S))
        os.kill(pid, signal.SIGCONT)

    def _poll(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise BenchError(f"no {what} in {PATIENCE_S} s; the last lines:\n{self._host.tail()}")
            time.sleep(POLL_S)

    def _start_host(self) -> float:
        """Start a host, where the last one was; returns the seconds to its first answer."""
        lives = self._result.lives
        ports = [self._host.ports[name] for name in ("http", "grpc", "metrics")] if lives else ()
        chained = [NESTED] if set(CHAINED) & set(self._kinds) else []
        models = (STREAM, *([ERRANT] if self._ours else []), *chained, MODEL, *([STEPS] if chained else []))
        self._host = self._hosts.enter_context(Host(self._system, self._folder / str(len(lives)), models, ports))
        first_s = self._host.wait_first_answer()
        lives.append([])
        self._host_started = self._server_killed = time.monotonic()
        self._kills = self._launches = 0
        self._look()
        return first_s

    def _end_host(self, number: signal.Signals) -> None:
        """End the host, and note what it leaves."""
        self._look()
        status, life = 0 if number == signal.SIGTERM else -number, self._result.lives[-1]
        self._result.gone_s.setdefault(number.name, []).append(self._host.stop(number))
        problems = self._host.left_behind(status, [*self._others, *(caller.pid for caller in self._callers)])
        if not self._attacks or life[-1].at_s > HOST_LIFE_S:
            problems += grown(life, lasting=["host"] if self._attacks else ())
        self._result.problems += [f"host {len(self._result.lives)}, {number.name}: {each}" for each in problems]

    def _look(self) -> Sample:
        """Look at the host, and whether its server has died by itself: that excuses failures since the last look."""
        life, now = self._result.lives[-1], time.monotonic()
        launches = self._host.output().count(RESTARTED)
        if launches - self._launches > self._kills:
            self._result.own_deaths += launches - self._launches - self._kills
            since = self._host_started + (life[-1].at_s if life else 0)
            self._result.attacks.append(Attack("die server", since, now + EXCUSED_S))
        self._launches, self._kills = launches, 0 if launches > self._launches else self._kills
        life.append(look(self._host, now - self._host_started))
        return life[-1]


def soak(scene: Scene, minutes: float, result: Soak) -> None:
    """Load a system for so many minutes.

    Raises:
        BenchError: A host did not start, or has ended.
    """
    with scene:
        began = time.monotonic()
        while (seconds := time.monotonic() - began) < 60 * minutes:
            print(f"{seconds:6.0f} s  {scene.step()}  {dict(result.found.calls)}", file=sys.stderr, flush=True)
    unexcused = Counter(
        f"{each.caller}: {each.what}: {each.detail}"
        for each in result.found.failures
        if not excused(each, result.attacks)
    )
    result.problems += [f"{count} calls of {what}" for what, count in unexcused.items()]


def wait_right_answer(host: Host) -> float:
    """Seconds until the server answers a new request, and right, 30 at most."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        with suppress(LoadError, OSError):
            check("http", host.ports["http"], WORKLOADS["64 B"], timeout_s=TRY_S)
            break
        time.sleep(POLL_S)
    return time.monotonic() - began


def table(result: Soak) -> str:
    """A line for each sort of attack, for what calls came to, and for what the last host held."""
    lines = [["", "times", "next right answer after s: median", "longest"]]
    for what in sorted({each.what for each in result.attacks}):
        alike = [each for each in result.attacks if each.what == what]
        seconds = [each.back_s for each in alike if each.back_s is not None]
        back = [f"{median(seconds):.2f}", f"{max(seconds):.2f}"] if seconds else ["", ""]
        lines.append([what, str(len(alike)), *back])
    lines += [[f"calls, {what}", str(count), "", ""] for what, count in sorted(result.found.calls.items())]
    if samples := result.lives[-1] if result.lives else []:
        lines.append(["the last host", "", "settled", "end"])
        before = settled(samples).quantities()
        for name, (amount, _) in samples[-1].quantities().items():
            lines.append([f"  {name}", "", number(before[name][0]) if name in before else "", number(amount)])
    return align(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=["ours", PYTHON_PROXY, "raw"], default="ours", help="what answers (ours)")
    parser.add_argument("--workers", type=int, default=0, help="worker processes of each model; 0 is a thread (0)")
    parser.add_argument("--share", action="store_true", help="memory of worker processes, by a template of each model")
    parser.add_argument("--remote", type=int, default=0, help="remote workers on this machine, over TCP (0)")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--attacks", nargs="+", choices=DEEDS, default=[], help="what is done meanwhile (nothing)")
    parser.add_argument(
        "--callers",
        nargs="+",
        choices=[*KINDS, *dict(CHAINED)],
        default=[],
        help="kinds of what calls (all but nested and pipeline)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random choices (0)")
    parser.add_argument("--back", type=float, default=2.0, help="most seconds to the next right answer (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the result")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder for the hosts' files and logs")
    chosen = parser.parse_args(arguments)
    if chosen.share and not chosen.workers:
        parser.error("--share needs --workers")
    if chosen.system == "raw" and (chosen.attacks or chosen.workers or chosen.remote):
        parser.error("--attacks, --workers and --remote need a system of pytriton's")
    adopt_orphans()
    system, result = find_system(chosen.system), Soak()
    options = ["--restart"] if chosen.attacks else []
    options += [f"--workers={chosen.workers}"] if chosen.workers else []
    options += ["--share"] if chosen.share else []
    options += [f"--remote={chosen.remote}"] if chosen.remote else []
    system = replace(system, command=[*system.command, *options])
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        files = chosen.keep or Path(folder)
        scene = Scene(system, chosen.attacks, chosen.seed, chosen.back, files, result, chosen.callers)
        try:
            soak(scene, chosen.minutes, result)
        except BenchError as error:
            result.problems.append(str(error))
    if chosen.json:
        found = {"calls": result.found.calls, "failures": result.found.failures}
        found |= {name: getattr(result, name) for name in ("gone_s", "own_deaths", "problems")}
        found |= {"attacks": [asdict(each) for each in result.attacks]}
        found |= {"lives": [[asdict(sample) for sample in life] for life in result.lives]}
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    print(table(result))
    for problem in result.problems:
        print(f"PROBLEM: {problem}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
