"""The requests that a callable works on, for the requests that it makes for them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from functools import cached_property
from hmac import compare_digest
from typing import Any, NamedTuple

from pytriton.constants import CALLERS_PARAMETER
from pytriton.wire.frames import Frame

__all__ = ["Origin", "current_origin"]


class _Inherited(NamedTuple):
    callers: Sequence[str] = ()  # of each request, as it says them
    request_id: str | None = None
    priority: int = 0
    deadline: float | None = None  # in time.monotonic() seconds, of the last request that is waited for


NOTHING = _Inherited()
SHARED = (b'"priority"', b'"deadline"', f'"{CALLERS_PARAMETER}"'.encode())  # of what merged requests hand on


def _parameters(details: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """The values of a parameter in all requests that have it."""
    found = (entry.get("parameters", {}) for entry in details)
    return [parameters[name] for parameters in found if name in parameters]


def _are_equal(given: str, secret: str) -> bool:
    return compare_digest(given.encode(errors="replace"), secret.encode())


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
    def _inherited(self) -> _Inherited:
        """What the metadata of the batch say beside the tensors of its requests."""
        if not self._metadata or (self._requests > 1 and not any(name in self._metadata for name in SHARED)):
            return NOTHING
        details = [*json.loads(self._metadata).values()]
        levels = [level for level in _parameters(details, "priority") if isinstance(level, int) and level > 0]
        deadlines = [entry["deadline"] for entry in details if "deadline" in entry]
        return _Inherited(
            callers=[*dict.fromkeys(map(str, _parameters(details, CALLERS_PARAMETER)))],
            request_id=details[0].get("id") if details and self._requests == 1 else None,
            priority=min(levels, default=0),
            deadline=max(deadlines) if len(deadlines) == self._requests else None,
        )

    def callers(self, secret: str) -> tuple[int, list[str]]:
        """How many models wait for a request, one for the other, and their names, the first caller first.

        Of merged requests, it is the most, and the names of each. What does not begin with the secret is a client's.
        """
        told = (callers.partition(" ") for callers in self._inherited.callers)
        paths = [path.split() for key, _, path in told if _are_equal(key, secret)]
        names = dict.fromkeys(name for path in paths for name in path[1:])
        return max((int(path[0]) for path in paths), default=0), [*names]

    @property
    def request_id(self) -> str | None:
        """That of the only request, if it has one."""
        return self._inherited.request_id

    @property
    def priority(self) -> int:
        """The highest of the requests, which is the lowest number; 0 if none has one."""
        return self._inherited.priority

    def left_s(self) -> float | None:
        """Seconds until no client waits any more, at least 0; None if one waits without a limit."""
        deadline = self._inherited.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def detached(self) -> Origin:
        """The same requests for what is made once they are answered: it has no deadline, and is not cancelled."""
        origin = copy(self)
        origin._inherited, origin._cancellation = self._inherited._replace(deadline=None), None
        return origin

    def is_cancelled(self) -> bool:
        """Whether no client waits for any of the requests."""
        cancellation = self._cancellation
        return cancellation is not None and all(map(cancellation.includes, range(self._requests)))


current_origin: ContextVar[Origin | None] = ContextVar("pytriton_origin", default=None)
"""Set where a callable is called; None in other threads."""
