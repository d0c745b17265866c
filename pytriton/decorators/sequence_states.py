"""The states of open sequences: made at the start, dropped at the end, or when a sequence was idle for too long."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytriton.exceptions import ErrorCode, PyTritonBadParameterError, PyTritonRequestError
from pytriton.model_config import SequenceBatcher
from pytriton.worker.context import current_binding

__all__ = ["DEFAULT_IDLE_S", "GRACE_S", "SequenceStates"]

DEFAULT_IDLE_S = 600.0  # where neither the model nor the user says how long
GRACE_S = 5.0  # on top of the server's timeout, which does not count how long a request has waited for its turn

_Key = tuple[str, int, "int | str"]


@dataclass
class _Entry:
    state: Any
    idle_s: float
    last_use_s: float


class SequenceStates:
    """Keeps a state for each sequence. For any thread.

    Args:
        make: Makes the state of a sequence that starts.
        idle_timeout_s: How long a sequence may be without requests. None is the timeout of the model's SequenceBatcher
            and some seconds more, or ten minutes for other models.
        clock: Seconds.

    Raises:
        PyTritonBadParameterError: ``make`` cannot be called, or the timeout is not positive.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        idle_timeout_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not callable(make):
            raise PyTritonBadParameterError(f"{make!r} cannot be called to make the state of a sequence; give a class")
        if idle_timeout_s is not None and not idle_timeout_s > 0:
            raise PyTritonBadParameterError(f"idle_timeout_s is {idle_timeout_s!r}; give seconds above 0, or None")
        self._make = make
        self._idle_timeout_s = idle_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()  # the one used last is last

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, requests: Sequence[Any]) -> list[Any]:
        """The state of each request's sequence, or the exception that it is to be answered with.

        A start makes a state, in place of an older one of that id. After an end, the state is only the caller's.
        """
        self._drop_idle()
        return [self._of(request) for request in requests]

    def _of(self, request: Any) -> Any:
        correlation_id = getattr(request, "correlation_id", None)
        if correlation_id is None:
            return PyTritonRequestError(
                "the request belongs to no sequence; send it with a sequence id", ErrorCode.INVALID_ARG
            )
        key = _key(correlation_id)
        if request.sequence_start:
            try:
                entry = _Entry(self._make(), self._idle_s(), self._clock())
            except Exception as error:  # of one client
                return error
        else:
            with self._lock:
                known = self._entries.get(key)
            if known is None:
                return PyTritonRequestError(
                    f"sequence {correlation_id!r} has not started, or has ended, or was idle for more than "
                    f"{self._idle_s():g} s; start it anew with sequence_start",
                    ErrorCode.INVALID_ARG,
                )
            entry = known
        with self._lock:
            if request.sequence_end:
                self._entries.pop(key, None)
            else:
                self._use(key, entry)
        return entry.state

    def used(self, requests: Sequence[Any]) -> None:
        """Sequences are idle from now on, not since their requests came."""
        with self._lock:
            for request in requests:
                correlation_id = getattr(request, "correlation_id", None)
                if correlation_id is not None and (entry := self._entries.get(key := _key(correlation_id))):
                    self._use(key, entry)

    def _use(self, key: _Key, entry: _Entry) -> None:
        entry.last_use_s = self._clock()
        self._entries[key] = entry
        self._entries.move_to_end(key)

    def _drop_idle(self) -> None:
        with self._lock:
            now_s = self._clock()
            while self._entries:
                key, entry = next(iter(self._entries.items()))
                if now_s - entry.last_use_s <= entry.idle_s:
                    return
                del self._entries[key]

    def _idle_s(self) -> float:
        if self._idle_timeout_s is not None:
            return self._idle_timeout_s
        binding = current_binding.get()
        batcher = None if binding is None else binding.model_config.batcher
        if isinstance(batcher, SequenceBatcher):
            return batcher.max_sequence_idle_microseconds / 1e6 + GRACE_S
        return DEFAULT_IDLE_S


def _key(correlation_id: int | str) -> _Key:
    """Of a sequence; a callable that serves several models has a state for each."""
    binding = current_binding.get()
    if binding is None:
        return "", 0, correlation_id
    return binding.model_config.model_name, binding.model_config.model_version, correlation_id
