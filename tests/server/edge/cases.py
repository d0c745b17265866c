"""The requests that both endpoints get, and the differences between their answers."""

from __future__ import annotations

import gzip
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tests.server.edge.models import DTYPES
from tests.server.edge.wire import LENGTH, Answer, Request

FLOATS = np.array([[1.5, -2.0, 0.1]], np.float32)
VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    "FP16": [0.5, -1.25, 65504.0],
    "FP32": [0.1, -1.5e38, 1e-40],
    "FP64": [0.1, -1.5e308, 5e-324],
    "BYTES": ["", 'text "\u20ac" \u0001', "\U0001f600"],
}


class Tensor(NamedTuple):
    """An input of a request.

    Attributes:
        name: Its name.
        dtype: As the protocol names it.
        array: Its values; for BYTES of ``bytes``.
        binary: Whether it is sent as binary data.
        more: Members of the JSON that replace or follow.
    """

    name: str
    dtype: str
    array: np.ndarray
    binary: bool = False
    more: Mapping[str, Any] = {}

    def data(self) -> bytes:
        """The binary data."""
        if self.dtype != "BYTES":
            return self.array.tobytes()
        return b"".join(struct.pack("<I", len(text)) + text for text in self.array.flatten())

    def json(self) -> dict[str, Any]:
        """The description, with the values unless they are sent as binary data."""
        described: dict[str, Any] = {"name": self.name, "shape": list(self.array.shape), "datatype": self.dtype}
        if self.binary:
            described["parameters"] = {"binary_data_size": len(self.data())}
        elif self.dtype == "BYTES":
            described["data"] = [text.decode() for text in self.array.flatten()]
        else:
            described["data"] = self.array.tolist()
        return {name: value for name, value in {**described, **self.more}.items() if value is not None}


def infer(
    model: str,
    *tensors: Tensor,
    outputs: Any = None,
    headers: Mapping[str, str] | None = None,
    path: str = "infer",
    **members: Any,
) -> Request:
    """A request to ``/v2/models/{model}/infer``; ``members`` are further ones of its JSON."""
    described: dict[str, Any] = {"inputs": [each.json() for each in tensors], **members}
    if outputs is not None:
        described["outputs"] = outputs
    header = json.dumps(described).encode()
    lengths = {}
    binary = [each.data() for each in tensors if each.binary]
    if binary:
        lengths[LENGTH] = str(len(header))
    return Request(
        "POST", f"/v2/models/{model}/{path}", header + b"".join(binary), {**lengths, **(headers or {})}
    )  # fmt: skip


def post(target: str, body: bytes | str | Mapping[str, Any], **headers: str) -> Request:
    """A POST; names of headers have underscores for dashes."""
    if isinstance(body, Mapping):
        body = json.dumps(body)
    content = body.encode() if isinstance(body, str) else body
    return Request("POST", target, content, {name.replace("_", "-"): value for name, value in headers.items()})


def get(target: str) -> Request:
    """A GET."""
    return Request("GET", target)


def numbers(array: np.ndarray = FLOATS, **options: Any) -> Tensor:
    """The input ``x`` of most models."""
    return Tensor("x", "FP32", array, **options)


def values_of(dtype: str) -> np.ndarray:
    """Three values, among them the largest."""
    if dtype == "BYTES":
        return np.array([[text.encode() for text in VALUES[dtype]]], object)
    kind = np.dtype(DTYPES[dtype])
    if dtype in VALUES:
        return np.array([VALUES[dtype]], kind)
    limits = np.iinfo(kind)
    return np.array([[limits.min, 0, limits.max]], kind)


def words_of(text: Any, count: Any) -> dict[str, Any]:
    return {"text": text, "count": count}


