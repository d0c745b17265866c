"""What holds for all tests."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Take the thousands of collected tests out of garbage collection, of which many tests need a full one."""
    gc.collect()
    gc.freeze()
