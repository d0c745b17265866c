"""Batches that a proxy whose ``execute`` returns at once was given, and what their requests got."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np

from tests.unit.backend import InferenceRequest
from tests.unit.links import CONFIG, outcomes

X = np.array([[1, 2]], np.float32)
DECOUPLED = replace(CONFIG, decoupled=True)


def of(count, rows=1):
    """An input that asks for so many responses."""
    return {"x": np.full((rows, 2), count, np.float32)}


def submit(link, *inputs):
    """Have the proxy execute one batch; returns the requests."""
    requests = [InferenceRequest(x) for x in inputs]
    assert link.model.execute(requests) is None
    return requests


def in_thread(function, *args):
    """Start a thread that calls ``function``, such as the server's that waits in ``execute``."""
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread


def answers(request):
    """All that a request got."""
    return outcomes(request.sender.all())
