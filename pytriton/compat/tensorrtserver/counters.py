"""What a context has counted of its inferences."""

from __future__ import annotations

import threading

__all__ = ["Counters"]


class Counters:
    """Counts completed requests and their times, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {
            "completed_request_count": 0,
            "cumulative_total_request_time_ns": 0,
            "cumulative_send_time_ns": 0,
            "cumulative_receive_time_ns": 0,
        }

    def add(self, total_ns: int, send_ns: int, receive_ns: int) -> None:
        """Count one request, and the nanoseconds that it took."""
        with self._lock:
            for name, value in zip(self._counts, (1, total_ns, send_ns, receive_ns), strict=True):
                self._counts[name] += value

    def as_dict(self) -> dict[str, int]:
        """A copy of all counts, by the names that v1 has for them."""
        with self._lock:
            return dict(self._counts)
