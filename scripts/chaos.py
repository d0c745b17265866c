"""Kills servers, stubs and clients at random while clients call, and says what became of the calls.

Usage: ``python scripts/chaos.py [--minutes 30] [--seed 0] [--json FILE]``. Exit status 1 means problems: wrong answers,
calls that took longer than their timeouts, a server that was not back in time, something left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from chaos_caller import LIMIT_S
from processes import adopt_orphans, end_with_parent, names, open_files, resident_bytes
from systems import MODEL, Host, find_system
from wire import HOST

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError

CALLERS = ["http", "http", "grpc", "grpc", "asyncio"]
PROTOCOL = {"http": "http", "grpc": "grpc", "asyncio": "http"}
PAUSE_S = (2.0, 8.0)
SERVER_PAUSE_S = 14.0
"""A server that dies more than five times a minute is given up."""
BACK_S = 2.0
TRY_S = 0.3
PATIENCE_S = 30.0
SETTLED_S = 60.0


@dataclass
class Chaos:
    """What happened.

    Attributes:
        calls: Their number, by what they came to: ``right``, ``wrong``, or an error's class.
        longest_s: The longest call.
        kills: Number of processes killed, by what they were.
        back_s: Seconds until the next right answer, for each kill of a server or stub.
        rss_bytes: Of the hosting process: a minute after the start, and at the end.
        files: Open ones of the same, at the same times.
    """

    calls: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    back_s: dict[str, list[float]] = field(default_factory=lambda: {"server": [], "stub": []})
    rss_bytes: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Caller:
    """A client process, whose reports go into the result."""

    def __init__(self, kind: str, host: Host, result: Chaos, lock: threading.Lock) -> None:
        self.kind = kind
        self._result, self._lock = result, lock
        script = Path(__file__).with_name("chaos_caller.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), kind, str(host.ports[PROTOCOL[kind]])],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def end(self, number: signal.Signals) -> None:
        """End the process, and read what it still says."""
        self.process.send_signal(number)
        self.process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with suppress(json.JSONDecodeError):  # cut short by a kill
                    report = json.loads(line)
                    with self._lock:
                        self._result.calls.update(report["counts"])
                        self._result.longest_s = max(self._result.longest_s, report["longest_s"])


def cause(minutes: float, seed: int, folder: Path) -> Chaos:
    """Run for so many minutes."""
    result, lock, dice = Chaos(), threading.Lock(), random.Random(seed)
    system = find_system("ours")
    system.command[-1] = str(Path(__file__).with_name("hosts") / "restarted.py")
    with Host(system, folder) as host:
        host.wait_first_answer()
        callers = [Caller(kind, host, result, lock) for kind in CALLERS]
        began = server_killed = time.monotonic()
        while time.monotonic() - began < 60 * minutes:
            time.sleep(dice.uniform(*PAUSE_S))
            if not result.files and time.monotonic() - began > SETTLED_S:
                look(host, result)
            what = dice.choice(["server", "stub", "stub", "client"])
            if what == "server" and time.monotonic() - server_killed < SERVER_PAUSE_S:
                what = "stub"
            if what == "client":
                number = dice.randrange(len(callers))
                callers[number].end(signal.SIGKILL)
                callers[number] = Caller(callers[number].kind, host, result, lock)
            elif kill(host, {"server": "tritonserver", "stub": "triton_python_backend_stub"}[what]):
                if what == "server":
                    server_killed = time.monotonic()
                result.back_s[what].append(wait_right_answer(host))
            else:
                continue
            result.kills[what] += 1
            print(f"{time.monotonic() - began:6.0f} s  {dict(result.kills)}  {dict(result.calls)}", flush=True)
        for caller in callers:
            if caller.process.poll() is not None:
                result.problems.append(f"the {caller.kind} client ended by itself: {caller.process.returncode}")
            caller.end(signal.SIGTERM)
        look(host, result)
        host.stop()
        result.problems += host.left_behind()
        judge(result, host)
    return result


def look(host: Host, result: Chaos) -> None:
    """Note what the hosting process holds."""
    host.family()
    result.rss_bytes.append(resident_bytes(host.pid))
    result.files.append(open_files(host.pid))


def kill(host: Host, name: str) -> bool:
    """Kill one process of the host's family; False if there is none of this name now."""
    found = [pid for pid, its_name in names(host.family()).items() if its_name.startswith(name)]
    with suppress(ProcessLookupError):
        for pid in found[:1]:
            os.kill(pid, signal.SIGKILL)
    return bool(found)


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


def judge(result: Chaos, host: Host) -> None:
    """Note what is worse than it may be."""
    if result.calls["wrong"] or not result.calls["right"]:
        result.problems.append(f"{result.calls['wrong']} wrong and {result.calls['right']} right answers")
    if result.longest_s > LIMIT_S:
        result.problems.append(f"a call took {result.longest_s:.1f} s, longer than its timeouts")
    for what, seconds in result.back_s.items():
        if seconds and max(seconds) > BACK_S:
            result.problems.append(f"after a kill of the {what}, it took {max(seconds):.2f} s to the next right answer")
    if len(result.files) == 2 and result.files[1] > result.files[0] + 5:
        result.problems.append(f"open files of the host: {result.files[0]}, then {result.files[1]}")
    if result.problems:
        print(host.tail())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--json", type=Path, help="where to write the result")
    chosen = parser.parse_args(arguments)
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        result = cause(chosen.minutes, chosen.seed, Path(folder))
    values: dict[str, Any] = {item.name: getattr(result, item.name) for item in fields(result)}
    if chosen.json:
        chosen.json.write_text(json.dumps(values, indent=2))
    for name, value in values.items():
        print(f"{name}: {dict(value) if isinstance(value, Counter) else value}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
