"""Stops servers and unbinds models at random moments under load, and reports the outcome of each request.

Usage: ``python scripts/stop_load.py [--stops 200] [--unbinds 200] [--seed 1] [--json FILE]``. Exit status 1 means that
a request was lost. The outcomes are:

``answered``  The answer is right.
``refused``   The server said that it does not serve the model, or the connection was refused.
``closed``    The connection was closed before any byte of an answer. That is right only where a server stops, for a
              request that began after the stop did: the server had not taken it yet.
``lost``      All else: an answer that was cut off, another error, a closed connection where it is not right, silence.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from connections import CutError, HttpConnection
from payloads import HOST, MODEL, STREAM, LoadError, Workload, check_outputs, http_request
from tritonclient.utils import InferenceServerException

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonError
from pytriton.triton import Triton

sys.path.insert(0, str(Path(__file__).with_name("hosts")))
from served import bind, config_of, make

SMALL, LARGE, WRITTEN = 16, 4 << 20, 300_000  # floats: 64 bytes, 16 MiB, some MB as JSON
RESPONSES, STREAMED = 8, 64 << 10  # of a stream, each of 256 KiB
MOST_LOAD_S = 1.0  # before a stop
TIMEOUT_S = 60.0  # of a request
TIMEOUTS = {"init_timeout_s": 1.0, "inference_timeout_s": TIMEOUT_S}
PAUSE_S = 0.01  # after a refusal
PREPARATION_S = 1.0  # after which a client of ours has sent the first byte of a request
REFUSALS = (
    "Request for unknown model",
    "unknown model",
    "no available versions",
    "is not ready",
    "not found",
    "Connection refused",
    "Failed to connect",
    "failed to connect",
    "Server is stopping",
    "was not ready within",  # which our clients ask before their first request, as the next two
    "did not answer is_",
    "did not answer get_model_config",
    "no time was left",
)
CLOSURES = ("Socket closed", "Connection reset", "Broken pipe", "closed the connection", "Stream removed", "GOAWAY")
ERRORS = (OSError, ValueError, LoadError, PyTritonClientError, PyTritonError, InferenceServerException)

Send = Callable[[], None]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request that began at a moment, in :func:`time.monotonic` seconds."""

    client: str
    what: str
    began: float
    detail: str = ""


@contextmanager
def connection(port: int, floats: int, binary: bool = True) -> Iterator[Send]:
    """Requests over a connection that is kept, with nothing that would repeat a request."""
    workload = Workload(floats)
    request = http_request(port, workload, 1) if binary else _json_request(port, workload)
    kept: list[HttpConnection] = []

    def send() -> None:
        try:
            if not kept:
                kept.append(HttpConnection(port, [request]))
            if binary:
                outputs = kept[0].infer()
            else:
                kept[0].exchange()
                if not kept[0].good:
                    raise LoadError(kept[0].body.decode(errors="replace"))
                outputs = {"OUTPUT": np.float32(json.loads(kept[0].body)["outputs"][0]["data"]).tobytes()}
            check_outputs(outputs, workload.outputs(1, copies=False))
        except (OSError, CutError):
            while kept:
                kept.pop().close()
            raise

    yield send
    while kept:
        kept.pop().close()


