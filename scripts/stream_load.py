"""Streams of responses of a decoupled model, one after the other.

The model sends ``OUTPUT`` as often as its input ``COUNT`` says. The client is tritonclient.grpc, with a stream that is
opened once and does as little as possible with a response, or ``DecoupledModelClient``, as its user has it.

Usage: ``python scripts/stream_load.py grpc --port 8001 --model stream --count 500 --client tritonclient`` prints one
line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from time import perf_counter_ns, process_time
from typing import Any

import numpy as np
from caller import INIT_TIMEOUT_S, add_times, check_double, command_line, target_of, url
from tally import quantiles
from tensors import Floats
from tritonclient import grpc
from wire import HOST, TIMEOUT_S, LoadError, Target

from pytriton.client import DecoupledModelClient

__all__ = ["Expected", "OpenStream", "Received", "StreamResult", "measure"]


@dataclass(frozen=True)
class Received:
    """The responses to one request, and the nanoseconds from the request to the first of them and to their end."""

    responses: Sequence[Any]
    first_ns: int
    end_ns: int


@dataclass(frozen=True)
class StreamResult:
    """What was measured; the time of a stream is from its request to the end of its responses.

    Attributes:
        streams: Those measured.
        responses: Those of the whole run, warm-up included: what the server's CPU time was spent on.
        first_p50_us: From a request to the first of its responses.
        client_cpu_us: CPU time of this process per response.
    """

    streams: int
    responses: int
    responses_per_s: float
    first_p50_us: float
    first_p99_us: float
    client_cpu_us: float


@dataclass(frozen=True)
class Expected:
    """What each stream must have: ``count`` responses, each twice the values."""

    count: int
    values: Floats

    def check(self, received: Received) -> None:
        """Raise LoadError unless there are as many responses as there should be."""
        if len(received.responses) != self.count:
            raise LoadError(f"a stream had {len(received.responses)} responses instead of {self.count}")


def measure(
    receive: Callable[[], Received], read: Callable[[Any], Floats], expected: Expected, seconds: float, warmup_s: float
) -> StreamResult:
    """Receive one stream after the other for ``seconds``, and one at least, after a warm-up of one at least.

    Args:
        receive: Sends a request and receives all responses.
        read: The array in a response; all of the last streams of warm-up and measurement are verified.
        expected: What each stream must have.
        seconds: Duration of the measurement.
        warmup_s: Duration of what goes before it.

    Raises:
        LoadError: A stream had another number of responses, or a response was wrong.
    """
    began_s = process_time()
    warm = len(_repeat(receive, read, expected, warmup_s)[0])
    first_ns, end_ns = _repeat(receive, read, expected, seconds)
    used_s, streams = process_time() - began_s, len(first_ns)
    responses = expected.count * (warm + streams)
    median_us, _, high_us = (value / 1000 for value in quantiles(first_ns))
    per_s = expected.count * streams / sum(end_ns) * 1e9
    return StreamResult(streams, responses, per_s, median_us, high_us, used_s / responses * 1e6)


def _repeat(
    receive: Callable[[], Received], read: Callable[[Any], Floats], expected: Expected, seconds: float
) -> tuple[list[int], list[int]]:
    """Nanoseconds to the first response, and to the end, of each stream."""
    first_ns: list[int] = []
    end_ns: list[int] = []
    last_ns = perf_counter_ns() + int(seconds * 1e9)
    going = True
    while going:
        received = receive()
        expected.check(received)
        first_ns.append(received.first_ns)
        end_ns.append(received.end_ns)
        going = perf_counter_ns() < last_ns
    for response in received.responses:
        check_double(read(response), expected.values)
    return first_ns, end_ns


class OpenStream:
    """Requests one after the other over a stream of tritonclient that stays open.

    Args:
        client: A ``tritonclient.grpc.InferenceServerClient``.
        model: Name of the model.
        inputs: Of each request.
    """

    def __init__(self, client: Any, model: str, inputs: list[Any]) -> None:
        self._client, self._model, self._inputs = client, model, inputs
        self._ends: SimpleQueue[Exception | int] = SimpleQueue()  # when the stream ended, or why it failed
        self._responses: list[Any] = []
        self._first_ns = 0
        client.start_stream(self._take)

    def receive(self) -> Received:
        """Send a request, and wait for all of its responses.

        Raises:
            LoadError: The server answered with an error, or did not end the stream in time.
        """
        self._responses, sent_ns = [], perf_counter_ns()
        self._client.async_stream_infer(self._model, self._inputs, enable_empty_final_response=True)
        try:
            end = self._ends.get(timeout=TIMEOUT_S)
        except Empty:
            raise LoadError(f"{len(self._responses)} responses and no end in {TIMEOUT_S} s") from None
        if isinstance(end, Exception):
            raise LoadError(f"the stream failed after {len(self._responses)} responses: {end}") from end
        return Received(self._responses, self._first_ns - sent_ns, end - sent_ns)

    def _take(self, result: Any, error: Exception | None) -> None:
        """Called in tritonclient's thread for each response."""
        if error is not None:
            self._ends.put(error)
            return
        message = result.get_response()
        if message.outputs:
            if not self._responses:
                self._first_ns = perf_counter_ns()
            self._responses.append(result)
        if message.parameters["triton_final_response"].bool_param:
            self._ends.put(perf_counter_ns())


def _tritonclient(target: Target, count: int, closing: ExitStack) -> tuple[Callable[[], Received], Callable[..., Any]]:
    inputs = []
    for name, datatype, array in (("INPUT", "FP32", target.values), ("COUNT", "INT32", np.array([[count]], np.int32))):
        inputs.append(grpc.InferInput(name, array.shape, datatype))
        inputs[-1].set_data_from_numpy(array)
    client = closing.enter_context(grpc.InferenceServerClient(f"{HOST}:{target.port}"))
    return OpenStream(client, target.model, inputs).receive, lambda result: result.as_numpy("OUTPUT")


def _pytriton(target: Target, count: int, closing: ExitStack) -> tuple[Callable[[], Received], Callable[..., Any]]:
    client = DecoupledModelClient(url("grpc", target), target.model, init_timeout_s=INIT_TIMEOUT_S)
    closing.callback(client.close)
    values, counts = target.values, np.array([[count]], np.int32)

    def receive() -> Received:
        responses: list[Floats] = []
        sent_ns = first_ns = perf_counter_ns()
        for response in client.infer_batch(INPUT=values, COUNT=counts):
            if not responses:
                first_ns = perf_counter_ns()
            responses.append(response["OUTPUT"])
        return Received(responses, first_ns - sent_ns, perf_counter_ns() - sent_ns)

    return receive, np.asarray


def main() -> None:
    """Measure once as the command line says."""
    parser = command_line("Receive streams of responses; prints JSON.")
    add_times(parser)
    parser.add_argument("--count", type=int, default=500, help="responses of each stream (500)")
    parser.add_argument("--client", choices=["tritonclient", "pytriton"], default="tritonclient")
    chosen = parser.parse_args()
    target, connect = target_of(chosen), {"tritonclient": _tritonclient, "pytriton": _pytriton}[chosen.client]
    with ExitStack() as closing:
        receive, read = connect(target, chosen.count, closing)
        result = measure(receive, read, Expected(chosen.count, target.values), chosen.seconds, chosen.warmup)
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
