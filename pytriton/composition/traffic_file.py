"""What the edge has to know to pass requests on, and what it counts: a file that it maps, as this process does."""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FILE_PARAMETER", "TrafficFile"]

FILE_PARAMETER = "pytriton_traffic"  # of a model's configuration: the name of its file
FORMAT = 1
WORD = 8
# Places of numbers; then two lists of weights, of which one is valid, then the counters, then the options as JSON
FORMAT_AT, OPEN_AT, VALID_AT, WEIGHTS_AT, COUNTERS_AT, HEAD = 0, 1, 2, 3, 4, 5


class TrafficFile:
    """Is written once, but for the weights, and whether the edge may pass requests on (``native/kserve/traffic.cpp``).

    Attributes:
        path: Of the file.
        is_closed: Whether the model has gone.

    Args:
        path: Of the file, which is made.
        options: As that source names them.
        weights: Of the targets, in the order of the options.
        counters: How many there are.
    """

    def __init__(self, path: Path, options: Mapping[str, Any], weights: Sequence[float], counters: int) -> None:
        text = json.dumps(options).encode()
        self.path, self.is_closed = path, False
        self._counters_at = HEAD + 2 * len(weights)
        size = (self._counters_at + counters) * WORD
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.truncate(descriptor, size)
            os.pwrite(descriptor, struct.pack("=5Q", FORMAT, 0, 0, len(weights), counters), 0)
            os.pwrite(descriptor, text, size)
            memory = memoryview(mmap.mmap(descriptor, size))
        finally:
            os.close(descriptor)
        self._words, self._numbers = memory.cast("Q"), memory.cast("d")  # each is read and written as a whole
        self._targets = len(weights)
        self.weigh(weights)

    def weigh(self, weights: Sequence[float]) -> None:
        """Replace the weights, all at once. For one thread at a time."""
        valid = 1 - self._words[VALID_AT]
        begin = HEAD + valid * self._targets
        for index, weight in enumerate(weights):
            self._numbers[begin + index] = weight
        self._words[VALID_AT] = valid

    def open(self, is_open: bool) -> None:
        """Whether the edge passes requests on; else the model's callable does."""
        self._words[OPEN_AT] = int(is_open and not self.is_closed)

    def close(self) -> None:
        """The model has gone; what is counted still is counted here."""
        self.is_closed = True
        self.open(False)
        self.path.unlink(missing_ok=True)

    def counts(self) -> list[int]:
        """What the edge has counted."""
        return self._words[self._counters_at :].tolist()