def _json_request(port: int, workload: Workload) -> bytes:
    x = workload.inputs(1)["INPUT"]
    item = {"name": "INPUT", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    body = json.dumps({"inputs": [item]}).encode()
    head = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@contextmanager
def client(url: str, floats: int, streams: bool = False) -> Iterator[Send]:
    """Requests through a client of ours, which is made anew after an error."""
    x, kept = Workload(floats).inputs(1)["INPUT"], list[Any]()

    def close() -> None:
        while kept:
            with suppress(Exception):
                kept.pop().close()

    def send() -> None:
        try:
            if not kept:
                kind, model = (DecoupledModelClient, STREAM) if streams else (ModelClient, MODEL)
                kept.append(kind(url, model, ensure_model_is_ready=False, **TIMEOUTS))
            count = 0
            try:
                inputs = {"INPUT": x} | ({"COUNT": np.int32([[RESPONSES]])} if streams else {})
                found = kept[0].infer_batch(**inputs)
                for response in found if streams else [found]:
                    check_outputs({"OUTPUT": response["OUTPUT"].tobytes()}, {"OUTPUT": (2 * x).tobytes()})
                    count += 1
            except ERRORS as error:
                if count:
                    raise CutError(f"after {count} responses: {error}") from error
                raise
            if count != (RESPONSES if streams else 1):
                raise CutError(f"after {count} responses")
        except Exception:
            close()
            raise

    yield send
    close()


def clients(http_port: int, grpc_port: int) -> dict[str, Any]:
    """The context that each kind of client is."""
    http, grpc = f"http://{HOST}:{http_port}", f"grpc://{HOST}:{grpc_port}"
    return {
        "raw, small": connection(http_port, SMALL),
        "raw, large": connection(http_port, LARGE),
        "raw, JSON": connection(http_port, WRITTEN, binary=False),
        "HTTP, small": client(http, SMALL),
        "HTTP, large": client(http, LARGE),
        "gRPC, small": client(grpc, SMALL),
        "gRPC, large": client(grpc, LARGE),
        "gRPC, stream": client(grpc, STREAMED, streams=True),
    }


def judge(name: str, began: float, error: BaseException) -> Outcome:
    """The outcome of a request that raised an exception."""
    seen: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        seen.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    text = "; ".join(seen)
    if isinstance(error, CutError):
        what = "lost"
    elif any(refusal in text for refusal in REFUSALS) or isinstance(error, ConnectionRefusedError):
        what = "refused"
    elif any(closure in text for closure in CLOSURES) or isinstance(error, ConnectionError):
        what = "closed"
    else:
        what = "lost"
    return Outcome(name, what, began, "" if what == "refused" else text[:500])


def call(name: str, requests: Any, ended: threading.Event, outcomes: list[Outcome]) -> None:
    """Make one request after the other."""
    with requests as send:
        while not ended.is_set():
            began = time.monotonic()
            try:
                send()
            except ERRORS as error:
                outcomes.append(judge(name, began, error))
                ended.wait(PAUSE_S)
            else:
                outcomes.append(Outcome(name, "answered", began))


def callers(pipe: Connection) -> None:
    """The process of the clients: calls each server whose ports come, until told to end, and reports the outcomes."""
    logging.disable(logging.CRITICAL)
    while (ports := pipe.recv()) is not None:
        ended = threading.Event()
        outcomes: list[Outcome] = []
        *addresses, streams = ports
        made = {name: each for name, each in clients(*addresses).items() if streams or name != "gRPC, stream"}
        threads = [threading.Thread(target=call, args=(name, each, ended, outcomes)) for name, each in made.items()]
        for thread in threads:
            thread.start()
        while len({each.client for each in [*outcomes] if each.what == "answered"}) < len(threads):
            time.sleep(0.01)
        pipe.send("running")
        pipe.recv()
        ended.set()
        for thread in threads:
            thread.join(2 * TIMEOUT_S)
        pipe.send((outcomes, [thread.name for thread in threads if thread.is_alive()]))


@dataclass
class Tally:
    """The outcomes of all requests, and how long each stop or unbind took."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self) -> Iterator[float]:
        """Time a stop or an unbind; yields when it began."""
        began = time.monotonic()
        yield began
        self.took_s.append(time.monotonic() - began)

    def collect(self, pipe: Connection[Any, Any], stop: float | None) -> None:
        """End the callers, and count their requests to a server that began to stop at a moment, or does not."""
        pipe.send("end")
        outcomes, hanging = pipe.recv()
        for each in outcomes:
            what, sent = each.what, each.began + (0.0 if each.client.startswith("raw") else PREPARATION_S)
            if what == "closed" and (stop is None or sent < stop):
                what = "lost"
            self.outcomes.setdefault(each.client, Counter())[what] += 1
            if what == "lost":
                when = "" if stop is None else f" {each.began - stop:+.3f} s from the stop"
                self.problems.append(f"{each.client}{when}: {each.detail}")
        self.problems += [f"{name} hangs" for name in hanging]

    def report(self, what: str) -> None:
        """Print it."""
        for name, counts in self.outcomes.items():
            print(f"{what}  {name:14}" + "".join(f"  {outcome}: {counts[outcome]}" for outcome in sorted(counts)))
        if self.took_s:
            print(f"{what}: {len(self.took_s)}, median {median(self.took_s):.2f} s, longest {max(self.took_s):.2f} s")
        for problem in self.problems:
            print(f"{what}  PROBLEM  {problem}")


class WarningHandler(logging.Handler):
    """Makes warnings about requests that were ended problems of a tally; a context."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(logging.WARNING)
        self._tally = tally

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        if "were ended" in record.getMessage():
            self._tally.problems.append(record.getMessage())

    def __enter__(self) -> None:
        logging.getLogger("pytriton").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("pytriton").removeHandler(self)


def serve() -> tuple[Triton, list[int]]:
    """A server with both models, and its ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(3)]
        ports = [each.getsockname()[1] for each in sockets]
    triton = Triton(config=config_of(*ports))
    for name in (MODEL, STREAM):
        bind(triton, name, make(name))
    triton.run()
    return triton, ports[:2]


def stops(count: int, chance: random.Random, pipe: Connection[Any, Any]) -> Tally:
    """Stop as many servers."""
    tally = Tally()
    with WarningHandler(tally):
        for _ in range(count):
            triton, ports = serve()
            pipe.send((*ports, True))
            pipe.recv()
            time.sleep(chance.random() * MOST_LOAD_S)
            with tally.timed() as began:
                triton.stop()
            tally.collect(pipe, began)
    return tally


def unbinds(count: int, chance: random.Random, pipe: Connection[Any, Any], streams: bool) -> Tally:
    """Unbind the models of one server as often, and bind them again."""
    tally = Tally()
    if count:
        with WarningHandler(tally):
            triton, ports = serve()
            pipe.send((*ports, streams))
            pipe.recv()
            for _ in range(count):
                time.sleep(chance.random() * MOST_LOAD_S / 2)
                name = chance.choice([MODEL, STREAM])
                with tally.timed():
                    triton.unbind(name)
                bind(triton, name, make(name))
            tally.collect(pipe, None)
            triton.stop()
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--unbinds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--streams",
        action="store_true",
        help="gRPC streams to models that are unbound, too: in some hundred unbinds, Triton 2.51 once ends itself with "
        "'ASSERTION FAILED: !byte_buffer->Valid()'",
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    ours, theirs = (context := get_context("spawn")).Pipe()
    process = context.Process(target=callers, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    tallies = {
        "stops": stops(arguments.stops, chance, ours),
        "unbinds": unbinds(arguments.unbinds, chance, ours, arguments.streams),
    }
    ours.send(None)
    process.join()
    for what, tally in tallies.items():
        tally.report(what)
    if arguments.json:
        arguments.json.write_text(json.dumps({what: vars(tally) for what, tally in tallies.items()}, indent=2))
    return int(any(tally.problems for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
