"""What worker processes of the tests are made from, and the files over which they meet the tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pytriton.decorators import batch
from pytriton.model_config import Tensor

POLL_S = 0.005
PID = [Tensor(name="y", shape=(-1,), dtype=np.float64)]  # the output of telling_pid() and gated()


def wait_for_file(path: Path) -> None:
    """For callables: until the test opens its gate."""
    while not path.exists():
        threading.Event().wait(POLL_S)


def doubling() -> Callable[..., Any]:
    @batch
    def infer(x: Any) -> list[Any]:
        return [x * 2]

    return infer


def telling_pid() -> Callable[..., Any]:
    """The answer to any request is the worker's process id."""

    @batch
    def infer(x: Any) -> list[Any]:
        return [np.full_like(x, os.getpid(), np.float64)]

    return infer


def taking_dlpack() -> Callable[..., Any]:
    """Tells of an input its rows, and whether DLPack takes the same memory, which is writable and the arena's."""

    @batch
    def infer(x: Any) -> list[Any]:
        address = np.from_dlpack(x).ctypes.data
        answer = [len(x), address == x.ctypes.data, x.flags.writeable, "pytriton-arena" in _mapping(address)]
        return [np.array([answer] * len(x), np.float32)]

    return infer


def _mapping(address: int) -> str:
    """The line of this process's memory map that the address is in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(number, 16) for number in line.partition(" ")[0].split("-"))
        if start <= address < end:
            return line
    raise LookupError(f"nothing is mapped at {address:#x}")


def gated(folder: Path) -> Callable[[], Any]:
    """A callable that writes its process id to ``entered-<pid>``, and answers with it once there is a file ``open``."""

    def factory() -> Any:
        @batch
        def infer(x: Any) -> list[Any]:
            (folder / f"entered-{os.getpid()}").touch()
            wait_for_file(folder / "open")
            return [np.full_like(x, os.getpid(), np.float64)]

        return infer

    return factory


def entered(folder: Path) -> list[int]:
    """The workers whose gated callables were called."""
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob("entered-*"))
