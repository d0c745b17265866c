"""What the API keys of an app have used, and what they may still do.

Minutes are those of the clock. The processes of an app count together: each writes its part of one memory, and reads
all. It writes before it reads, so that of two processes that let a request pass at the same time, none overlooks the
other.
"""

from __future__ import annotations

import hashlib
import hmac
import mmap
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pytriton.rest.errors import RestError, send_error
from pytriton.rest.keys import CELLS, ApiKey, memory_bytes

__all__ = [
    "KeyRing",
    "ModelAccess",
    "Permit",
    "as_key_may_see",
    "check_all_models",
    "check_model",
    "may_call",
    "permit_of",
]

MINUTE, REQUESTS, TOKENS, RESERVED = range(CELLS)

MINUTE_S = 60


class KeyRing:
    """The keys of an app.

    Args:
        keys: All of them.
    """

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]
        self.share(-1, 1, 0)

    def share(self, file: int, processes: int, index: int) -> None:
        """Count together with the other processes of an app.

        Args:
            file: Descriptor of the memory, which has :func:`memory_bytes`; -1 is memory of this process alone.
            processes: How many there are.
            index: Which of them this one is.
        """
        memory = mmap.mmap(file, memory_bytes(len(self._keys), processes))
        self._cells = memoryview(memory).cast("d")
        self._processes, self._index = processes, index
        for number in range(len(self._keys)):  # a process that died at this place cannot give them back
            self._cells[self._place(number) + RESERVED] = 0

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
        place, cells = self._place(number), self._cells
        if cells[place + MINUTE] != minute:
            cells[place + REQUESTS] = cells[place + TOKENS] = 0
            cells[place + MINUTE] = minute
        cells[place + REQUESTS] += requests
        cells[place + TOKENS] += tokens

    def reserve(self, number: int, tokens: int) -> None:
        """Add to the tokens that requests in progress may use, whenever they end; negative ones free some."""
        self._cells[self._place(number) + RESERVED] += tokens

    def used(self, number: int, minute: int) -> tuple[int, int]:
        """How many requests a key used in a minute, and how many tokens it used or has reserved, in all processes."""
        requests = tokens = 0.0
        for process in range(self._processes):
            place = self._place(number, process)
            tokens += self._cells[place + RESERVED]
            if self._cells[place + MINUTE] == minute:
                requests, tokens = requests + self._cells[place + REQUESTS], tokens + self._cells[place + TOKENS]
        return int(requests), int(tokens)

    def _place(self, number: int, process: int | None = None) -> int:
        return CELLS * ((self._index if process is None else process) * len(self._keys) + number)


class Permit:
    """What the key of one request may do.

    Args:
        ring: Counts for the key.
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
        minute = _minute()
        self._ring.count(self._number, minute, 1, 0)
        requests, tokens = self._ring.used(self._number, minute)
        for what, left, limit in (
            ("requests", (self.key.requests_per_minute or requests) - requests, self.key.requests_per_minute),
            ("tokens", (self.key.tokens_per_minute or tokens + 1) - tokens - 1, self.key.tokens_per_minute),
        ):
            if left < 0:
                self._ring.count(self._number, minute, -1, 0)
                raise self._refusal(f"has used its {limit} {what} of this minute", self.headers())

    def reserve(self, least: int, wanted: int) -> int:
        """Reserve tokens for a request.

        Args:
            least: That it cannot do without.
            wanted: That it may use.

        Returns:
            How many there are: as many as wanted, or what is left.

        Raises:
            RestError: Less than the least are left.
        """
        limit = self.key.tokens_per_minute
        self._ring.reserve(self._number, wanted)
        if limit is None:
            return wanted
        granted = min(wanted, wanted + limit - self._ring.used(self._number, _minute())[1])
        if granted < least:
            self._ring.reserve(self._number, -wanted)
            what = f"may use {limit} tokens in a minute, of which {max(0, granted)} are left; this needs {least}"
            raise self._refusal(what)
        self._ring.reserve(self._number, granted - wanted)
        return granted

    def settle(self, reserved: int, used: int) -> None:
        """Give reserved tokens back, and count those that were used."""
        self._ring.count(self._number, _minute(), 0, used)
        self._ring.reserve(self._number, -reserved)

    def _refusal(self, what: str, limits: Mapping[str, str] | None = None) -> RestError:
        wait_s = MINUTE_S - time.time() % MINUTE_S
        text = f"API key {self.key.name!r} {what}; wait {wait_s:.0f} s"
        headers = {"Retry-After": str(int(wait_s) + 1), **(limits or {})}
        return RestError(429, "RATE_LIMIT_EXCEEDED", text, headers=headers)

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


def _minute() -> int:
    return int(time.time() // MINUTE_S)


def permit_of(scope: Any) -> Permit | None:
    """The permit of a request; None if it may do everything."""
    found: Permit | None = scope.get("state", {}).get("permit")
    return found


def may_call(scope: Any, model: str) -> bool:
    """Whether the key of a request allows a model."""
    permit = permit_of(scope)
    return permit is None or any(fnmatchcase(model, pattern) for pattern in permit.key.models)


def check_model(scope: Any, model: str) -> None:
    """Raise RestError unless the key of a request allows a model."""
    permit = permit_of(scope)
    if permit is not None and not may_call(scope, model):
        raise RestError(403, "FORBIDDEN", f"API key {permit.key.name!r} may not call the model {model!r}")


def check_all_models(permit: Permit) -> None:
    """Raise RestError unless a key may call all models: what is to be shown names them."""
    if "*" not in permit.key.models:
        raise RestError(403, "FORBIDDEN", f"this shows all models, which API key {permit.key.name!r} may not call")


def as_key_may_see(scope: Any, error: RestError) -> RestError:
    """An error as the key of a request may see it: one that may not call all models gets no list of them."""
    permit = permit_of(scope)
    return error if permit is None or "*" in permit.key.models else error.without_others()


class ModelAccess:
    """Lets requests pass to a route with a ``model`` in its path if their keys allow the model."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Check one request."""
        try:
            check_model(scope, scope["path_params"]["model"])
        except RestError as error:
            return await send_error(send, error)
        await self._app(scope, receive, send)