def _encodings() -> Iterator[tuple[str, Request]]:
    for dtype in DTYPES:
        array = values_of(dtype)
        for is_binary in (False, True):
            form = "binary" if is_binary else "JSON"
            tensor = Tensor("x", dtype, array, binary=is_binary)
            yield f"{dtype} as {form}, answered as JSON", infer(f"echo_{dtype}", tensor)
            wanted = [{"name": "x", "parameters": {"binary_data": True}}]
            yield f"{dtype} as {form}, answered as binary data", infer(f"echo_{dtype}", tensor, outputs=wanted)
        empty = Tensor("x", dtype, array[:, :0], binary=True)
        yield f"{dtype} without values", infer(f"echo_{dtype}", empty, parameters={"binary_data_output": True})
        rows = Tensor("x", dtype, np.concatenate([array] * 4))
        yield f"{dtype} in four rows", infer(f"echo_{dtype}", rows)


def _inputs() -> Iterator[tuple[str, Request]]:
    ones = np.ones((2, 2), np.int32)
    a, b = Tensor("a", "INT32", ones), Tensor("b", "INT32", ones * 3, binary=True)
    yield "two inputs and outputs", infer("pair", a, a._replace(name="b"))
    yield "one input as JSON, one as binary data", infer("pair", a, b)
    yield "one output as JSON, one as binary data", infer(
        "pair", b._replace(name="a"), b,
        outputs=[{"name": "sum", "parameters": {"binary_data": True}}, {"name": "difference"}],
    )  # fmt: skip
    yield "one of two outputs", infer("pair", a, b, outputs=[{"name": "difference"}])
    yield "outputs in another order", infer("pair", a, b, outputs=[{"name": "difference"}, {"name": "sum"}])
    yield "outputs that are an empty list", infer("pair", a, b, outputs=[])
    yield "an output twice", infer("pair", a, b, outputs=[{"name": "sum"}, {"name": "sum"}])
    yield "an unknown output", infer("pair", a, b, outputs=[{"name": "product"}])
    yield "an output without a name", infer("pair", a, b, outputs=[{}])
    yield "an input twice", infer("pair", a, b, a)
    yield "a missing input", infer("pair", a)
    yield "an unknown input", infer("pair", a, b, a._replace(name="c"))
    yield "no inputs", post("/v2/models/pair/infer", {"inputs": []})
    yield "inputs that are missing", post("/v2/models/pair/infer", {})
    yield "inputs that are no list", post("/v2/models/pair/infer", {"inputs": {"a": 1}})
    yield "an input that is no object", post("/v2/models/pair/infer", {"inputs": [1]})
    yield "nested data", infer("pair", a._replace(more={"data": [[1, 1], [1, 1]]}), b)
    yield "flat data", infer("pair", a._replace(more={"data": [1, 1, 1, 1]}), b)
    yield "unevenly nested data", infer("pair", a._replace(more={"data": [[1], [1, 1, 1]]}), b)
    yield "unknown members", infer("pair", a._replace(more={"unknown": {"deep": [1]}}), b, unknown=[1, {"a": None}])
    yield "without batching", infer("flat", numbers(np.ones((3, 2), np.float32)))


