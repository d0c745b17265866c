"""Requests of one kind to ``/predict``, one after the other on a connection: ``predictions.py KIND json --port 8080``.

The bodies of ``KINDS`` are for the models of ``hosts/typed.py``. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import time
from typing import Any, NamedTuple

from load import Tally
from payloads import HOST, LoadError

__all__ = ["KINDS", "measure"]


class Kind(NamedTuple):
    """What a request of a kind has, and what its answer has to contain."""

    model: str
    body: dict[str, Any]
    answer: bytes
    accept: str = "*/*"


TEXT = "a good day"
_DATA = {size: base64.b64encode(bytes(size)).decode() for size in (2**10, 2**20)}
KINDS = {
    "text": Kind("texts", {"text": TEXT}, TEXT.encode()),
    "limits": Kind("limits", {"text": TEXT, "count": 3}, b"3"),
    "enumeration": Kind("choice", {"side": "left", "number": 0.5}, b"left"),
    "base64, 1 KiB": Kind("data", {"content": _DATA[2**10]}, _DATA[2**10].encode()),
    "base64, 1 MiB": Kind("data", {"content": _DATA[2**20]}, _DATA[2**20].encode()),
    "record": Kind("record", {"text": TEXT}, b"score"),
    "text as NDJSON": Kind("texts", {"text": TEXT}, TEXT.encode(), "application/x-ndjson"),
    "stream of 3": Kind("tell", {"prompt": TEXT, "count": 3}, TEXT.encode()),
    "stream of 500": Kind("tell", {"prompt": TEXT, "count": 500}, TEXT.encode(), "text/event-stream"),
}


def measure(kind: str, port: int, seconds: float, warmup_s: float) -> dict[str, float]:
    """The figures of a load of one kind.

    Raises:
        LoadError: An answer is wrong.
    """
    model, body, expected, accept = KINDS[kind]
    content, headers = json.dumps(body).encode(), {"Content-Type": "application/json", "Accept": accept}
    connection, tally = http.client.HTTPConnection(HOST, port), Tally(warmup_s, seconds)
    goes_on = True
    while goes_on:
        sent_ns = time.perf_counter_ns()
        connection.request("POST", f"/predict/{model}", content, headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200 or expected not in answer:
            raise LoadError(f"{kind}: {response.status} {answer[:200]!r}")
        goes_on = tally.add(sent_ns, True)
    connection.close()
    return tally.figures()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("protocol", choices=["json"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=5, help="of the measurement (5)")
    parser.add_argument("--warmup", type=float, default=1, help="seconds before the measurement (1)")
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.kind, chosen.port, chosen.seconds, chosen.warmup)))


if __name__ == "__main__":
    main()
