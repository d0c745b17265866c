"""What a server is held up with."""

from __future__ import annotations

import threading

from tests.unit.loops import PATIENCE_S


class Turnstile:
    """Holds inferences up: each one that comes in waits until it is let through.

    Attributes:
        inside: How many wait now.
        most: How many waited at once, at most.
    """

    def __init__(self):
        self.came, self._open = threading.Semaphore(0), threading.Semaphore(0)
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def __call__(self):
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.came.release()
        assert self._open.acquire(timeout=PATIENCE_S)
        with self._lock:
            self.inside -= 1

    def await_one(self):
        assert self.came.acquire(timeout=PATIENCE_S)

    def let_through(self, count=1):
        self._open.release(count)
