"""The requests of a load: tensors, ids and parameters, as bytes of HTTP and of gRPC; and the outputs of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

__all__ = [
    "BUSY",
    "ECHO",
    "ENCODER",
    "ERRANT",
    "HOST",
    "ID",
    "MODEL",
    "NESTED",
    "PAIR",
    "STEPS",
    "STREAM",
    "WORKLOADS",
    "LoadError",
    "Workload",
]
__all__ += ["check_outputs", "encode", "grpc_outputs", "grpc_request", "http_outputs", "http_request"]
__all__ += ["json_outputs", "json_request", "strings"]

HOST = "127.0.0.1"
MODEL = "double"  # OUTPUT = 2 * INPUT, float32
ECHO = "echo"  # returns its byte strings
PAIR = "pair"  # doubles a float32 and an int64 input
STREAM = "stream"  # decoupled; sends OUTPUT = 2 * INPUT as often as COUNT says
BUSY = "busy"  # doubles, and computes for 5 ms, however large the batch
ENCODER = "encoder"  # a vector of 16 times the length of a text, after computing for 5 ms, however large the batch
ERRANT = "errant"  # fails for negative values, and takes as many seconds as the largest value says
NESTED = "nested"  # calls MODEL, and returns what that does
STEPS = "steps"  # a Pipeline of both
ID = b"00000000"  # generators put a counter of the same length in its place
LONGEST_STRING_BYTES = 64
PARAMETERS: dict[str, str | int | bool] = {"tenant": "north", "attempt": 1, "traced": True}
_DATATYPES = {"f": "FP32", "i": "INT64", "O": "BYTES"}
_JSON_BYTES = re.compile(rb"\r\nInference-Header-Content-Length: *(\d+)", re.IGNORECASE)

Tensor = NDArray[Any]


class LoadError(RuntimeError):
    """The server gave a wrong answer or none, so that nothing can be measured."""


@dataclass(frozen=True)
class Workload:
    """The kind of the requests of a load.

    Attributes:
        values: Values of a row; float32, or byte strings of 0 to 64 bytes.
        strings: Whether they are byte strings.
        rows: The numbers of rows, in rotation.
        ids: Whether each request has an id of its own.
        parameters: Whether each request has parameters.
        pair: Whether each request has a second input, int64.
        busy: Whether the requests go to the model that computes for 5 ms.
        text: Whether each row is a text, for the model that makes vectors of them.
    """

    values: int = 16
    strings: bool = False
    rows: tuple[int, ...] = (1,)
    ids: bool = False
    parameters: bool = False
    pair: bool = False
    busy: bool = False
    text: bool = False

    @property
    def model(self) -> str:
        """The model that the requests go to."""
        if self.text:
            return ENCODER
        return ECHO if self.strings else PAIR if self.pair else BUSY if self.busy else MODEL

    def inputs(self, rows: int) -> dict[str, Tensor]:
        """The input tensors of a request, the same at each call."""
        if self.strings or self.text:
            return {"INPUT": strings(rows, 1 if self.text else self.values)}
        random = np.random.default_rng(0)
        inputs: dict[str, Tensor] = {"INPUT": random.standard_normal((rows, self.values), dtype=np.float32)}
        if self.pair:
            inputs["INPUT_2"] = random.integers(0, 1 << 40, (rows, 3), np.int64)
        return inputs

    def outputs(self, rows: int, copies: bool = False) -> dict[str, bytes]:
        """The bytes of the outputs; ``copies`` is for a server that copies inputs instead of doubling them."""
        if self.text:
            lengths = [[len(text)] * self.values for (text,) in strings(rows, 1)]
            return {"result": encode(np.array(lengths, np.float32))}
        return {
            name.replace("INPUT", "OUTPUT"): encode(each if copies or self.strings else 2 * each)
            for name, each in self.inputs(rows).items()
        }


_MIXED = {"rows": (1, 2, 3, 4)}
WORKLOADS = {
    "64 B": Workload(),
    "16 KiB": Workload(4 << 10),
    "256 KiB": Workload(64 << 10),
    "1 MiB": Workload(256 << 10),
    "16 MiB": Workload(4 << 20),
    "64 B, 5 ms": Workload(busy=True),
    "text, 5 ms": Workload(text=True),
    "1000 strings": Workload(1000, strings=True),
    "1-4 rows": Workload(**_MIXED),
    "1-4 rows, ids": Workload(**_MIXED, ids=True),
    "1-4 rows, ids, parameters": Workload(**_MIXED, ids=True, parameters=True),
    "1-4 rows, ids, two inputs": Workload(**_MIXED, ids=True, pair=True),
    "1-4 rows, ids, 16 strings": Workload(**_MIXED, strings=True, ids=True),
}


@lru_cache(1)
def strings(rows: int, count: int) -> Tensor:
    """Byte strings of letters, shape ``(rows, count)``; their lengths are spread evenly from 0 to the longest."""
    random = np.random.default_rng(0)
    values = np.empty((rows, count), np.object_)
    lengths = random.permutation(np.arange(values.size) % (LONGEST_STRING_BYTES + 1))
    values.ravel()[:] = [random.integers(ord("a"), ord("z") + 1, length, np.uint8).tobytes() for length in lengths]
    return values


def encode(values: Tensor) -> bytes:
    """The elements in the bytes of the KServe protocol."""
    return bytes(serialize_byte_tensor(values).item()) if values.dtype == np.object_ else values.tobytes()


def http_request(port: int, workload: Workload, rows: int) -> bytes:
    """A whole HTTP request with binary tensors."""
    data, inputs, outputs = b"", [], []
    for name, values in workload.inputs(rows).items():
        encoded = encode(values)
        data += encoded
        described = {"name": name, "datatype": _DATATYPES[values.dtype.kind], "shape": values.shape}
        inputs.append({**described, "parameters": {"binary_data_size": len(encoded)}})
        output = "result" if workload.text else name.replace("INPUT", "OUTPUT")
        outputs.append({"name": output, "parameters": {"binary_data": True}})
    head: dict[str, Any] = {"id": ID.decode()} if workload.ids else {}
    head |= {"parameters": PARAMETERS} if workload.parameters else {}
    body = json.dumps({**head, "inputs": inputs, "outputs": outputs}).encode()
    return (
        f"POST /v2/models/{workload.model}/infer HTTP/1.1\r\nHost: {HOST}:{port}\r\n"
        f"Inference-Header-Content-Length: {len(body)}\r\nContent-Length: {len(body) + len(data)}\r\n\r\n"
    ).encode() + (body + data)


def http_outputs(head: bytes, body: bytes) -> dict[str, bytes]:
    """The bytes of the outputs in an HTTP response."""
    found = _JSON_BYTES.search(head)
    if not found:
        raise LoadError(f"the response has no binary tensors: {head!r} {body[:500]!r}")
    outputs, position = {}, int(found[1])
    for output in json.loads(body[:position])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        outputs[output["name"]] = body[position : position + size]
        position += size
    return outputs


def json_request(port: int, workload: Workload, rows: int) -> bytes:
    """A whole request of one row to the app, with numbers as short as their dtype allows."""
    (values,) = workload.inputs(1)["INPUT"]
    body = json.dumps({"INPUT": list(map(float, values.astype(str)))}).encode()
    return (
        f"POST /predict/{workload.model} HTTP/1.1\r\nHost: {HOST}:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def json_outputs(head: bytes, body: bytes) -> dict[str, bytes]:
    """The bytes of the float32 outputs in a response of the app."""
    return {name: np.asarray(values, np.float32).tobytes() for name, values in json.loads(body).items()}


def grpc_request(port: int, workload: Workload, rows: int) -> bytes:
    """A serialized ``ModelInferRequest``."""
    request = service_pb2.ModelInferRequest(model_name=workload.model, id=ID.decode() if workload.ids else "")
    for name, value in (PARAMETERS if workload.parameters else {}).items():
        field = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(request.parameters[name], field, value)
    for name, values in workload.inputs(rows).items():
        request.inputs.add(name=name, datatype=_DATATYPES[values.dtype.kind], shape=values.shape)
        request.raw_input_contents.append(encode(values))
    return bytes(request.SerializeToString())


def grpc_outputs(head: bytes, body: bytes) -> dict[str, bytes]:
    """The bytes of the outputs in a serialized ``ModelInferResponse``."""
    response = service_pb2.ModelInferResponse.FromString(body)
    return {each.name: data for each, data in zip(response.outputs, response.raw_output_contents, strict=True)}


def check_outputs(outputs: Mapping[str, bytes], expected: Mapping[str, bytes]) -> None:
    """Raise LoadError unless the outputs are the expected ones."""
    for name, data in expected.items():
        if outputs.get(name) != data:
            raise LoadError(f"wrong output {name}: {outputs.get(name, b'')[:32]!r}, expected {data[:32]!r}")