def _wrong_tensors() -> Iterator[tuple[str, Request]]:
    wrong: dict[str, dict[str, Any]] = {
        "too few values": {"data": [1.0]},
        "too many values": {"data": [1.0] * 4},
        "no data": {"data": None},
        "data that are text": {"data": "text"},
        "text among numbers": {"data": [1.0, "2", 3.0]},
        "null among numbers": {"data": [1.0, None, 3.0]},
        "an object among numbers": {"data": [1.0, {}, 3.0]},
        "another dtype": {"datatype": "INT32", "data": [1, 2, 3]},
        "an unknown dtype": {"datatype": "FP31"},
        "no dtype": {"datatype": None},
        "a dtype that is a number": {"datatype": 1},
        "no shape": {"shape": None},
        "a shape that is a number": {"shape": 3},
        "a shape of text": {"shape": ["1", "3"]},
        "a shape with fractions": {"shape": [1.5, 2]},
        "a negative shape": {"shape": [1, -3]},
        "a shape of too many dimensions": {"shape": [1, 3, 1]},
        "an empty shape": {"shape": []},
        "no name": {"name": None},
        "a name that is a number": {"name": 1},
        "parameters that are no object": {"parameters": 1},
    }
    for name, more in wrong.items():
        yield name, infer("echo_FP32", numbers(more=more))
    yield "too many rows", infer("echo_FP32", numbers(np.ones((9, 3), np.float32)))
    yield "no rows", infer("echo_FP32", numbers(np.ones((0, 3), np.float32)))
    yield (
        "a fixed dimension that differs",
        infer("pair", *(Tensor(n, "INT32", np.ones((1, 3), np.int32)) for n in "ab")),
    )
    small: dict[str, list[Any]] = {
        "INT8": [128, 0, 0],
        "UINT8": [-1, 0, 0],
        "INT32": [2**31, 0, 0],
        "UINT64": [2**64, 0, 0],
    }
    for dtype, values in small.items():
        tensor = Tensor("x", dtype, values_of(dtype), more={"data": [values]})
        yield f"a number beyond {dtype}", infer(f"echo_{dtype}", tensor)
    fraction = Tensor("x", "INT32", values_of("INT32"), more={"data": [[1.5, 2, 3]]})
    yield "a fraction for an integer", infer("echo_INT32", fraction)
    whole = Tensor("x", "INT32", values_of("INT32"), more={"data": [[1.0, 2, 3]]})
    yield "a whole number with a fraction's form for an integer", infer("echo_INT32", whole)
    yield "a boolean for a number", infer("echo_INT32", whole._replace(more={"data": [[True, 2, 3]]}))
    yield (
        "a number for a boolean",
        infer("echo_BOOL", Tensor("x", "BOOL", values_of("BOOL"), more={"data": [[1, 0, 2]]})),
    )
    yield (
        "integers for floating-point numbers",
        infer("echo_FP64", Tensor("x", "FP64", values_of("FP64"), more={"data": [[1, -2, 2**53]]})),
    )
    yield (
        "a number for text",
        infer("echo_BYTES", Tensor("x", "BYTES", values_of("BYTES"), more={"data": [["a", 1, "b"]]})),
    )


def _binary_data() -> Iterator[tuple[str, Request]]:
    tensor = numbers(binary=True)
    good = infer("echo_FP32", tensor)
    header = int(good.headers[LENGTH])
    sizes = {"less": 8, "more": 16, "a negative number": -12, "text": "12", "a fraction": 12.0, "zero": 0}
    for name, size in sizes.items():
        yield (
            f"binary_data_size of {name}",
            infer("echo_FP32", tensor._replace(more={"parameters": {"binary_data_size": size}})),
        )
    lengths = {
        "less": header - 1,
        "more": header + 1,
        "zero": 0,
        "beyond the body": 10_000,
        "negative": -1,
        "text": "x",
        "huge": 2**64,
        "a fraction": "10.5",
        "with spaces": f" {header} ",
    }
    for name, length in lengths.items():
        yield f"a header length that is {name}", Request(good.method, good.target, good.body, {LENGTH: str(length)})
    yield "bytes after the binary data", Request(good.method, good.target, good.body + b"more", good.headers)
    yield "missing binary data", Request(good.method, good.target, good.body[:-1], good.headers)
    yield "raw binary data", Request("POST", "/v2/models/echo_FP32/infer", FLOATS.tobytes(), {LENGTH: "0"})
    yield "raw binary data of an unfitting size", Request("POST", "/v2/models/echo_FP32/infer", b"12345", {LENGTH: "0"})
    yield "raw binary data for two inputs", Request("POST", "/v2/models/pair/infer", bytes(16), {LENGTH: "0"})
    text = Tensor("x", "BYTES", values_of("BYTES"), binary=True)
    for name, data in {
        "cut off": text.data()[:-1],
        "beyond their data": b"\xff\xff\xff\x7f" + text.data()[4:],
        "too many": text.data() + b"\0\0\0\0",
    }.items():
        more = {"parameters": {"binary_data_size": len(data)}}
        request = infer("echo_BYTES", text._replace(more=more))
        start = int(request.headers[LENGTH])
        yield (
            f"byte strings that are {name}",
            Request("POST", request.target, request.body[:start] + data, request.headers),
        )
    yield (
        "BYTES that are no text, as JSON",
        infer("echo_BYTES", Tensor("x", "BYTES", np.array([[b"\xff\xfe"]], object), binary=True)),
    )
    yield (
        "binary_data that is no boolean",
        infer("echo_FP32", numbers(), outputs=[{"name": "x", "parameters": {"binary_data": "yes"}}]),
    )
    yield "binary data for all outputs but one", infer(
        "echo_FP32", numbers(), outputs=[{"name": "x", "parameters": {"binary_data": False}}],
        parameters={"binary_data_output": True},
    )  # fmt: skip
    for name, value in {"infinity": math.inf, "not a number": math.nan}.items():
        special = numbers(np.array([[value]], np.float32), binary=True)
        yield f"{name} answered as JSON", infer("echo_FP32", special)
        yield f"{name} answered as binary data", infer("echo_FP32", special, parameters={"binary_data_output": True})


