"""What requests say beside their tensors, as JSON of those that say anything: ``{"<index>": {...}}``.

::

    id           text
    parameters   custom parameters and forwarded headers, by name
    outputs      names of the outputs that the client wants, if not all
    sequence     [correlation id, flags]; flag 1 is its start, 2 its end
    deadline     when the client's timeout will have passed, in seconds of the machine's monotonic clock
    trace        the server's span
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

from .tensors import BadRequestError

SEQUENCE_START, SEQUENCE_END = 1, 2


def encode(requests: list[Any], outputs: int, traced: bool) -> tuple[bytes, bool]:
    """The details of a batch; no bytes if there are none.

    Args:
        requests: The server's. Each question to one of them takes 0.3 us.
        outputs: How many the model has.
        traced: Whether to ask for the server's span, which takes 1 us.

    Returns:
        The JSON, and whether the requests must be seen one by one: some want only a part of the outputs, or are traced.

    Raises:
        BadRequestError: Parameters that are no UTF-8, which the server takes from HTTP.
    """
    entries = []
    apart = False
    for index, request in enumerate(requests):
        fields = []
        if (parameters := _parameters(request)) != "{}":
            fields.append(f'"parameters":{parameters}')
        if outputs > 1 and len(wanted := request.requested_output_names()) != outputs:
            fields.append(f'"outputs":{json.dumps(list(wanted))}')
            apart = True
        if name := _id(request):
            fields.append(f'"id":{json.dumps(name)}')
        if correlation_id := request.correlation_id():
            fields.append(f'"sequence":[{json.dumps(correlation_id)},{request.flags()}]')
        if timeout_us := request.timeout():
            fields.append(f'"deadline":{time.monotonic() + timeout_us / 1e6}')
        if traced and (context := request.trace().get_context()):  # JSON, or None
            fields.append(f'"trace":{{"context":{context},"since_ns":{time.time_ns()}}}')
            apart = True
        if fields:
            entries.append(f'"{index}":{{{",".join(fields)}}}')
    return f"{{{','.join(entries)}}}".encode() if entries else b"", apart


def _parameters(request: Any) -> str:
    try:
        return str(request.parameters())
    except UnicodeDecodeError as error:
        raise BadRequestError(f"parameters must be UTF-8: {error}") from error


def _id(request: Any) -> str:
    with suppress(UnicodeDecodeError):  # the server sends any bytes back to the client; but here it is text
        return str(request.request_id())
    return ""
