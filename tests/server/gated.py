"""A callable that a test holds up."""

from __future__ import annotations

from typing import Any

from tests.server.processes import wait_for
from tests.server.traffic import Gate


class Gated:
    """Doubles its input ``x`` once its gate is open.

    Attributes:
        model: The name that it is bound under.
        gate: Of the calls since the last reset.
        seen: First values of the requests that it was called with since then.
    """

    def __init__(self) -> None:
        self.model = ""
        self.reset()

    def __call__(self, requests: list[Any]) -> list[Any]:
        self.seen += [float(request["x"][0, 0]) for request in requests]
        self.gate.wait()
        return [{"y": request["x"] * 2} for request in requests]

    def reset(self) -> None:
        self.gate = Gate()
        self.seen: list[float] = []

    def wait_called(self) -> None:
        wait_for(lambda: self.seen, "the callable to be called")
