"""Memory and CPU time of processes of this machine, from ``/proc``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["ProcessSampler"]

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
AFTER_NAME = 3  # number, in proc(5), of the first field after the name, which may have spaces


class ProcessSampler:
    """Tells how much memory and CPU time processes use; CPU since the call before."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, float]] = {}  # monotonic time, seconds of CPU

    def sample(self, processes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Measure processes.

        Args:
            processes: Each has a ``pid``, and a ``name`` and a ``kind``, which are returned.

        Returns:
            Those that run, with ``memory``, in bytes, and ``cpu``, in cores; None at the first time.
        """
        found, before = [], self._before
        self._before = {}
        for process in processes:
            pid = process["pid"]
            try:
                memory, cpu_s = _read(pid)
            except (OSError, ValueError, IndexError):  # it has ended
                continue
            now = time.monotonic()
            earlier_s, earlier_cpu_s = before.get(pid, (now, cpu_s))
            passed_s = now - earlier_s
            self._before[pid] = now, cpu_s
            cores = max(0.0, cpu_s - earlier_cpu_s) / passed_s if passed_s > 0 else None
            found.append({**process, "memory": memory, "cpu": None if cores is None else round(cores, 3)})
        return found


def _read(pid: int) -> tuple[int, float]:
    """Resident memory in bytes and CPU time in seconds."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 1 :].split()
    user, system, pages = (int(fields[number - AFTER_NAME]) for number in (14, 15, 24))
    return pages * PAGE_BYTES, (user + system) / TICKS_PER_S
