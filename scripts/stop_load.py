"""Stops servers and unbinds models at random moments under load, and says what became of each request.

Usage: ``python scripts/stop_load.py [--stops 200] [--unbinds 200] [--seed 1] [--json FILE]``. Exit status 1 means that
a request was lost. What may become of a request:

``answered``  with what the model makes of its input.
``refused``   The server said that it does not serve the model, or could not be connected to.
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
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HOST = "127.0.0.1"
SMALL, LARGE, WRITTEN = 16, 2 << 20, 300_000  # numbers: 128 bytes, 16 MiB, 5 MB as JSON
RESPONSES = 8  # of a stream, each of 256 KiB
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
    "was not ready within",  # which our clients ask before their first request
    "no time was left",
)
CLOSURES = ("Socket closed", "Connection reset", "Broken pipe", "closed the connection", "Stream removed", "GOAWAY")


@dataclass(frozen=True)
class Outcome:
    """What became of a request.

    Attributes:
        what: As above; ``closed`` is judged later.
        began: When it began, in :func:`time.monotonic` seconds.
    """

    client: str
    what: str
    began: float
    detail: str = ""


class Cut(Exception):
    """An answer ended before its end."""


class RawClient:
    """A connection of HTTP that is kept, with nothing that would repeat a request.

    Args:
        port: Of the server.
        numbers: How many to send.
        binary: Send and get them as bytes, not as JSON.
    """

    def __init__(self, port: int, numbers: int, binary: bool) -> None:
        x = np.arange(numbers, dtype=np.float64)
        item: dict[str, Any] = {"name": "x", "shape": [numbers], "datatype": "FP64"}
        item |= {"parameters": {"binary_data_size": x.nbytes}} if binary else {"data": x.tolist()}
        wanted = {"name": "y", "parameters": {"binary_data": binary}}
        head = json.dumps({"inputs": [item], "outputs": [wanted]}).encode()
        body = head + (x.tobytes() if binary else b"")
        length = f"Inference-Header-Content-Length: {len(head)}\r\n" if binary else ""
        start = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: {HOST}\r\n{length}Content-Length: {len(body)}\r\n\r\n"
        self._request = start.encode() + body
        self._numbers, self._binary, self._port = numbers, binary, port
        self._socket: socket.socket | None = None

    def __call__(self) -> None:
        """Make a request.

        Raises:
            OSError: There is no answer.
            Cut: There is a part of one.
            ValueError: It is wrong, or an error.
        """
        try:
            if self._socket is None:
                self._socket = socket.create_connection((HOST, self._port), TIMEOUT_S)
            self._check(*self._exchange(self._socket))
        except (OSError, Cut):
            self.close()
            raise

    def _exchange(self, connection: socket.socket) -> tuple[bytes, bytes]:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have been refused before it was whole
            connection.sendall(self._request)
        head, _, body = self._receive(connection, lambda data: b"\r\n\r\n" in data).partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        missing = int(fields[b"content-length"]) - len(body)
        pieces = [body]
        while missing > 0:
            piece = connection.recv(min(missing, 1 << 20))
            if not piece:
                raise Cut(f"{missing} bytes are missing")
            pieces.append(piece)
            missing -= len(piece)
        return head, b"".join(pieces)

    @staticmethod
    def _receive(connection: socket.socket, is_enough: Callable[[bytes], bool]) -> bytes:
        data = b""
        while not is_enough(data):
            try:
                piece = connection.recv(1 << 16)
            except ConnectionError:
                if data:
                    raise Cut("the connection was reset") from None
                raise
            if not piece:
                raise Cut("the connection was closed") if data else ConnectionResetError("Connection reset: closed")
            data += piece
        return data

    def _check(self, head: bytes, body: bytes) -> None:
        if not head.startswith(b"HTTP/1.1 200"):
            raise ValueError(body.decode(errors="replace"))
        if self._binary:
            y = np.frombuffer(body[-8 * self._numbers :], np.float64)
        else:
            y = np.array(json.loads(body)["outputs"][0]["data"])
        check(y, self._numbers)

    def close(self) -> None:
        """Give the connection back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class OwnClient:
    """A client of ours.

    Args:
        url: Of the server.
        numbers: How many to send; 0 has a stream of responses come.
    """

    def __init__(self, url: str, numbers: int) -> None:
        self._url, self._numbers = url, numbers
        self._client: Any = None

    def __call__(self) -> None:
        """Make a request; raises what the client does."""
        try:
            if self._client is None:
                kind, model = (ModelClient, "echo") if self._numbers else (DecoupledModelClient, "stream")
                self._client = kind(self._url, model, ensure_model_is_ready=False, **TIMEOUTS)
            if self._numbers:
                check(self._client.infer_sample(np.arange(self._numbers, dtype=np.float64))["y"], self._numbers)
            else:
                self._stream()
        except Exception:
            self.close()
            raise

    def _stream(self) -> None:
        count = 0
        try:
            for response in self._client.infer_sample(np.array([RESPONSES])):
                check(response["y"], 1 << 15)
                count += 1
        except Exception as error:
            if count:
                raise Cut(f"after {count} responses: {error}") from error
            raise
        if count != RESPONSES:
            raise Cut(f"after {count} responses")

    def close(self) -> None:
        """Give the client back."""
        if self._client is not None:
            with suppress(Exception):
                self._client.close()
            self._client = None