def _requests() -> Iterator[tuple[str, Request]]:
    yield "an id", infer("echo_FP32", numbers(), id="some id \u20ac")
    yield "an empty id", infer("echo_FP32", numbers(), id="")
    yield "an id that is a number", infer("echo_FP32", numbers(), id=7)
    parameters: dict[str, Any] = {"text": "\u20ac", "whole": -5, "large": 2**63 - 1, "yes": True, "fraction": 0.5}
    yield "parameters", infer("told", numbers(), parameters=parameters)
    for name, value in {"null": None, "list": [1], "object": {"a": 1}, "beyond 64 bits": 2**64}.items():
        yield f"a parameter that is a {name}", infer("told", numbers(), parameters={"p": value})
    yield "parameters that are a list", infer("told", numbers(), parameters=[1])
    yield "a reserved parameter", infer("told", numbers(), parameters={"triton_own": "x"})
    yield "forwarded headers", infer("told", numbers(), headers={"X-One": "1", "x-two": "zwei", "Other": "3"})
    yield (
        "forwarded headers beside parameters of the same name",
        infer("told", numbers(), parameters={"x-one": "p"}, headers={"x-one": "h"}),
    )
    for name, given in {
        "a priority": {"priority": 2},
        "a priority that is too low": {"priority": 3},
        "a priority that is text": {"priority": "1"},
        "a negative priority": {"priority": -1},
        "a timeout": {"timeout": 10_000_000},
        "a timeout that is text": {"timeout": "1"},
        "a sequence": {"sequence_id": 7, "sequence_start": True, "sequence_end": True},
        "a sequence with a name": {"sequence_id": "seven", "sequence_start": True},
        "a sequence that is a fraction": {"sequence_id": 0.5},
        "a flag that is no boolean": {"sequence_id": 7, "sequence_start": 1},
    }.items():
        yield name, infer("told", numbers(), parameters=given)
    yield "a failing callable", infer("failing", numbers())
    yield "an unknown model", infer("unknown", numbers())
    yield "a version", infer("versions/versions/1", numbers())
    yield "the version that the policy chooses", infer("versions", numbers())
    yield "a version that is not loaded", infer("versions/versions/2", numbers())
    yield "a version that is no number", infer("versions/versions/x", numbers())
    yield "a version of another model", infer("pair/versions/9", numbers())
    yield (
        "a decoupled model",
        infer(
            "stream",
            Tensor("text", "BYTES", np.array([[b"a"]], object)),
            Tensor("count", "INT32", np.array([[1]], np.int32)),
        ),
    )
    for count in (0, 1, 3, 9):
        yield (
            f"{count} classes",
            infer(
                "labels",
                numbers(np.array([[0.5, 3, 2], [9, 9, -1]], np.float32)),
                outputs=[{"name": "x", "parameters": {"classification": count}}],
            ),
        )
    yield (
        "classes as binary data",
        infer(
            "labels",
            numbers(np.ones((1, 3), np.float32)),
            outputs=[{"name": "x", "parameters": {"classification": 2, "binary_data": True}}],
        ),
    )
    yield (
        "classes without labels",
        infer(
            "echo_INT32",
            Tensor("x", "INT32", values_of("INT32")),
            outputs=[{"name": "x", "parameters": {"classification": 2}}],
        ),
    )
    yield (
        "classes of BYTES",
        infer(
            "echo_BYTES",
            Tensor("x", "BYTES", values_of("BYTES")),
            outputs=[{"name": "x", "parameters": {"classification": 2}}],
        ),
    )
    yield (
        "a classification that is text",
        infer(
            "labels",
            numbers(np.ones((1, 3), np.float32)),
            outputs=[{"name": "x", "parameters": {"classification": "2"}}],
        ),
    )
    yield (
        "an unknown region of shared memory for an input",
        infer(
            "echo_FP32",
            numbers(more={"data": None, "parameters": {"shared_memory_region": "none", "shared_memory_byte_size": 12}}),
        ),
    )
    yield (
        "an unknown region of shared memory for an output",
        infer(
            "echo_FP32",
            numbers(),
            outputs=[{"name": "x", "parameters": {"shared_memory_region": "none", "shared_memory_byte_size": 12}}],
        ),
    )
    yield (
        "a region of shared memory without a size",
        infer("echo_FP32", numbers(more={"data": None, "parameters": {"shared_memory_region": "none"}})),
    )


