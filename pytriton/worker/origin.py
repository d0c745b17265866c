"""The requests that a callable works on, for the requests that it makes for them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import Any

from pytriton.constants import CALLERS_PARAMETER
from pytriton.wire.frames import Frame

__all__ = ["Origin", "current_origin"]


class Origin:
    """The requests of a batch: what they hand on to the requests that are made for them.

    Args:
        frame: The batch. It is not kept: its arrays would outlive the call.
    """

    def __init__(self, frame: Frame) -> None:
        self._metadata = frame.metadata
        self._requests = frame.requests
        self._cancellation = frame.cancellation

    @cached_property
    def _details(self) -> Sequence[Mapping[str, Any]]:
        """What each request says beside its tensors; without those that say nothing."""
        return [*json.loads(self._metadata).values()] if self._metadata else []

    def _parameters(self, name: str) -> list[Any]:
        """The values of a parameter in all requests that have it."""
        found = (entry.get("parameters", {}) for entry in self._details)
        return [parameters[name] for parameters in found if name in parameters]

    @cached_property
    def callers(self) -> list[str]:
        """The models that wait for the requests, the first caller first; of merged requests, those of each."""
        paths = self._parameters(CALLERS_PARAMETER)
        return list(dict.fromkeys(name for path in paths for name in str(path).split()))

    @cached_property
    def request_id(self) -> str | None:
        """That of the only request, if it has one."""
        return self._details[0].get("id") if self._requests == 1 and self._details else None

    @cached_property
    def priority(self) -> int:
        """The highest of the requests, which is the lowest number; 0 if none has one."""
        return min((level for level in self._parameters("priority") if isinstance(level, int) and level > 0), default=0)

    @cached_property
    def _deadline(self) -> float | None:
        deadlines = [entry["deadline"] for entry in self._details if "deadline" in entry]
        return max(deadlines) if len(deadlines) == self._requests else None

    def left_s(self) -> float | None:
        """Seconds until no client waits any more, at least 0; None if one waits without a limit."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def is_cancelled(self) -> bool:
        """Whether no client waits for any of the requests."""
        cancellation = self._cancellation
        return cancellation is not None and all(map(cancellation.includes, range(self._requests)))


current_origin: ContextVar[Origin | None] = ContextVar("pytriton_origin", default=None)
"""Set where a callable is called; None in other threads."""