def check(y: Any, numbers: int) -> None:
    """Raise ValueError unless an answer is right."""
    if y.shape != (numbers,) or not np.array_equal(y, 2 * np.arange(numbers, dtype=np.float64)):
        raise ValueError(f"the answer is wrong: {y!r}")


def clients(http_port: int, grpc_port: int) -> dict[str, Callable[[], Any]]:
    """What makes each client."""
    http, grpc = f"http://{HOST}:{http_port}", f"grpc://{HOST}:{grpc_port}"
    return {
        "raw, small": lambda: RawClient(http_port, SMALL, False),
        "raw, large": lambda: RawClient(http_port, LARGE, True),
        "raw, JSON": lambda: RawClient(http_port, WRITTEN, False),
        "HTTP, small": lambda: OwnClient(http, SMALL),
        "HTTP, large": lambda: OwnClient(http, LARGE),
        "gRPC, small": lambda: OwnClient(grpc, SMALL),
        "gRPC, large": lambda: OwnClient(grpc, LARGE),
        "gRPC, stream": lambda: OwnClient(grpc, 0),
    }


def judge(name: str, began: float, error: BaseException) -> Outcome:
    """What an exception says of a request."""
    seen: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        seen.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    text = "; ".join(seen)
    if isinstance(error, Cut):
        what = "lost"
    elif any(refusal in text for refusal in REFUSALS) or isinstance(error, ConnectionRefusedError):
        what = "refused"
    elif any(closure in text for closure in CLOSURES) or isinstance(error, ConnectionError):
        what = "closed"
    else:
        what = "lost"
    return Outcome(name, what, began, "" if what == "refused" else text[:500])


def call(name: str, make: Callable[[], Any], ended: threading.Event, outcomes: list[Outcome]) -> None:
    """Make one request after the other."""
    client = make()
    while not ended.is_set():
        began = time.monotonic()
        try:
            client()
        except (OSError, ValueError, Cut, PyTritonClientError, PyTritonError, InferenceServerException) as error:
            outcomes.append(judge(name, began, error))
            ended.wait(PAUSE_S)
        else:
            outcomes.append(Outcome(name, "answered", began))
    client.close()