def _bodies() -> Iterator[tuple[str, Request]]:
    target = "/v2/models/echo_FP32/infer"
    good = infer("echo_FP32", numbers())
    bodies: dict[str, bytes] = {
        "an empty body": b"",
        "white space": b"  \n ",
        "no JSON": b"text",
        "half of a JSON object": good.body[:-5],
        "two JSON objects": good.body * 2,
        "a list": b"[1, 2]",
        "a number": b"1",
        "null": b"null",
        "text": b'"text"',
        "a byte order mark": b"\xef\xbb\xbf" + good.body,
        "bytes that are no UTF-8": good.body.replace(b'"x"', b'"\xff"'),
        "a trailing comma": good.body.replace(b"]}]", b"],}]"),
        "a comment": b"/* */" + good.body,
        "single quotes": good.body.replace(b'"', b"'"),
        "white space around": b" \r\n\t" + good.body + b" \n",
        "a member twice": good.body[:-1] + b', "id": "1", "id": "2"}',
        "an escaped name": good.body.replace(b'"inputs"', b'"\\u0069nputs"'),
        "a lone surrogate": good.body[:-1] + b', "id": "\\ud800"}',
        "a NUL character in an id": good.body[:-1] + b', "id": "a\\u0000b"}',
        "a leading zero": good.body.replace(b"1.5", b"01.5"),
        "NaN": good.body.replace(b"1.5", b"NaN"),
        "a huge exponent": good.body.replace(b"1.5", b"1e999"),
        "a number of many digits": good.body.replace(b"1.5", b"1." + b"5" * 400),
    }  # fmt: skip
    for name, body in bodies.items():
        yield f"a body that is {name}" if name != "an empty body" else name, Request("POST", target, body)
    yield "a chunked body", Request("POST", target, good.body, chunks=[1, 2, 3, 40])
    yield (
        "a chunked body with binary data",
        Request(
            "POST",
            target,
            infer("echo_FP32", numbers(binary=True)).body,
            infer("echo_FP32", numbers(binary=True)).headers,
            chunks=[7],
        ),
    )
    yield (
        "another content type",
        Request("POST", target, good.body, {"Content-Type": "application/x-www-form-urlencoded"}),
    )
    for name, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        yield f"{name}", Request("POST", target, compress(good.body), {"Content-Encoding": name})
        binary = infer("echo_FP32", numbers(binary=True))
        yield (
            f"{name} with binary data",
            Request("POST", target, compress(binary.body), {**binary.headers, "Content-Encoding": name}),
        )
        yield f"{name} that is broken", Request("POST", target, compress(good.body)[:-9], {"Content-Encoding": name})
        yield f"{name} that is none", Request("POST", target, good.body, {"Content-Encoding": name})
        yield f"an answer as {name}", Request("POST", target, good.body, {"Accept-Encoding": name})
        yield (
            f"an answer as {name} or something better",
            Request("POST", target, good.body, {"Accept-Encoding": f"br, {name};q=0.5"}),
        )
    yield "an answer in no encoding that is known", Request("POST", target, good.body, {"Accept-Encoding": "br"})
    yield "an answer as it is", Request("POST", target, good.body, {"Accept-Encoding": "identity"})
    yield "an unknown encoding", Request("POST", target, good.body, {"Content-Encoding": "br"})
    yield "no encoding", Request("POST", target, good.body, {"Content-Encoding": "identity"})
    yield "HTTP/1.0", Request("POST", target, good.body, version="1.0")
    yield (
        "HTTP/1.0 that keeps the connection",
        Request("POST", target, good.body, {"Connection": "keep-alive"}, version="1.0"),
    )
    yield "a connection to be closed", Request("POST", target, good.body, {"Connection": "close"})
    yield "100-continue", Request("POST", target, good.body, {"Expect": "100-continue"})
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"):
        yield f"{method} of an inference", Request(method, target)
    yield "a query", Request("POST", f"{target}?a=b", good.body)


