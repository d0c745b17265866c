"""How busy a model instance is."""

from __future__ import annotations

import math
import threading
import time


class Activity:
    """Counts the batches that are being answered. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._last_end = -math.inf

    def begin(self) -> None:
        """A batch has come."""
        with self._lock:
            self._running += 1

    def end(self) -> None:
        """A batch has its last reply."""
        with self._lock:
            self._running -= 1
            self._last_end = time.monotonic()

    def quiet_s(self) -> float:
        """Seconds since the last batch was answered; 0 while one is."""
        return 0.0 if self._running else time.monotonic() - self._last_end
