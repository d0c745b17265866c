"""What the kernel says of processes: families, names, CPU time, memory, open files; and how to end them."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Memory", "adopt_orphans", "command_line", "cpu_s", "descendants", "end_descendants", "end_with_parent"]
__all__ += [
    "family",
    "memory",
    "names",
    "open_files",
    "open_sockets",
    "process_name",
    "read_cpu_s",
    "read_memory",
    "resident_bytes",
]
__all__ += ["shared_memory", "sleeps", "threads", "wait_gone"]

KILL_TIMEOUT_S = 1.0
_GONE = (FileNotFoundError, ProcessLookupError)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PRCTL = ctypes.CDLL(None).prctl
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SLEEPS = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Memory:
    """Resident memory: all pages of a process, and with each shared page divided by the number of its users."""

    rss_bytes: int
    pss_bytes: int


def family(pid: int) -> list[int]:
    """A process and its descendants, less those that have ended."""
    if _read(pid, "stat").rpartition(")")[2][:2] in ("", " Z"):
        return []
    children = (_read(pid, f"task/{thread}/children").split() for thread in _listed(pid, "task"))
    return [pid, *(each for found in children for child in found for each in family(int(child)))]


def names(pids: Sequence[int]) -> dict[int, str]:
    """A name for each process of a family; its head is the host, and those of one name are numbered."""
    result: dict[int, str] = {}
    for pid in pids:
        name = "host" if pid == pids[0] else process_name(command_line(pid))
        number = sum(other.partition(" #")[0] == name for other in result.values()) + 1
        result[pid] = name if number == 1 else f"{name} #{number}"
    return result


def command_line(pid: int) -> list[str]:
    """The arguments of a process, the program first; one that is empty if the process is gone."""
    return _read(pid, "cmdline").rstrip("\0").split("\0")


def process_name(arguments: Sequence[str]) -> str:
    """The name of a program, or what a Python interpreter runs; "template" for that of workers which share memory."""
    program = os.path.basename(arguments[0])
    if not program.startswith("python"):
        return program
    for position, argument in enumerate(arguments[1:], 1):
        if argument == "-c":
            return "template" if arguments[-1].endswith("-template") else "python -c"
        if argument == "-m" and position + 1 < len(arguments):
            return arguments[position + 1]
        if not argument.startswith("-"):
            return os.path.basename(argument)
    return program


def cpu_s(pids: Iterable[int]) -> dict[int, float]:
    """CPU seconds, user and system, that each process has used; 0 of one that is gone."""
    return {pid: read_cpu_s(_read(pid, "stat")) for pid in pids}


def read_cpu_s(stat: str) -> float:
    """CPU seconds in the text of ``/proc/<pid>/stat``, whatever the process calls itself; 0 of an empty one."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if fields else 0.0


def sleeps(pids: Iterable[int]) -> int:
    """How often threads have gone to sleep so far (voluntary context switches)."""
    statuses = [_read(pid, f"task/{thread}/status") for pid in pids for thread in _listed(pid, "task")]
    return sum(int(found) for status in statuses for found in _SLEEPS.findall(status))


def memory(pid: int) -> Memory:
    """Resident memory; 0 of a process that is gone."""
    return read_memory(_read(pid, "smaps_rollup"))


def read_memory(rollup: str) -> Memory:
    """Resident memory in the text of ``/proc/<pid>/smaps_rollup``."""
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in rollup.splitlines()[1:])}
    return Memory(1024 * kib.get("Rss", 0), 1024 * kib.get("Pss", 0))


def resident_bytes(pid: int) -> int:
    """Resident memory, quicker than :func:`memory`; 0 of a process that is gone."""
    fields = _read(pid, "statm").split()
    return int(fields[1]) * _PAGE_BYTES if fields else 0


def open_files(pid: int) -> int:
    """Number of open file descriptors."""
    return len(_listed(pid, "fd"))


def open_sockets(pid: int) -> int:
    """Number of open file descriptors that are sockets, connected or not."""
    found = 0
    for name in _listed(pid, "fd"):
        with suppress(*_GONE):
            found += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
    return found


def threads(pid: int) -> int:
    """Number of threads, those that Python does not know included."""
    return len(_listed(pid, "task"))


def shared_memory(pid: int) -> set[str]:
    """Paths of the files in /dev/shm that a process maps."""
    fields = (line.split(maxsplit=5) for line in _read(pid, "maps").splitlines())
    return {field[5] for field in fields if len(field) == 6 and field[5].startswith("/dev/shm/")}


def wait_gone(pids: Iterable[int], timeout_s: float) -> list[int]:
    """Wait for the end of processes; returns those that still run after the timeout."""
    deadline, left = time.monotonic() + timeout_s, []
    with ExitStack() as closing:
        descriptors = {}  # which refer to no later process of the same number
        for pid in pids:
            with suppress(ProcessLookupError):
                descriptors[pid] = os.pidfd_open(pid)
                closing.callback(os.close, descriptors[pid])
        for pid, descriptor in descriptors.items():
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                left.append(pid)
    return left


def end_with_parent() -> None:
    """Have the kernel send this process SIGTERM when the thread that started it ends."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> None:
    """Make descendants whose parents end children of this process, so that none gets away."""
    _PRCTL(_PR_SET_CHILD_SUBREAPER, 1)


def descendants() -> list[int]:
    """All processes that this one and its descendants have started and that still run."""
    return family(os.getpid())[1:]


def end_descendants(grace_s: float) -> None:
    """Kill the descendants of this process that do not end by themselves within ``grace_s``."""
    wait_gone(descendants(), grace_s)
    while left := descendants():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_gone(left, KILL_TIMEOUT_S)


def _listed(pid: int, name: str) -> list[str]:
    """The entries of a folder of /proc; none if the process is gone."""
    try:
        return os.listdir(f"/proc/{pid}/{name}")
    except _GONE:
        return []


def _read(pid: int, name: str) -> str:
    """A file of /proc; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except _GONE:
        return ""