def _generate() -> Iterator[tuple[str, Request]]:
    for action in ("generate", "generate_stream"):
        target = f"/v2/models/words/{action}"
        bodies: dict[str, Any] = {
            "an answer": words_of("hello \u20ac", 3),
            "lists": words_of(["hello"], [3]),
            "an id": {**words_of("a", 1), "id": "seven"},
            "parameters": {**words_of("a", 1), "parameters": {"p": 1}},
            "a list among the parameters": {**words_of("a", 1), "parameters": {"p": [1]}},
            "null among the parameters": {**words_of("a", 1), "parameters": {"p": None}},
            "an unknown member": {**words_of("a", 1), "temperature": 0.5},
            "an unknown object": {**words_of("a", 1), "unknown": {"a": 1}},
            "a missing input": {"text": "a"},
            "another type": words_of(1, "a"),
            "null": words_of(None, 1),
            "too many values": words_of(["a", "b"], 1),
            "a fraction": words_of("a", 1.5),
            "no object": [1],
            "no JSON": b"text",
            "an empty body": b"",
        }
        for name, body in bodies.items():
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            yield f"{action} with {name}", Request("POST", target, content)
        yield f"{action} of an unknown model", post(f"/v2/models/unknown/{action}", words_of("a", 1))
        yield f"{action} of a version", post(f"/v2/models/words/versions/1/{action}", words_of("a", 1))
        yield f"{action} of a failing callable", post(f"/v2/models/failing/{action}", {"x": 1})
        for count in (0, 1, 3):
            yield f"{action} of {count} responses", post(f"/v2/models/stream/{action}", words_of("a", count))
        yield f"GET of {action}", get(target)


