"""What a load sends and receives: KServe v2 requests with one tensor, built once, and one HTTP connection."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from tensors import Tensor, datatype, decode, encode, floats, strings
from tritonclient.grpc import service_pb2

__all__ = ["GRPC_PATH", "HOST", "TIMEOUT_S", "Connection", "LoadError", "Target"]
__all__ += ["grpc_output", "grpc_request", "http_body", "http_request"]

HOST = "127.0.0.1"
GRPC_PATH = "/inference.GRPCInferenceService/ModelInfer"
TIMEOUT_S = 60
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3})")
_BODY_BYTES = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
_JSON_BYTES = re.compile(rb"\r\nInference-Header-Content-Length: *(\d+)", re.IGNORECASE)


class LoadError(RuntimeError):
    """The server gave a wrong answer or none, so that nothing can be measured."""


@dataclass(frozen=True)
class Target:
    """A model on a port of this machine, and how many values a request has: strings if any, else float32."""

    port: int
    model: str
    floats: int = 16
    strings: int = 0

    @property
    def path(self) -> str:
        """Path of the model's HTTP endpoint."""
        return f"/v2/models/{self.model}/infer"

    @property
    def values(self) -> Tensor:
        """The input, one row, the same each time."""
        return strings(self.strings) if self.strings else floats(self.floats)

    @property
    def datatype(self) -> str:
        """The protocol's name of the input's, and the output's, elements."""
        return "BYTES" if self.strings else "FP32"


def http_body(values: Tensor) -> tuple[bytes, int]:
    """A KServe v2 request, JSON then tensor, and the length of its JSON in bytes."""
    tensor, data = {"name": "INPUT", "datatype": datatype(values), "shape": values.shape}, encode(values)
    inputs = [{**tensor, "parameters": {"binary_data_size": len(data)}}]
    outputs = [{"name": "OUTPUT", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    return head + data, len(head)


def http_request(target: Target) -> bytes:
    """The bytes of one HTTP request."""
    body, json_bytes = http_body(target.values)
    head = (
        f"POST {target.path} HTTP/1.1\r\nHost: {HOST}:{target.port}\r\n"
        f"Inference-Header-Content-Length: {json_bytes}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def grpc_request(target: Target) -> bytes:
    """A serialised ``ModelInferRequest``."""
    values = target.values
    tensor = {"name": "INPUT", "datatype": datatype(values), "shape": values.shape}
    request = service_pb2.ModelInferRequest(model_name=target.model, inputs=[tensor])
    request.raw_input_contents.append(encode(values))
    return bytes(request.SerializeToString())


def grpc_output(answer: bytes, kind: str = "FP32") -> Tensor:
    """The tensor, of this datatype, of a serialised ``ModelInferResponse``, 1-D."""
    return decode(service_pb2.ModelInferResponse.FromString(answer).raw_output_contents[0], kind)


class Connection:
    """One request after another over one socket, into one buffer for the answers.

    Args:
        stream: Connected, blocking or not.
        request: Bytes of each request.
        answer_bytes: Size of the largest answer.
    """

    def __init__(self, stream: Any, request: bytes, answer_bytes: int) -> None:
        self.stream = stream
        self._request = memoryview(request)
        self._buffer = bytearray(answer_bytes)
        self._view = memoryview(self._buffer)

    def start(self) -> None:
        """Begin the next request; sends what the socket takes at once."""
        self.unsent, self.sent_ns = self._request, perf_counter_ns()
        self.status = self._filled = self._begin = self._end = 0
        self.send()

    def send(self) -> None:
        """Send more of the request."""
        with contextlib.suppress(BlockingIOError):
            self.unsent = self.unsent[self.stream.send(self.unsent) :]

    def receive(self) -> bool:
        """Read once; true when the answer is complete."""
        count = self.stream.recv_into(self._view[self._filled :])
        if not count:
            raise LoadError("the server closed the connection")
        self._filled += count
        if not self._end and (head := self._buffer.find(b"\r\n\r\n", 0, self._filled)) >= 0:
            self.status, self._begin = self._number(_STATUS, head), head + 4
            self._end = self._begin + self._number(_BODY_BYTES, head)
            if self._end > len(self._buffer):
                raise LoadError(f"an answer of {self._end} bytes is more than was expected")
        return 0 < self._end <= self._filled

    def exchange(self) -> bool:
        """Send a request and wait for the answer, on a blocking socket; true if its status is 200."""
        self.start()
        while self.unsent:
            self.send()
        try:
            while not self.receive():
                pass
        except BlockingIOError as error:
            raise LoadError(f"no answer in {TIMEOUT_S} s") from error
        return self.status == 200

    def output(self, kind: str = "FP32") -> Tensor:
        """The tensor of the answer, of this datatype, 1-D."""
        body = bytes(self._view[self._begin : self._end])
        if self.status != 200:
            raise LoadError(f"the server answered {self.status}: {body[:500]!r}")
        return decode(body[self._number(_JSON_BYTES, self._begin) :], kind)

    def _number(self, pattern: re.Pattern[bytes], end: int) -> int:
        found = pattern.search(self._buffer, 0, end)
        if not found:
            raise LoadError(f"the server's answer lacks {pattern.pattern!r}: {bytes(self._view[:end])!r}")
        return int(found[1])