def callers(pipe: Connection) -> None:
    """The process of the clients: calls each server whose ports come, until told to end, and tells what came of it."""
    logging.disable(logging.CRITICAL)
    while (ports := pipe.recv()) is not None:
        ended = threading.Event()
        outcomes: list[Outcome] = []
        *addresses, streams = ports
        made = {name: make for name, make in clients(*addresses).items() if streams or name != "gRPC, stream"}
        threads = [threading.Thread(target=call, args=(name, make, ended, outcomes)) for name, make in made.items()]
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
    """What became of all requests.

    Attributes:
        took_s: How long each stop or unbind took.
    """

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)

    def add(self, outcome: Outcome, stop: float | None) -> None:
        """Count a request to a server that began to stop at a moment, or does not."""
        what = outcome.what
        sent = outcome.began + (0.0 if outcome.client.startswith("raw") else PREPARATION_S)
        if what == "closed" and (stop is None or sent < stop):
            what = "lost"
        self.outcomes.setdefault(outcome.client, Counter())[what] += 1
        if what == "lost":
            when = "" if stop is None else f" {outcome.began - stop:+.3f} s from the stop"
            self.problems.append(f"{outcome.client}{when}: {outcome.detail}")

    def report(self, what: str) -> None:
        """Print it."""
        for client, counts in self.outcomes.items():
            print(f"{what}  {client:14}" + "".join(f"  {name}: {counts[name]}" for name in sorted(counts)))
        if self.took_s:
            print(f"{what}: {len(self.took_s)}, median {median(self.took_s):.2f} s, longest {max(self.took_s):.2f} s")
        for problem in self.problems:
            print(f"{what}  PROBLEM  {problem}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def echo(requests: list[Any]) -> list[Any]:
    return [{"y": 2 * request["x"]} for request in requests]


def stream(requests: list[Any]) -> Iterator[list[Any]]:
    for _ in range(int(requests[0]["n"][0])):
        yield [{"y": 2 * np.arange(1 << 15, dtype=np.float64)} for _ in requests]


def bind(triton: Triton, name: str) -> None:
    """Serve one of the models."""
    x, n, y = (
        Tensor(name=name, shape=(-1,), dtype=dtype)
        for name, dtype in (("x", np.float64), ("n", np.int64), ("y", np.float64))
    )
    if name == "echo":
        triton.bind(name, echo, [x], [y], config=ModelConfig(batching=False))
    else:
        triton.bind(name, stream, [n], [y], config=ModelConfig(batching=False, decoupled=True))


def served() -> tuple[Triton, list[int]]:
    """A server with both models, and its ports."""
    http, grpc, metrics = free_ports(3)
    addresses = {"http_address": HOST, "grpc_address": HOST, "metrics_address": HOST}
    config = TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics, **addresses)
    triton = Triton(config=config)
    for name in ("echo", "stream"):
        bind(triton, name)
    triton.run()
    return triton, [http, grpc]


class Warnings(logging.Handler):
    """Collects what a stop warns of."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(logging.WARNING)
        self._tally = tally

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        if "were ended" in record.getMessage():
            self._tally.problems.append(record.getMessage())


def stops(count: int, chance: random.Random, pipe: Connection[Any, Any]) -> Tally:
    """Stop as many servers."""
    tally = Tally()
    handler = Warnings(tally)
    logging.getLogger("pytriton").addHandler(handler)
    for _ in range(count):
        triton, ports = served()
        pipe.send((*ports, True))
        pipe.recv()
        time.sleep(chance.random() * MOST_LOAD_S)
        began = time.monotonic()
        triton.stop()
        tally.took_s.append(time.monotonic() - began)
        pipe.send("end")
        outcomes, hanging = pipe.recv()
        for outcome in outcomes:
            tally.add(outcome, began)
        tally.problems += [f"{name} hangs" for name in hanging]
    logging.getLogger("pytriton").removeHandler(handler)
    return tally


def unbinds(count: int, chance: random.Random, pipe: Connection[Any, Any], streams: bool) -> Tally:
    """Unbind the models of one server as often, and bind them again."""
    tally = Tally()
    handler = Warnings(tally)
    logging.getLogger("pytriton").addHandler(handler)
    triton, ports = served()
    pipe.send((*ports, streams))
    pipe.recv()
    for _ in range(count):
        time.sleep(chance.random() * MOST_LOAD_S / 2)
        name = chance.choice(["echo", "stream"])
        began = time.monotonic()
        triton.unbind(name)
        tally.took_s.append(time.monotonic() - began)
        bind(triton, name)
    pipe.send("end")
    outcomes, hanging = pipe.recv()
    for outcome in outcomes:
        tally.add(outcome, None)
    tally.problems += [f"{name} hangs" for name in hanging]
    triton.stop()
    logging.getLogger("pytriton").removeHandler(handler)
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
        "unbinds": unbinds(arguments.unbinds, chance, ours, arguments.streams) if arguments.unbinds else Tally(),
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