def _others() -> Iterator[tuple[str, Request]]:
    for target in (
        "/v2",
        "/v2/",
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/pair",
        "/v2/models/pair/ready",
        "/v2/models/unknown/ready",
        "/v2/models/pair/versions/1/ready",
        "/v2/models/pair/config",
        "/v2/models/pair/versions/1",
        "/v2/models/pair/versions/2/config",
        "/v2/models/unknown",
        "/v2/models/unknown/config",
        "/v2/models/unknown/stats",
        "/v2/models/pair/unknown",
        "/v2/logging",
        "/v2/trace/setting",
        "/v2/models/pair/trace/setting",
        "/v2/systemsharedmemory/status",
        "/v2/cudasharedmemory/status",
        "/v2/systemsharedmemory/region/unknown/status",
        "/v2/unknown",
        "/v3",
        "/unknown",
    ):
        yield f"GET {target}", get(target)
    for target in ("/v2/health/live", "/v2/models/pair", "/v2/unknown"):
        yield f"HEAD {target}", Request("HEAD", target)
    yield "POST /v2/repository/index", post("/v2/repository/index", b"")
    yield "POST /v2/repository/index of ready models", post("/v2/repository/index", {"ready": True})
    yield "GET /v2/repository/index", get("/v2/repository/index")
    yield "loading an unknown model", post("/v2/repository/models/unknown/load", b"")
    yield "unloading an unknown model", post("/v2/repository/models/unknown/unload", b"")
    yield "settings of the log", post("/v2/logging", {"log_verbose_level": 0})
    yield "wrong settings of the log", post("/v2/logging", {"unknown": 0})
    yield "settings of the trace", post("/v2/trace/setting", {"trace_rate": "1000"})
    yield "wrong settings of the trace", post("/v2/trace/setting", {"trace_rate": "x"})
    good = infer("echo_FP32", numbers())
    digits = "9999999999999999999"
    yield "a name that is escaped", Request("POST", "/v2/models/echo%5f%46P32/infer", good.body)
    yield "a model's configuration by an escaped name", get("/v2/models/%70air/config")
    yield "a version of 19 digits", get(f"/v2/models/pair/versions/{digits}")
    yield "a version of 19 digits of an inference", Request(
        "POST", f"/v2/models/echo_FP32/versions/{digits}/infer", good.body
    )  # fmt: skip
    yield "a version of letters", get("/v2/models/pair/versions/a")
    yield "a version without an end", get("/v2/models/pair/versions/1/")
    yield "a model without a name", get("/v2/models/")
    yield "statistics of a model", get("/v2/models/unknown/versions/1/stats")
    for method, target in (("PUT", "/v2/logging"), ("POST", "/v2/models/pair"), ("DELETE", "/v2/models/pair/stats")):
        yield f"{method} {target}", Request(method, target)
    for body in ("{}", '{"ready": false}', '{"ready": 1}', "text"):
        yield f"the index with {body}", post("/v2/repository/index", body)
    yield "the index with a list", post("/v2/repository/index", b"[]")
    yield "loading with no JSON", post("/v2/repository/models/unknown/load", b"text")
    yield "loading with parameters that are a number", post("/v2/repository/models/unknown/load", {"parameters": 1})
    yield "loading with a parameter that is a number", post(
        "/v2/repository/models/unknown/load", {"parameters": {"config": 1}}
    )  # fmt: skip
    yield "loading from a repository", post("/v2/repository/mine/models/unknown/load", b"")
    yield "unloading with no JSON", post("/v2/repository/models/unknown/unload", b"text")
    yield "settings of the log that are a list", post("/v2/logging", b"[]")
    yield "settings of the log that are no JSON", post("/v2/logging", b"text")
    yield "settings of the trace that are a list", post("/v2/trace/setting", b"[]")
    yield "settings of the trace of a model", post("/v2/models/pair/trace/setting", {"trace_rate": None})
    yield "an unknown shared memory file", post(
        "/v2/systemsharedmemory/region/r/register", {"key": "/no-such-file", "offset": 0, "byte_size": 8}
    )  # fmt: skip
    yield "the end of an unknown region", post("/v2/systemsharedmemory/region/unknown/unregister", b"")


CASES: dict[str, Request] = {}
for _group in (_encodings, _inputs, _wrong_tensors, _binary_data, _requests, _bodies, _generate, _others):
    for _name, _request in _group():
        assert _name not in CASES, _name
        CASES[_name] = _request


# Errors of JSON that is not what it should be. The first one goes on with words of the parser.
SYNTAX = "failed to parse the request JSON buffer"
MALFORMED = (SYNTAX, "Unable to parse", "Unable to set", "attempt to get members", "failed to get request params")

RULES = {
    "FP32 as JSON": "The shortest text that is read back as the same number, instead of the digits of the FP64 nearest "
    "to it: `0.1`, and not `0.10000000149011612`.",
    "The type of errors": "`application/json` for every error with JSON, also where Triton says `text/plain`.",
    "Malformed requests": "400, where Triton says 500: the request is wrong, and not the server.",
    "Syntax errors": "The words behind `failed to parse the request JSON buffer` are those of another parser.",
}
"""How the answers to all requests differ, which :func:`comparable` removes."""


