"""From a frame to the requests that a callable gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pytriton.proxy.details import SEQUENCE_END, SEQUENCE_START
from pytriton.proxy.frames import Frame
from pytriton.proxy.types import Request, RequestBatch

__all__ = ["RESERVED_PARAMETERS", "has_sequences", "requests_of"]

RESERVED_PARAMETERS = frozenset(
    ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"]
)


def requests_of(
    frame: Frame, input_names: Sequence[str], output_names: Sequence[str], forwards_headers: bool = False
) -> list[Request]:
    """The requests of a batch; a RequestBatch if their inputs travelled together.

    Args:
        frame: As the proxy sent it.
        input_names: Of the model, in its order.
        output_names: The same of its outputs.
        forwards_headers: Whether headers may be among the parameters. The server appends them, so the last parameter of
            a name counts, whatever its letter case: no client can add another spelling of a header that was sent.

    Raises:
        ValueError, LookupError: The frame makes no sense.
    """
    requests = Request.untold(frame.requests, output_names)
    if frame.cancellation is not None:
        for index, request in enumerate(requests):
            request._cancellation = frame.cancellation, index
    if frame.metadata:
        pick = _last_spellings if forwards_headers and b'"parameters"' in frame.metadata else None
        for number, details in json.loads(frame.metadata, object_pairs_hook=pick).items():
            _add_details(requests[int(number)], details)
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
        return any("sequence" in details for details in json.loads(frame.metadata).values())
    except (AttributeError, RecursionError, TypeError, ValueError):
        return True


def _add_details(request: Request, details: dict[str, Any]) -> None:
    """Tell a request what its client said; :mod:`pytriton.proxy.details` has the keys."""
    request.request_id = details.get("id", "")
    request.deadline = details.get("deadline")
    if "parameters" in details:
        request.parameters = _public(details["parameters"])
    if "outputs" in details:
        request.requested_output_names = details["outputs"]
    if "sequence" in details:
        request.correlation_id, flags = details["sequence"]
        request.sequence_start, request.sequence_end = bool(flags & SEQUENCE_START), bool(flags & SEQUENCE_END)


def _last_spellings(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict, without names that come again later in the same or another letter case."""
    last = {name.casefold(): (name, value) for name, value in members}
    return dict(members) if len(last) == len(members) else dict(last.values())


def _public(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters without those that only the server needs."""
    return {
        name: value
        for name, value in parameters.items()
        if name not in RESERVED_PARAMETERS and not name.startswith("triton_")
    }
