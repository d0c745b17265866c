"""From a frame to the requests that a callable gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pytriton.constants import CALLERS_PARAMETER, ERROR_CODE_PARAMETER
from pytriton.proxy.types import Request, RequestBatch
from pytriton.wire.frames import SEQUENCE_END, SEQUENCE_START, Frame
from pytriton.wire.tensors import FrameError

__all__ = ["RESERVED_PARAMETERS", "Cancellation", "has_sequences", "public_parameters", "requests_of", "wanting_codes"]

WANTS_CODE = f'"{ERROR_CODE_PARAMETER}"'.encode()  # in the metadata of a frame
RESERVED_PARAMETERS = frozenset(
    [
        *("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"),
        *(CALLERS_PARAMETER, ERROR_CODE_PARAMETER),
    ]
)


class Cancellation:
    """The cancelled requests of one batch, as far as they are known. Thread-safe.

    Args:
        look: Called before an answer, so that news reaches :meth:`update`. It must not wait long, and not raise.

    Attributes:
        is_complete: Whether no client waits for any request of the batch.
    """

    __slots__ = ("_look", "_requests", "is_complete")

    def __init__(self, look: Callable[[Cancellation], None]) -> None:
        self._look = look
        self._requests: frozenset[int] = frozenset()
        self.is_complete = False

    def includes(self, request: int) -> bool:
        """Whether a request is cancelled, by its index in the batch."""
        if not self.is_complete and request not in self._requests:
            self._look(self)
        return self.is_complete or request in self._requests

    def update(self, frame: Frame) -> None:
        """Take in a CANCEL frame.

        Raises:
            FrameError: Its metadata make no sense.
        """
        try:
            told = json.loads(frame.metadata)
            requests, is_complete = self._requests.union(told["requests"]), bool(told["all"])
        except (LookupError, TypeError, ValueError) as error:
            raise FrameError(f"a cancellation says {frame.metadata!r}") from error
        self._requests, self.is_complete = requests, self.is_complete or is_complete

    def complete(self) -> None:
        """Take all requests for cancelled, because the proxy has gone."""
        self.is_complete = True


class BatchDetails:
    """What the requests of one batch say beside their tensors; decoded when a callable reads it.

    Args:
        forwards_headers: Whether headers may be among the parameters. The server appends them, so the last parameter of
            a name counts, whatever its letter case: no client can add another spelling of a header that was sent.
    """

    __slots__ = ("_cancellation", "_entries", "_forwards_headers", "_metadata", "_output_names")

    def __init__(self, frame: Frame, output_names: Sequence[str], forwards_headers: bool) -> None:
        self._cancellation: Cancellation | None = frame.cancellation
        self._metadata = frame.metadata
        self._output_names = output_names
        self._forwards_headers = forwards_headers
        self._entries: dict[str, Any] | None = None

    def is_cancelled(self, request: int) -> bool:
        """Whether a request is cancelled, by its index."""
        return self._cancellation is not None and self._cancellation.includes(request)

    def of(self, request: int) -> dict[str, Any]:
        """The attributes of a request, by its index."""
        entry = self._decoded().get(str(request), {}) if self._metadata else {}
        correlation_id, flags = entry.get("sequence", (None, 0))
        return {
            "parameters": public_parameters(entry.get("parameters", {})),
            "span": None,
            "requested_output_names": entry.get("outputs") or list(self._output_names),
            "request_id": entry.get("id", ""),
            "deadline": entry.get("deadline"),
            "correlation_id": correlation_id,
            "sequence_start": bool(flags & SEQUENCE_START),
            "sequence_end": bool(flags & SEQUENCE_END),
        }

    def _decoded(self) -> dict[str, Any]:
        if self._entries is None:
            pick = _last_spellings if self._forwards_headers and b'"parameters"' in self._metadata else None
            self._entries = json.loads(self._metadata, object_pairs_hook=pick)
        return self._entries


def requests_of(
    frame: Frame, input_names: Sequence[str], output_names: Sequence[str], forwards_headers: bool = False
) -> list[Request]:
    """The requests of a batch; a RequestBatch if their inputs travelled together.

    Args:
        input_names: Of the model, in its order.

    Raises:
        ValueError, LookupError: The frame makes no sense.
    """
    requests = Request.received(BatchDetails(frame, output_names, forwards_headers), frame.requests)
    if frame.rows is not None:
        inputs = {input_names[item.name]: frame.array(item) for item in frame.tensors}
        return RequestBatch(inputs, frame.rows, requests)
    for item in frame.tensors:
        requests[item.request][input_names[item.name]] = frame.array(item)
    return requests


def has_sequences(frame: Frame) -> bool:
    """Whether a request of a batch belongs to a sequence, or may, as what the proxy says of it cannot be read."""
    if not frame.metadata:
        return False
    try:
        return any("sequence" in entry for entry in json.loads(frame.metadata).values())
    except (AttributeError, RecursionError, TypeError, ValueError):
        return True


def wanting_codes(frame: Frame) -> frozenset[int]:
    """The requests of a batch, by index, whose errors are to begin with their code."""
    if WANTS_CODE not in frame.metadata:
        return frozenset()
    try:
        entries = json.loads(frame.metadata).items()
        return frozenset(int(index) for index, entry in entries if ERROR_CODE_PARAMETER in entry.get("parameters", ()))
    except (AttributeError, RecursionError, TypeError, ValueError):
        return frozenset()


def _last_spellings(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict, without names that come again later in the same or another letter case."""
    last = {name.casefold(): (name, value) for name, value in members}
    return dict(members) if len(last) == len(members) else dict(last.values())


def public_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters without those that only the server needs."""
    return {
        name: value
        for name, value in parameters.items()
        if name not in RESERVED_PARAMETERS and not name.startswith("triton_")
    }
