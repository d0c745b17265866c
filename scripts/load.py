"""Load for one inference server on this machine: a closed loop of requests over N keep-alive connections.

The model has an input ``INPUT`` and an output ``OUTPUT`` of one shape: float32, which it doubles, or byte strings,
which it gives back. Requests are built once, and answers are looked into only before and after the load, to take little
of the cores that generator and server share:

    HTTP     1 connection: a blocking socket; more: wrk if installed, else one epoll loop
    gRPC     h2load if installed and up to 48 KiB; else grpcio, with blocking calls on 1 connection, asyncio on more

A request takes the generator about 8 us of a core with wrk, 14 us with the epoll loop and 0.2 ms with grpcio, which
limits what can be seen with the latter. wrk corrects its percentiles for coordinated omission: a latency of several
mean intervals counts several times.

Usage: ``python scripts/load.py http --port 8000 --model m --connections 16 --seconds 10`` prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import selectors
import socket
import struct
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from time import perf_counter_ns

import grpc
import numpy as np
from programs import h2load, has_h2load, has_wrk, warmed, wrk
from tally import Result, Tally
from tensors import Tensor, datatype
from wire import (
    GRPC_PATH,
    HOST,
    TIMEOUT_S,
    Connection,
    LoadError,
    Target,
    grpc_output,
    grpc_request,
    http_request,
)

__all__ = ["LoadError", "Result", "Target", "infer_http", "load", "model_output"]

# h2load cuts the last answers off; when they are large, the server's gRPC lingers over them for seconds.
_H2LOAD_BYTES = 48 * 1024
_GRPC_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # or all channels to one address share one connection
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]


def model_output(values: Tensor) -> Tensor:
    """What the benchmark's models make of their input: floats are doubled, strings given back."""
    return values if datatype(values) == "BYTES" else 2 * values


def load(
    protocol: str,
    target: Target,
    connections: int,
    seconds: float,
    warmup_s: float = 1,
    model: Callable[[Tensor], Tensor] = model_output,
) -> Result:
    """Keep one request in flight on each connection for ``warmup_s + seconds``.

    wrk and h2load round both up to whole seconds.

    Raises:
        LoadError: An answer before or after the load is not ``model(input)``, or a connection broke.
    """
    infer, drive = {"http": (infer_http, _drive_http), "grpc": (_infer_grpc, _drive_grpc)}[protocol]
    _verify(infer(target), model(target.values))
    result = drive(target, connections, seconds, warmup_s)
    _verify(infer(target), model(target.values))
    return result


def _verify(output: Tensor, expected: Tensor) -> None:
    if not np.array_equal(output, expected.ravel()):
        raise LoadError(f"wrong output {output[:4]}, expected {expected.ravel()[:4]}")


def _connect(target: Target) -> socket.socket:
    stream = socket.create_connection((HOST, target.port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A time-out of Python's own would cost a poll before each read.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT_S, 0))
    return stream


def _connection(target: Target, stream: socket.socket) -> Connection:
    request = http_request(target)
    return Connection(stream, request, 64 * 1024 + len(request))  # the output is as long as the input


def infer_http(target: Target) -> Tensor:
    """The answer to one request over a connection of its own, 1-D.

    Raises:
        LoadError: It is an error, or none came.
        OSError: Nothing listens there.
    """
    with _connect(target) as stream:
        connection = _connection(target, stream)
        connection.exchange()
        return connection.output(target.datatype)


def _drive_http(target: Target, connections: int, seconds: float, warmup_s: float) -> Result:
    if connections > 1 and has_wrk():
        return warmed(partial(wrk, target, connections), warmup_s, seconds)
    tally = Tally(warmup_s, seconds)
    if connections > 1:
        _send_selecting(target, connections, tally)
        return tally.result("epoll")
    with _connect(target) as stream:
        connection = _connection(target, stream)
        going = True
        while going:
            good = connection.exchange()
            going = tally.add(connection.sent_ns, good)
    return tally.result("socket")


def _send_selecting(target: Target, connections: int, tally: Tally) -> None:
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as streams:
        for _ in range(connections):
            stream = streams.enter_context(_connect(target))
            stream.setblocking(False)
            connection = _connection(target, stream)
            connection.start()
            selector.register(stream, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        going = True
        while going:
            ready = selector.select(TIMEOUT_S)
            if not ready:
                raise LoadError(f"no answer in {TIMEOUT_S} s")
            for key, events in ready:
                connection = key.data
                if events & selectors.EVENT_WRITE:
                    connection.send()
                if events & selectors.EVENT_READ and connection.receive():
                    going = tally.add(connection.sent_ns, connection.status == 200)
                    connection.start()
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
                if wanted != key.events:
                    selector.modify(key.fileobj, wanted, connection)


def _infer_grpc(target: Target) -> Tensor:
    return grpc_output(_grpc_answer(target), target.datatype)


def _grpc_answer(target: Target) -> bytes:
    with grpc.insecure_channel(f"{HOST}:{target.port}", _GRPC_OPTIONS) as channel:
        answer: bytes = channel.unary_unary(GRPC_PATH)(grpc_request(target), timeout=TIMEOUT_S)
    return answer


def _drive_grpc(target: Target, connections: int, seconds: float, warmup_s: float) -> Result:
    if has_h2load() and len(grpc_request(target)) <= _H2LOAD_BYTES:
        answer_bytes = len(_grpc_answer(target))
        return warmed(partial(h2load, target, connections, answer_bytes=answer_bytes), warmup_s, seconds)
    tally = Tally(warmup_s, seconds)
    if connections > 1:
        asyncio.run(_call_concurrently(target, connections, tally))
    else:
        _call_blocking(target, tally)
    return tally.result("grpcio")


def _call_blocking(target: Target, tally: Tally) -> None:
    request = grpc_request(target)
    with grpc.insecure_channel(f"{HOST}:{target.port}", _GRPC_OPTIONS) as channel:
        infer = channel.unary_unary(GRPC_PATH)
        going = True
        while going:
            sent_ns, good = perf_counter_ns(), True
            try:
                infer(request, timeout=TIMEOUT_S)
            except grpc.RpcError:
                good = False
            going = tally.add(sent_ns, good)


async def _call_concurrently(target: Target, connections: int, tally: Tally) -> None:
    request = grpc_request(target)

    async def call_repeatedly() -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{target.port}", _GRPC_OPTIONS) as channel:
            infer = channel.unary_unary(GRPC_PATH)
            going = True
            while going:
                sent_ns, good = perf_counter_ns(), True
                try:
                    await infer(request, timeout=TIMEOUT_S)
                except grpc.RpcError:
                    good = False
                going = tally.add(sent_ns, good)

    await asyncio.gather(*(call_repeatedly() for _ in range(connections)))


def main() -> None:
    """Measure once as the command line says."""
    parser = argparse.ArgumentParser(description="Drive one inference server on this machine; prints JSON.")
    parser.add_argument("protocol", choices=["http", "grpc"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--floats", type=int, default=16, help="values per request; 262144 are 1 MiB")
    parser.add_argument("--strings", type=int, default=0, help="per request, instead of floats")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup", type=float, default=1, help="seconds before the measurement")
    chosen = parser.parse_args()
    target = Target(chosen.port, chosen.model, chosen.floats, chosen.strings)
    print(json.dumps(asdict(load(chosen.protocol, target, chosen.connections, chosen.seconds, chosen.warmup))))


if __name__ == "__main__":
    main()
