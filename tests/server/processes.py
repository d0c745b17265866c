"""Looks at processes through /proc, and at what a server may leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pytriton.config import TritonConfig
from pytriton.utils.workspace import TEMPORARY_FOLDERS

HOST = Path(__file__).with_name("host.py")
DEADLINE_S = 60.0


def wait_for_error(call: Callable[[float], object], kind: type[Exception], text: str) -> None:
    """Make a call that fails, with longer and longer time limits, until its error has a text.

    A server on a busy machine may say nothing within a short limit, and a long one is waited for to its end.

    Raises:
        AssertionError: The error with the longest limit is another one.
    """
    said = ""
    for limit_s in (1.0, 4.0, 16.0, 60.0):
        try:
            call(limit_s)
        except kind as error:
            said = str(error)
        if text in said:
            return
    raise AssertionError(f"{text!r} is not in {said!r}")


def wait_for(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Poll until the condition holds."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {deadline_s} s for {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie: all of its threads have ended, and what they held is closed."""
    process = Path(f"/proc/{pid}")
    try:
        is_zombie = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return not is_zombie or len([*(process / "task").iterdir()]) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0") + [""] * 4
    except (FileNotFoundError, ProcessLookupError):
        return [""] * 4


def descendants(pid: int) -> list[int]:
    """Children of a process, and theirs. The kernel's own lists of children leave some out while others end."""
    children = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            parent = path.read_text().rpartition(")")[2].split()[1]
            children[int(parent)].append(int(path.parent.name))
    found = [*children[pid]]
    for each in found:  # which grows
        found += children[each]
    return found


def temporary_folders(folder: Path) -> list[Path]:
    """What servers below a folder have noted of their temporary folders."""
    return [Path(name) for notes in folder.rglob(TEMPORARY_FOLDERS) for name in notes.read_text().split("\0")[:-1]]


def workers_of(model: str) -> list[int]:
    """The worker processes of a model that this process serves."""
    return [
        pid
        for pid in descendants(os.getpid())
        if is_worker(pid) and any(word.rpartition("-")[0] == model for word in command_line(pid))
    ]


def is_worker(pid: int) -> bool:
    """Whether a process is a worker that runs, started or forked."""
    programs = ("worker_main", "template_main")
    is_one = any(program in word for word in command_line(pid) for program in programs) and not is_template(pid)
    return is_one and is_alive(pid)


def is_template(pid: int) -> bool:
    """Whether a process forks workers."""
    return any(word.endswith("-template") for word in command_line(pid))


class Host:
    """Runs host.py in a folder of its own.

    Args:
        folder: That folder.
        config: Of its server.
        arguments: More of its command line.
        program: What to run: an interpreter and a script; default: host.py in this interpreter.
        environment: Of it, with its PYTRITON_HOME added; default: that of this process.
    """

    def __init__(
        self,
        folder: Path,
        config: TritonConfig,
        *arguments: str,
        program: Sequence[str | Path] = (sys.executable, HOST),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.url = f"http://{config.http_address}:{config.http_port}"
        self.metrics_url = f"http://{config.http_address}:{config.metrics_port}/metrics"
        options = {name: value for name, value in config.to_dict().items() if value is not None}
        self.process = subprocess.Popen(
            [*program, folder, json.dumps(options), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**(environment or os.environ), "PYTRITON_HOME": str(self.home)},
        )
        try:
            wait_for(lambda: (folder / "ready").exists() or self.process.poll() is not None, "the host to be ready")
            assert (folder / "ready").exists(), self.output()
        except BaseException:
            self.process.kill()
            raise
        self.family = descendants(self.process.pid)
        self.server = self._only("tritonserver", 0)
        self.guard = self._only("guard.py", 3)
        (prefix,) = [
            word.split("=")[-1] for word in command_line(self.server) if word.startswith("--backend-config=python,shm")
        ]
        self.prefix = prefix
        self.temporary = temporary_folders(self.home)

    def _only(self, name: str, position: int) -> int:
        (pid,) = [pid for pid in self.family if os.path.basename(command_line(pid)[position]) == name]
        return pid

    def stub(self, model: str) -> int:
        """The process of a model's proxy."""
        (pid,) = [
            pid
            for pid in descendants(self.server)
            if "stub" in command_line(pid)[0] and f"/{model}/" in command_line(pid)[1]
        ]
        return pid

    def output(self) -> str:
        """Everything that the host wrote, once it has ended."""
        try:
            return self.process.communicate(timeout=DEADLINE_S)[0]
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(1)  # host.py shows what its threads do
            self.process.kill()
            raise AssertionError(f"the host did not end: {self.process.communicate()[0]}") from None

    def end(self, number: signal.Signals) -> str:
        """Signal the host, wait for its end, and return what it wrote."""
        self.process.send_signal(number)
        return self.output()

    def assert_nothing_left(self) -> None:
        wait_for(lambda: not any(map(is_alive, self.family)), "all processes to end")
        wait_for(lambda: not [*Path("/dev/shm").glob(f"{self.prefix}*")], "shared memory to be removed")
        wait_for(lambda: not [*self.home.iterdir()], "the workspace to be removed")
        assert not any(folder.exists() for folder in self.temporary)

    def kill(self) -> None:
        """Make sure that nothing outlives the test."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
