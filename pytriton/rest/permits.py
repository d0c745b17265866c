"""What the API keys of a front have used, and what they may still do.

Minutes are those of the clock. The processes of a front count together: each in its part of one memory.
"""

from __future__ import annotations

import hashlib
import hmac
import mmap
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from pytriton.rest.errors import RestError, send_error
from pytriton.rest.keys import CELLS, ApiKey, memory_bytes

__all__ = ["KeyRing", "ModelAccess", "Permit", "check_model", "may_call", "use_tokens"]

MINUTE_S = 60


class KeyRing:
    """The keys of a front.

    Args:
        keys: All of them.
    """

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]
        self.share(-1, 1, 0)

    def share(self, file: int, processes: int, index: int) -> None:
        """Count together with the other processes of a front.

        Args:
            file: Descriptor of the memory, which has :func:`memory_bytes`; -1 is memory of this process alone.
            processes: How many there are.
            index: Which of them this one is.
        """
        memory = mmap.mmap(file, memory_bytes(len(self._keys), processes))
        self._cells = memoryview(memory).cast("d")
        self._processes, self._index = processes, index

    def find(self, token: bytes) -> Permit | None:
        """What the key of this text may do; None if there is no such key."""
        digest = hashlib.sha256(token).digest()
        found = None
        for number, (expected, key) in enumerate(self._keys):
            if hmac.compare_digest(digest, expected):
                found = Permit(self, number, key)
        return found

    def count(self, number: int, minute: int, requests: int, tokens: int) -> None:
        """Add to what a key used in a minute, in this process."""
        place = CELLS * (self._index * len(self._keys) + number)
        cells = self._cells
        if cells[place] != minute:
            cells[place + 1] = cells[place + 2] = 0
            cells[place] = minute
        cells[place + 1] += requests
        cells[place + 2] += tokens

    def used(self, number: int, minute: int) -> tuple[int, int]:
        """How many requests and tokens a key used in a minute, in all processes."""
        requests = tokens = 0.0
        for process in range(self._processes):
            place = CELLS * (process * len(self._keys) + number)
            if self._cells[place] == minute:
                requests, tokens = requests + self._cells[place + 1], tokens + self._cells[place + 2]
        return int(requests), int(tokens)


class Permit:
    """What the key of one request may do.

    Args:
        ring: Counts for the key.
        number: Of the key.
        key: The key.
    """

    def __init__(self, ring: KeyRing, number: int, key: ApiKey) -> None:
        self.key = key
        self._ring = ring
        self._number = number

    def take(self) -> None:
        """Count a request.

        Raises:
            RestError: The key has used up its requests or tokens of this minute.
        """
        now = time.time()
        minute = int(now // MINUTE_S)
        requests, tokens = self._ring.used(self._number, minute)
        for what, used, limit in (
            ("requests", requests, self.key.requests_per_minute),
            ("tokens", tokens, self.key.tokens_per_minute),
        ):
            if limit is not None and used >= limit:
                wait_s = MINUTE_S - now % MINUTE_S
                text = f"API key {self.key.name!r} has used its {limit} {what} of this minute; wait {wait_s:.0f} s"
                headers = {"Retry-After": str(int(wait_s) + 1), **self.headers()}
                raise RestError(429, "RATE_LIMIT_EXCEEDED", text, headers=headers)
        self._ring.count(self._number, minute, 1, 0)

    def use(self, tokens: int) -> None:
        """Count tokens."""
        self._ring.count(self._number, int(time.time() // MINUTE_S), 0, tokens)

    def headers(self) -> dict[str, str]:
        """The limits and what is left of them, as OpenAI's API tells them."""
        now = time.time()
        used = self._ring.used(self._number, int(now // MINUTE_S))
        limits = (self.key.requests_per_minute, self.key.tokens_per_minute)
        found = {}
        for what, limit, count in zip(("requests", "tokens"), limits, used, strict=True):
            if limit is not None:
                found[f"x-ratelimit-limit-{what}"] = str(limit)
                found[f"x-ratelimit-remaining-{what}"] = str(max(0, limit - count))
                found[f"x-ratelimit-reset-{what}"] = f"{MINUTE_S - now % MINUTE_S:.3f}s"
        return found


def _permit_of(scope: Any) -> Permit | None:
    """The permit of a request; None if it may do everything."""
    found: Permit | None = scope.get("state", {}).get("permit")
    return found


def may_call(scope: Any, model: str) -> bool:
    """Whether the key of a request allows a model."""
    permit = _permit_of(scope)
    return permit is None or any(fnmatchcase(model, pattern) for pattern in permit.key.models)


def check_model(scope: Any, model: str) -> None:
    """Raise RestError unless the key of a request allows a model."""
    permit = _permit_of(scope)
    if permit is not None and not may_call(scope, model):
        raise RestError(403, "FORBIDDEN", f"API key {permit.key.name!r} may not call the model {model!r}")


def use_tokens(scope: Any, tokens: int) -> None:
    """Count the tokens of a request for its key."""
    permit = _permit_of(scope)
    if permit is not None:
        permit.use(tokens)


class ModelAccess:
    """Lets requests pass to a route with a ``model`` in its path if their keys allow the model.

    Args:
        app: The route.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Check one request."""
        try:
            check_model(scope, scope["path_params"]["model"])
        except RestError as error:
            return await send_error(send, error)
        await self._app(scope, receive, send)