def comparable(answer: Answer) -> Answer:
    """An answer without the differences of ``RULES``."""
    status, headers, content, data = answer.status, answer.headers, answer.json, answer.data
    if "event-stream" in headers.get("content-type", ""):
        content, data = [json.loads(event.removeprefix(b"data:")) for event in data.split(b"\n\n") if event], b""
    elif answer.error or (status >= 400 and not data and content is None):
        headers = {**headers, "content-type": "application/json"}
    if answer.error.startswith(MALFORMED) and status == 500:
        status = 400
    if answer.error.startswith(SYNTAX):
        content = {"error": SYNTAX}
    if isinstance(content, dict) and isinstance(content.get("outputs"), list):
        content = {**content, "outputs": [_as_sent(output) for output in content["outputs"]]}
    return replace(answer, status=status, headers=headers, json=content, data=data)


def _as_sent(output: dict[str, Any]) -> dict[str, Any]:
    if output.get("datatype") != "FP32" or "data" not in output:
        return output
    return {**output, "data": str(np.array(output["data"], np.float32).tolist())}


class Difference(NamedTuple):
    """Where the answers differ on purpose.

    Attributes:
        cases: Names of the requests.
        triton: Status of Triton's own endpoint.
        native: Status of the edge.
        reason: Why.
    """

    cases: Sequence[str]
    triton: int
    native: int
    reason: str


DIFFERENCES: list[Difference] = [
    Difference(
        ["a number beyond INT8", "a number beyond INT32"],
        200,
        400,
        "A number that the dtype does not have is refused, and not cut to its lower bits.",
    ),
    Difference(
        ["a header length that is text"], 200, 400, "A header length that is no number is refused, and not taken for 0."
    ),
    Difference(
        ["BYTES that are no text, as JSON"], 200, 400, "Without the error, the answer would not be JSON: no UTF-8."
    ),
    Difference(
        ["a body that is a NUL character in an id"],
        200,
        400,
        "A NUL character is refused, and the text not cut before it.",
    ),
    Difference(
        ["generate of 0 responses", "generate of 3 responses"],
        200,
        400,
        "An error has the status of one.",
    ),
    Difference(
        ["generate of a failing callable", "generate_stream of a failing callable"],
        400,
        500,
        "The status is that of the error, as it is for infer.",
    ),
    Difference(
        [
            "an empty shape",
            "no rows",
            "binary_data_size of less",
            "binary_data_size of zero",
            "a header length that is more",
            "a header length that is a fraction",
            "generate with too many values",
            "generate_stream with too many values",
            "a classification that is text",
            "gzip that is broken",
            "deflate that is broken",
            "gzip that is none",
            "deflate that is none",
            "loading with no JSON",
            "settings of the log that are no JSON",
            "the index with text",
            "a body that is no JSON",
            "a body that is bytes that are no UTF-8",
            "a body that is a comment",
            "a body that is a lone surrogate",
            "a body that is a leading zero",
            "a body that is a huge exponent",
            "generate with no JSON",
            "generate_stream with no JSON",
        ],
        400,
        400,
        "The message names another fault of the same request, or the same one in other words.",
    ),
    Difference(
        ["an answer as gzip or something better", "an answer as deflate or something better"],
        200,
        200,
        "An answer is compressed if no more than one way is named. Clients that list what they can read get it sooner "
        "as it is.",
    ),
    Difference(
        ["an unknown encoding"],
        501,
        415,
        "The status is that of HTTP for an encoding that is not known.",
    ),
    Difference(
        ["a name that is escaped", "a model's configuration by an escaped name"],
        404,
        200,
        "Names in paths are decoded, as tritonclient encodes them.",
    ),
    Difference(
        ["a version of 19 digits", "a version of 19 digits of an inference"],
        400,
        404,
        "A version has at most 18 digits; no other path is one.",
    ),
    Difference(
        [
            "unloading with no JSON",
            "the index with a list",
            "settings of the log that are a list",
            "settings of the trace that are a list",
        ],
        200,
        400,
        "A body that is not an object is refused, and not ignored.",
    ),
    Difference(
        [
            "loading with a parameter that is a number",
            'the index with {"ready": 1}',
        ],
        500,
        400,
        "A malformed request is refused before the server reads it.",
    ),
    Difference(
        ["GET /v3", "GET /unknown"],
        404,
        404,
        "Such paths are not Triton's, so that its words do not say that they are not there.",
    ),
]

# What the edge still does wrong.
FAULTS: dict[str, str] = {}
