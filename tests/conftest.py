"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys

import pytest

# NumPy's threads, which wait busily at first, take a third of the processor time of a program that imports it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Where the tests run in the background of a shell, SIGINT is ignored, and all that they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until the thousands of tests are collected, none of which is garbage


MOST_SHOWN = 4000  # characters of a failure


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Where CI is, say at once what fails: it may not live to say so at the end."""
    if report.failed and "CI" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} has failed:\n{report.longreprtext[-MOST_SHOWN:]}", file=sys.stderr, flush=True)


def pytest_collection_finish() -> None:
    """Take the collected tests out of garbage collection, of which many tests need a full one."""
    gc.collect()
    gc.freeze()
    gc.enable()
