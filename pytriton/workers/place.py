"""What one worker process gets of the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytriton.workers.devices import CUDA_VISIBLE_DEVICES, visible_in_worker

__all__ = ["THREAD_COUNTS", "Place", "share"]

# What the usual libraries of numbers read when they are loaded; each would start a thread per core in every worker.
THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Place:
    """The share of one worker.

    Attributes:
        device: As the launching process calls it; None is none.
        threads: For libraries that start threads of their own; None leaves that to them.
        cores: To which the worker keeps; None is all.
    """

    device: str | None = None
    threads: int | None = None
    cores: tuple[int, ...] | None = None

    def device_in_worker(self) -> str | None:
        """What the worker calls its device."""
        return visible_in_worker(self.device)[0]

    def environment(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Of the worker, from that of this process, whose own thread counts win."""
        result = dict(environment)
        if self.threads is not None:
            result = {**dict.fromkeys(THREAD_COUNTS, str(self.threads)), **result}
        visible = visible_in_worker(self.device, environment)[1]
        return result if visible is None else {**result, CUDA_VISIBLE_DEVICES: visible}


def share(cores: Sequence[int], index: int, count: int) -> list[int]:
    """The cores of one of several workers: neighbours, or one core for several workers if there are not enough."""
    if count > len(cores):
        return [cores[index % len(cores)]]
    return list(cores[index * len(cores) // count : (index + 1) * len(cores) // count])
