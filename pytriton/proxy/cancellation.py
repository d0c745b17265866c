"""Requests that nobody waits for any more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb_utils

from .frames import CANCEL, Frame


def is_cancelled(asked: Any) -> bool:
    """Ask the server's request, or the sender of its responses, which takes 20 to 200 us."""
    try:
        return bool(asked.is_cancelled())
    except pb_utils.TritonModelException:
        return False


def cancellation(sequence: int, requests: int, cancelled: Sequence[int], all_done: bool) -> Frame:
    """What tells the worker of cancelled requests.

    Args:
        sequence: Number of their batch.
        requests: How many it has.
        cancelled: Their indices.
        all_done: Whether nobody waits for any request of the batch now.
    """
    told = {"requests": list(cancelled), "all": all_done}
    return Frame(CANCEL, sequence, requests, metadata=json.dumps(told).encode())
