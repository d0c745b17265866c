"""The models of the benchmark: their tensors, each of shape ``(-1,)`` without the batch axis, and their work."""

import time

import numpy as np

FLOATS, STRINGS = {"": np.float32}, {"": bytes}
# Suffixes of INPUT and OUTPUT, with their dtypes. A model "double-17" is a copy of "double".
TENSORS = {
    "double": FLOATS,
    "pair": {"": np.float32, "_2": np.int64},
    "echo": STRINGS,
    "stream": FLOATS,
    "errant": FLOATS,
    "busy": FLOATS,
    "nested": FLOATS,
    "encoder": STRINGS,
}
MAX_BATCH_SIZE = 128
WIDTH = 16  # of the vectors of "encoder"
BUSY_S = 0.005  # of a core, for which "busy" computes, however large the batch
SCRATCH = np.ones(1 << 16, np.float32)


def kind(name: str) -> str:
    """The model that this one is a copy of."""
    return name.partition("-")[0]


def compute() -> None:
    """Take a core for ``BUSY_S``, without the interpreter lock, as most of NumPy."""
    end = time.perf_counter() + BUSY_S
    while time.perf_counter() < end:
        np.sqrt(SCRATCH, out=SCRATCH)
