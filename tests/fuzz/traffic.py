"""Requests for the composition fuzzer: seeds of every route and encoding, and what is made of them.

Everything follows from a ``random.Random``, so that a seed gives the same bytes again.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from dataclasses import dataclass
from random import Random

from tritonclient.grpc import service_pb2

from tests.server.edge import http2

JSON = "application/json"
PORTS = ("http", "http", "http", "rest", "rest", "metrics", "grpc", "grpc", "vertex_ai", "sagemaker")
GRPC_METHODS = ("ModelMetadata", "ModelConfig", "ServerMetadata", "ModelReady", "ServerReady")
MOST_BODY_BYTES = 4 << 20
EXTREMES = (
    b"0",
    b"-1",
    b"1e999",
    b"-1e999",
    b"NaN",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b'""',
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1" * 400,
    b'"\\ud800"',
    b'"\\u0000"',
    b"[[[[[[[[[[1]]]]]]]]]]",
)
HEADERS = (
    ("Accept-Encoding", "gzip;q=1e999"),
    ("Accept-Encoding", "gzip"),
    ("Accept-Encoding", "deflate;q=0.5, gzip;q=nan"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "br"),
    ("Content-Encoding", "gzip, deflate"),
    ("Inference-Header-Content-Length", "-1"),
    ("Inference-Header-Content-Length", "0"),
    ("Inference-Header-Content-Length", "9223372036854775807"),
    ("Inference-Header-Content-Length", "7"),
    ("Content-Length", "3"),
    ("Transfer-Encoding", "chunked"),
    ("Transfer-Encoding", "gzip, chunked"),
    ("Expect", "100-continue"),
    ("Connection", "close"),
    ("Connection", "Upgrade, HTTP2-Settings"),
    ("Upgrade", "h2c"),
    ("triton-access-token", "wrong"),
    ("Authorization", "Bearer wrong"),
    ("Host", "a" * 3000),
    ("Origin", "http://example.com"),
    ("Accept", "text/event-stream"),
    ("Content-Type", "multipart/form-data; boundary=x"),
    ("Content-Type", "application/x-npy"),
    ("Content-Type", JSON),
    ("X-Request-Id", "a" * 9000),
    ("triton-request-id", "1"),
    ("sequence_id", "1"),
    ("priority", "x"),
    ("Range", "bytes=0-1"),
    ("traceparent", "00-" + "f" * 32 + "-" + "f" * 16 + "-01"),
    ("X-Vertex-Ai-Triton-Redirect", "v2/repository/index"),
)

CALL_HEADERS = (
    (b"grpc-timeout", b"1m"),
    (b"grpc-timeout", b"99999999H"),
    (b"grpc-timeout", b"x"),
    (b"grpc-accept-encoding", b"gzip"),
    (b"content-type", b"application/grpc+json"),
    (b"content-length", b"3"),
    (b"te", b"gzip"),
    (b":path", b"/"),
    (b":status", b"200"),
    (b"Upper", b"1"),
    (b"triton-access-token", b"wrong"),
    (b"x-bin", b"%%%"),
    (b"x", b"a" * 9000),
    (b"cookie", b"a=b"),
)


@dataclass(frozen=True)
class Seed:
    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    binary_from: int | None = None  # where tensors follow the JSON


def _json(path: str, **members: object) -> Seed:
    return Seed("POST", path, json.dumps(members).encode())


def _input(data: list[object], dtype: str = "FP32", shape: list[int] | None = None) -> dict[str, object]:
    return {"name": "x", "datatype": dtype, "shape": shape or [1, len(data)], "data": data}


def _output(**parameters: object) -> dict[str, object]:
    return {"name": "y", "parameters": parameters}


def _binary(path: str, count: int, **members: object) -> Seed:
    head = {"name": "x", "datatype": "FP32", "shape": [1, count], "parameters": {"binary_data_size": 4 * count}}
    text = json.dumps({"inputs": [head], **members}).encode()
    return Seed("POST", path, text + struct.pack(f"<{count}f", *range(count)), "application/octet-stream", len(text))


TOOLS = [{"type": "function", "function": {"name": "f"}}]
USER = [{"role": "user", "content": "hello big world"}]
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\nhello\r\n'
    b'--x\r\nContent-Disposition: form-data; name="times"\r\n\r\n2\r\n--x--\r\n'
)
SEEDS = (
    _json("/v2/models/numbers/infer", inputs=[_input([1, 2, 3])]),
    _json("/v2/models/numbers/versions/1/infer", inputs=[_input([1.5] * 300)], id="a", parameters={"p": 1}),
    _json("/v2/models/numbers/infer", inputs=[_input([1, 2])], outputs=[_output(binary_data=True)]),
    _json("/v2/models/numbers/infer", inputs=[_input([3, 2])], outputs=[_output(classification=2)]),
    _json("/v2/models/words/infer", inputs=[_input(["a", "ü", ""], "BYTES")]),
    _binary("/v2/models/numbers/infer", 3),
    _binary("/v2/models/numbers/infer", 100_000, outputs=[_output(binary_data=True)]),
    _json("/v2/models/counter/generate_stream", x=[5.0]),
    _json("/v2/models/counter/generate", x=[1.0]),
    _json("/v2/models/numbers/generate", x=[1.0, 2.0]),
    _json(
        "/v2/models/numbers/infer",
        inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 4],
                 "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 16}}],
    ),
    *(Seed("GET", path) for path in (
        "/v2", "/v2/health/ready", "/v2/models/numbers", "/v2/models/numbers/ready", "/v2/models/words/config",
        "/v2/models/numbers/stats", "/metrics", "/docs", "/openapi.json", "/v1/models", "/health", "/", "/pages/models",
        "/v2/systemsharedmemory/status", "/v2/trace/setting", "/predict/numbers",
    )),
    _json("/v2/repository/index"),
    _json("/v2/repository/models/numbers/load", parameters={"config": "{}", "file:1/a": "AAAA"}),
    _json("/v2/repository/models/numbers/unload"),
    _json("/v2/logging", log_verbose_level=1),
    _json("/v2/systemsharedmemory/region/r/register", key="/r", offset=0, byte_size=64),
    _json("/predict/numbers", x=[1, 2, 3]),
    _json("/predict/words", x=["a", "b"]),
    _json("/predict/shout", text="hello", times=2),
    Seed("POST", "/predict/shout", FORM, "multipart/form-data; boundary=x"),
    Seed("POST", "/predict/shout", b"text=hello&times=2", "application/x-www-form-urlencoded"),
    _json("/predict/counter?stream=true", x=[4]),
    _json("/v1/models/numbers:predict", instances=[{"x": [1, 2]}, {"x": [3, 4]}]),
    _json("/v1/chat/completions", model="parrot", messages=USER),
    _json("/v1/chat/completions", model="parrot", messages=USER, stream=True, n=2, stop=["big"]),
    _json("/v1/chat/completions", model="parrot", messages=USER, tools=TOOLS),
    _json("/v1/completions", model="parrot", prompt="hello"),
    _json("/v1/embeddings", model="parrot", input=["hello"]),
    _json("/mcp", jsonrpc="2.0", id=1, method="tools/list"),
    _json("/mcp", jsonrpc="2.0", id=2, method="tools/call", params={"name": "shout", "arguments": {"text": "hello"}}),
    _json("/predict", inputs=[_input([1, 2, 3])]),
    _json("/invocations", inputs=[_input([1, 2, 3])]),
    Seed("GET", "/ping"),
)  # fmt: skip


@dataclass(frozen=True)
class Message:
    """What is sent to a port over TCP, and how."""

    port: str
    data: bytes
    counted_bytes: int  # those sent, or what they become when they are inflated
    pieces: int = 1
    ending: str = "read"  # or "close", "reset", "leave" some of the answer unread


def damaged(random: Random, data: bytes) -> bytes:
    """A few changes of bytes, numbers and lengths."""
    out = bytearray(data)
    for _ in range(random.choice((0, 0, 1, 1, 2, 4))):
        at = random.randrange(len(out) + 1)
        end = min(len(out), at + random.choice((1, 2, 8, 100)))
        kind = random.randrange(9)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << random.randrange(8)
        elif kind == 1:
            del out[at:end]
        elif kind == 2:
            out[at:at] = random.randbytes(random.choice((1, 4, 64)))
        elif kind == 3:
            out[at:at] = out[at:end] * random.choice((1, 10, 1000))
        elif kind == 4:
            out[at:at] = random.choice((b"[", b"{", b'{"a":', b"]", b"}", b",", b'"')) * random.choice((1, 70, 100_000))
        elif kind in (5, 6):
            digits = [index for index, byte in enumerate(out[:2000]) if byte in b"0123456789"]
            if digits:
                at = random.choice(digits)
                out[at : at + 1] = random.choice(EXTREMES)
        elif kind == 7:
            values = b",".join([random.choice((b"1", b'"a"', b"{}", b"[1]", b"null"))] * random.choice((10, 100_000)))
            start = out.find(b"[")
            out[start + 1 : start + 1] = values + b","
        else:
            del out[at:]
    return bytes(out[:MOST_BODY_BYTES])


def message(random: Random) -> Message:
    """Requests of a connection over HTTP, or calls over gRPC, or what is left of one."""
    port = random.choice(PORTS)
    if port == "grpc":
        data, counted_bytes = _connection(random)
    else:
        count = random.choice((1, 1, 1, 2, 5))
        parts, counted = zip(*(_request(random, at == count - 1) for at in range(count)), strict=True)
        data, counted_bytes = b"".join(parts), sum(counted)
    if random.random() < 0.05:
        data = damaged(random, data)
    ending = random.choice(("read",) * 6 + ("close", "reset", "leave", "half"))
    if ending in ("close", "reset") and random.random() < 0.5:
        data = data[: random.randrange(len(data) + 1)]
    return Message(port, data, counted_bytes, random.choice((1, 1, 1, 2, 7)), ending)


def _request(random: Random, is_last: bool) -> tuple[bytes, int]:
    seed = random.choice(SEEDS)
    body = damaged(random, seed.body) if seed.body else b""
    headers = [("Host", "127.0.0.1"), ("Content-Type", seed.content_type)]
    if seed.binary_from is not None:
        headers.append(("Inference-Header-Content-Length", str(seed.binary_from)))
    counted = len(body)
    encoding = random.choice(("", "", "", "gzip", "deflate"))
    if encoding and body:
        if random.random() < 0.1:  # a bomb
            body += random.choice((b" ", b"[", b"\0", b'{"a":')) * random.choice((1 << 16, 1 << 22, 24 << 20))
        counted = max(counted, len(body))
        body = gzip.compress(body, 1) if encoding == "gzip" else zlib.compress(body, 1)
        headers.append(("Content-Encoding", encoding))
        if random.random() < 0.3:
            body = damaged(random, body)
    if is_last and random.random() < 0.8:
        headers.append(("Connection", "close"))
    for _ in range(random.choice((0, 0, 1, 2))):
        headers.append(random.choice(HEADERS))
    if random.random() < 0.02:
        headers += [(f"x-{number}", "1" * 20) for number in range(random.choice((100, 300, 3000)))]
    if random.random() < 0.25:
        headers.append(("Transfer-Encoding", "chunked"))
        body = _chunked(random, body)
    elif body or seed.method == "POST":
        headers.append(("Content-Length", str(len(body))))
    path, version = seed.path, "HTTP/1.1"
    if random.random() < 0.1:
        path = damaged(random, path.encode()).decode("latin-1").replace("\r", "").replace("\n", "")[:20_000]
    if random.random() < 0.02:
        version = random.choice(("HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "http/1.1"))
    method = (
        seed.method
        if random.random() < 0.97
        else random.choice(("PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "CONNECT"))
    )
    lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body, max(counted, len(body))


def _chunked(random: Random, body: bytes) -> bytes:
    size = random.choice((1, 7, 1000, 1 << 16)) if len(body) < 10_000 else random.choice((1000, 1 << 16))
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    out = b"".join(b"%x%s\r\n%s\r\n" % (len(each), random.choice((b"", b"", b";a=b")), each) for each in chunks)
    return out + random.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"", b"-1\r\n"))


def _connection(random: Random) -> tuple[bytes, int]:
    """Calls over HTTP/2, whose frames are mixed with others and may be damaged, and how many bytes they come to."""
    streams, counted = [], 0
    for number in range(random.choice((1, 1, 3, 30))):
        frames, counted_bytes = _call_frames(random, 2 * number + 1)
        streams.append(frames)
        counted += counted_bytes
    mixed = []
    while streams := [frames for frames in streams if frames]:
        mixed.append(random.choice(streams).pop(0))
        if random.random() < 0.1:
            mixed.append(_odd_frame(random, 2 * random.randrange(32) + 1))
    begin = http2.PREFACE + http2.settings(table_size=0, window=random.choice((0, 1, 65535, 2**31 - 1)))
    if random.random() < 0.8:  # the server closes the connection after its answers
        mixed.append(http2.frame(http2.GOAWAY, 0, 0, bytes(8)))
    data = begin + b"".join(mixed)
    return (damaged(random, data) if random.random() < 0.3 else data), max(counted, len(data))


def _call_frames(random: Random, stream: int) -> tuple[list[bytes], int]:
    """The frames of a call, and how many bytes its messages come to."""
    method, messages = grpc_call(random)
    more = [random.choice(CALL_HEADERS)] if random.random() < 0.2 else []
    content, counted = b"", 0
    is_compressed = random.random() < 0.2
    if is_compressed:
        more.append((b"grpc-encoding", random.choice((b"gzip", b"gzip", b"deflate", b"br"))))
    for message in messages:
        sent = message
        if is_compressed:
            if random.random() < 0.1:  # a bomb
                message += b"\0" * random.choice((1 << 16, 1 << 22, 24 << 20))
            sent = gzip.compress(message, 1)
        prefixed = http2.message(sent, is_compressed)
        content += damaged(random, prefixed) if random.random() < 0.05 else prefixed
        counted += len(message)
    size = random.choice((1, 100, 1 << 14)) if len(content) < 1000 else 1 << 14
    pieces = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
    block = http2.head(method, *more)
    half = random.choice((len(block), len(block), len(block), random.randrange(len(block))))
    frames = [http2.frame(http2.HEADERS, http2.END_HEADERS if half == len(block) else 0, stream, block[:half])]
    if half < len(block):
        frames[0] += http2.frame(http2.CONTINUATION, http2.END_HEADERS, stream, block[half:])
    frames += [http2.frame(http2.DATA, 0, stream, piece) for piece in pieces[:-1]]
    frames.append(http2.frame(http2.DATA, random.choice((1, 1, 1, 1, 0)), stream, pieces[-1]))
    if random.random() < 0.2:
        frames.append(http2.frame(http2.RST_STREAM, 0, stream, struct.pack("!I", random.choice((0, 8, 2**32 - 1)))))
    return frames, counted


def _odd_frame(random: Random, stream: int) -> bytes:
    number = struct.pack("!I", random.choice((0, 1, 1000, 2**31 - 1, 2**32 - 1)))
    return random.choice(
        (
            http2.frame(http2.WINDOW_UPDATE, 0, random.choice((0, stream)), number),
            http2.frame(http2.PING, random.choice((0, http2.ACK)), 0, b"12345678"),
            http2.frame(http2.SETTINGS, 0, 0, struct.pack("!H", random.randrange(8)) + number),
            http2.frame(http2.SETTINGS, http2.ACK, 0),
            http2.frame(http2.RST_STREAM, 0, stream, number),
            http2.frame(http2.PRIORITY, 0, stream, number + b"\0"),
            http2.frame(http2.GOAWAY, 0, 0, number + number),
            http2.frame(http2.DATA, random.randrange(16), stream, random.randbytes(random.choice((0, 5, 300)))),
            http2.frame(http2.CONTINUATION, random.randrange(8), stream, b"abc"),
            http2.frame(random.randrange(256), random.randrange(256), stream, random.randbytes(8)),
        )
    )


def grpc_call(random: Random) -> tuple[str, list[bytes]]:
    """The method of a call, and its messages: one, or several of a stream."""
    if random.random() < 0.25:
        messages = [_inference(random).SerializeToString() for _ in range(random.choice((1, 2, 5, 20)))]
        if random.random() < 0.1:  # stops the stream
            messages[-1] = damaged(random, messages[-1])
        return "ModelStreamInfer", messages
    method = random.choice(("ModelInfer",) * 6 + GRPC_METHODS)
    if method != "ModelInfer":
        named = service_pb2.ModelMetadataRequest(name=random.choice(("numbers", "missing", "a" * 5000)), version="1")
        return method, [damaged(random, named.SerializeToString())]
    whole = _inference(random).SerializeToString()
    return method, [damaged(random, whole) if random.random() < 0.5 else whole]


def _inference(random: Random) -> service_pb2.ModelInferRequest:
    model = random.choice(("numbers", "numbers", "words", "counter", "counter", "missing"))
    asked = service_pb2.ModelInferRequest(
        model_name=model, model_version=random.choice(("",) * 6 + ("1", "7", "x", "-1"))
    )
    dtype = "BYTES" if model == "words" else random.choice(("FP32", "FP32", "FP32", "INT8", "BYTES", "X"))
    given = asked.inputs.add(name=random.choice(("x", "x", "x", "z")), datatype=dtype)
    given.shape.extend(random.choice(([1, 1], [1, 1], [1, 3], [3], [1, 1 << 40], [-1, 3], [0, 3], [1] * 1000)))
    data = struct.pack("<I", 2) + b"ab" if dtype == "BYTES" else struct.pack("<f", 4) * max(1, given.shape[-1] % 4)
    asked.raw_input_contents.extend([data] * random.choice((1, 1, 1, 1, 0, 2)))
    if random.random() < 0.3:
        for _ in range(random.choice((1, 2, 2000))):
            asked.outputs.add(name="y").parameters["classification"].int64_param = random.choice((0, 2, -1, 1 << 40))
    if random.random() < 0.2:
        name = random.choice(("priority", "sequence_id", "timeout", "p"))
        asked.parameters[name].int64_param = random.choice((-1, 1, 1 << 62))
    return asked
