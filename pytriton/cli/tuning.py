"""``--tune``: with how many rows in one call a saved model computes most rows per second, measured once for a file."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from pytriton.constants import PYTRITON_HOME
from pytriton.exceptions import PyTritonValidationError
from pytriton.logs import get_logger
from pytriton.saved.layouts import locate
from pytriton.saved.model import load

__all__ = ["best_rows", "tuned_rows"]

LOGGER = get_logger("pytriton.saved")

FILE = "tuned.json"
GAIN = 1.05  # rows per second of a larger batch, beside those of the best one
DOUBLINGS = 2  # that may bring nothing before larger ones are not tried
CALLS, CALLS_S = 5, 0.1  # with each number of rows: so many calls, or so many seconds
LONGEST_CALL_S = 1.0


def tuned_rows(path: Path, arguments: Mapping[str, Any], most: int | None, threads: int) -> int:
    """The number of rows in one call with which a model computes most rows per second.

    It is measured in a process of its own, and remembered until the file or what it is loaded with changes.

    Args:
        arguments: Of :func:`pytriton.saved.load`.
        most: Rows to try at most, those that the model takes by default; also the result for a model without batch
            axis or example.
        threads: For one call of the model.

    Raises as :func:`pytriton.saved.load`, and PyTritonValidationError if the process dies.
    """
    memory = PYTRITON_HOME / FILE
    name, state = str(path.resolve()), [*_state(locate(path).path), {**arguments, "threads": threads}, most]
    known = _read(memory)
    if known.get(name, {}).get("state") != json.loads(json.dumps(state)):
        known[name] = {"state": state, "rows": _measured(path, {**arguments, "threads": threads}, most)}
        _write(memory, known)
    LOGGER.info("%s: %d rows in one call, as measured; remembered in %s.", path, known[name]["rows"], memory)
    return int(known[name]["rows"])


def best_rows(call_s: Callable[[int], float], most: int) -> int:
    """The number of rows, a power of two, with which most rows are computed per second.

    Args:
        call_s: What a call with a number of rows takes, in seconds.
        most: Rows to try at most.
    """
    best, best_rate, rows = 1, 0.0, 1
    while rows <= most and rows <= best << DOUBLINGS:
        took_s = call_s(rows)
        if rows / took_s > GAIN * best_rate:
            best, best_rate = rows, rows / took_s
        if took_s > LONGEST_CALL_S:
            break
        rows *= 2
    return best


def _measured(path: Path, arguments: Mapping[str, Any], most: int | None) -> int:
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # the memory that it takes ends with it
            return pool.submit(_measure, path, arguments, most).result()
    except BrokenExecutor as error:
        raise PyTritonValidationError(
            f"the process that measured {path} died, perhaps for want of memory; lower --max-batch-size, or leave out "
            "--tune"
        ) from error


def _measure(path: Path, arguments: Mapping[str, Any], limit: int | None) -> int:
    model = load(path, **arguments)
    most = limit or model.most_rows
    if not model.contents.batching or not model.example:
        return most

    def call_s(rows: int) -> float:
        predict = partial(model.predict, {name: np.repeat(array[:1], rows, 0) for name, array in model.example.items()})
        try:
            times = [_time(predict)]  # the first call with a size may allocate
            while len(times) <= CALLS and sum(times) < CALLS_S:
                times.append(_time(predict))
        except Exception:  # of the library, out of memory for instance
            return math.inf
        return min(times)

    return best_rows(call_s, most)


def _time(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _state(path: Path) -> tuple[int, int]:
    """The size of a file or of all files in a folder, and when the last of them was changed."""
    found = [each.stat() for each in (path, *path.rglob("*"))]
    return sum(each.st_size for each in found), max(each.st_mtime_ns for each in found)


def _read(memory: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        known = json.loads(memory.read_bytes())
        if isinstance(known, dict) and all(isinstance(each, dict) for each in known.values()):
            return known
    return {}


def _write(memory: Path, known: Mapping[str, Any]) -> None:
    """Replace the file at once; what cannot be written is measured again."""
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=memory.parent, prefix=FILE, delete=False) as file:
            try:
                json.dump(known, file, indent=1)
                file.flush()
                os.replace(file.name, memory)
            except OSError:  # as of a full disk
                os.unlink(file.name)
