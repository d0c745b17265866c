"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal

# NumPy's threads, which wait busily at first, take a third of the processor time of a program that imports it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Where the tests run in the background of a shell, SIGINT is ignored, and all that they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until the thousands of tests are collected, none of which is garbage


def pytest_collection_finish() -> None:
    """Take the collected tests out of garbage collection, of which many tests need a full one."""
    gc.collect()
    gc.freeze()
    gc.enable()
