"""HTTP/1.1 as bytes, without sockets: calls become requests, and responses become what the calls return."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientValueError
from pytriton.client.tensors import HEADER_LENGTH, InferResponse, OutputRequest
from pytriton.client.transport import ProtocolAdapter, server_exception

__all__ = ["HttpProtocol", "HttpResponse", "RequestWriter", "ResponseReader"]

MOST_HEAD_BYTES = 2**18
"""Limit for the headers of one response, interim responses included; Triton's have some hundreds."""

Part = bytes | memoryview

_LONGEST_REFUSAL = 1000
_LINES = re.compile(r"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [\x20-\x7e]*\r\n)*")
_URI = re.compile(r"[\x21-\x7e]*")
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_HEALTH = {"is_server_live", "is_server_ready", "is_model_ready"}


class Headers(dict[str, str]):
    """The values of headers by lower-case name."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a header in any letter case."""
        return super().get(name.lower(), default)


@dataclass
class HttpResponse:
    """A complete response.

    Args:
        status: E.g. 200.
        body: Decompressed.
        headers: Of the response.
    """

    status: int
    body: bytes
    headers: Headers = field(default_factory=Headers)

    def refusal(self) -> str:
        """The text ``error`` of the JSON of an error response, else its status and body."""
        try:
            text = json.loads(self.body)["error"]
            if isinstance(text, str):
                return text
        except (KeyError, RecursionError, TypeError, ValueError):
            pass
        return f"status {self.status}: {self.body[:_LONGEST_REFUSAL].decode('utf-8', 'replace') or 'no more is said'}"


class RequestWriter:
    """Writes the heads of requests to one server, and checks that each is one head and no more.

    Args:
        url: The server.
    """

    def __init__(self, url: TritonUrl) -> None:
        self._path = url.path.encode("ascii")
        self._host = b"\r\nHost: %b:%d\r\n" % (url.hostname.encode("idna"), url.port)
        self._last: tuple[tuple[object, ...], bytes] = (), b""

    def head(self, method: bytes, uri: str, headers: Mapping[str, object], length: int) -> bytes:
        """Request line and headers, with the empty line at their end.

        Args:
            method: Such as ``b"POST"``.
            uri: Below the server's path, without a slash at its beginning; quoted.
            headers: Without Host and Content-Length.
            length: Of the body, in bytes.

        Raises:
            PyTritonClientValueError: The URI or a header has a character that it cannot have, such as a line end.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        wanted = method, uri, lines, len(headers), length
        known, head = self._last
        if wanted == known:  # most requests have the head of the one before
            return head
        if not _URI.fullmatch(uri):
            raise PyTritonClientValueError(f"the request's path {uri!r} is not quoted; check names and versions")
        # A line end within a value would make two headers of one.
        if lines.count("\n") != len(headers) or not _LINES.fullmatch(lines):
            raise PyTritonClientValueError(
                f"one of the headers {', '.join(map(repr, headers))} cannot be sent: names have letters, digits "
                "and '-', and values printable ASCII"
            )
        head = b"%b %b/%b HTTP/1.1%b%bContent-Length: %d\r\n\r\n" % (
            method, self._path, uri.encode("ascii"), self._host, lines.encode("ascii"), length
        )  # fmt: skip
        self._last = wanted, head
        return head


class ResponseReader:
    """Assembles the responses of one connection from the pieces that it receives.

    Args:
        limit: Most bytes of a response, as it travels and after decompression; None for no limit.

    Attributes:
        keeps_alive: Whether the server takes another request after the last response.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.keeps_alive = True
        self._limit = limit
        self._parser = HttpResponseParser(self)
        self._received = 0  # bytes of the response that is not complete yet
        self._has_head = False
        self._headers = Headers()
        self._body: list[bytes] = []
        self._complete: list[HttpResponse] = []

    def feed(self, data: bytes) -> list[HttpResponse]:
        """Parse received bytes and return the responses that they complete. After an error, close the connection.

        Raises:
            ConnectionError: The bytes are not HTTP.
            PyTritonClientInferenceServerError: A response is too long, or not compressed as its headers say.
        """
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if error.__context__ is not None and not isinstance(error.__context__, Exception):
                raise error.__context__ from None  # Ctrl+C in a callback of the parser
            raise ConnectionError(f"the server does not speak HTTP: {error}") from error
        if not self._complete:
            self._check_growth()
            return []
        complete, self._complete, self._received = self._complete, [], 0
        for response in complete:
            if self._limit is not None and len(response.body) > self._limit:
                raise self._too_long()
            if "content-encoding" in response.headers:
                response.body = _decompressed(response, self._limit, self._too_long)
        return complete

    def _check_growth(self) -> None:
        """Check the length, or the announced length, of the response that is not complete yet."""
        if not self._has_head:
            if self._received > MOST_HEAD_BYTES:
                raise PyTritonClientInferenceServerError(
                    f"the server's headers have more than {MOST_HEAD_BYTES} bytes; the connection was closed"
                )
        elif self._limit is not None:
            declared = int(self._headers.get("content-length", "0"))  # the parser has read it as a number
            if declared > self._limit or self._received > self._limit + MOST_HEAD_BYTES:
                raise self._too_long()

    def _too_long(self) -> PyTritonClientInferenceServerError:
        return PyTritonClientInferenceServerError(
            f"the server's response is longer than max_response_bytes, {self._limit}; the connection was closed. If "
            "the model may answer so, make the client with a higher limit, or None"
        )

    # Callbacks of the parser:

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header is complete."""
        if not self._has_head:  # ignore trailers
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All headers are complete."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body was received."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The response is complete."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, Headers()
        body, self._body = b"".join(self._body), []
        self._has_head = False
        if status >= 200:  # ignore interim responses
            self.keeps_alive = self._parser.should_keep_alive()
            self._complete.append(HttpResponse(status, body, headers))


class HttpProtocol(ProtocolAdapter):
    """The requests of calls, and what responses mean.

    Args:
        url: The server.
        headers: Sent with every call.
        secured: The connection is to be encrypted.
    """

    def __init__(self, url: TritonUrl, headers: Mapping[str, str], *, secured: bool = False) -> None:
        super().__init__(url.with_scheme, headers, secured=secured)
        self._writer = RequestWriter(url)

    def request(self, call: Call) -> list[Part]:
        """The parts of a request, in order: the head, and those of the body; none is empty.

        Arrays of numbers are not copied.

        Raises:
            PyTritonClientValueError: The name or version of a model, or a header, cannot be sent.
        """
        headers: dict[str, object] = self.headers(call)
        if call.method == "infer":
            method, uri = b"POST", f"{_model_uri(call.arguments)}/infer"
            body = _infer_body(call.arguments, headers)
            if call.compression:
                headers["Content-Encoding"] = headers["Accept-Encoding"] = call.compression
                body = [_COMPRESS[call.compression](b"".join(body))]
        else:
            uri, content = _ENDPOINTS[call.method](call.arguments)
            method = b"GET" if content is None else b"POST"
            body = [json.dumps(content).encode()] if content else []
        head = self._writer.head(method, uri, headers, sum(map(len, body)))
        return [head, *filter(None, body)]

    def answer(self, call: Call, response: HttpResponse) -> Any:
        """What a call returns.

        Raises:
            InferenceServerException: The server answered with an error.
            PyTritonClientInferenceServerError: The response contradicts itself.
            ValueError: The response is no JSON.
        """
        if call.method in _HEALTH:
            return response.status == 200
        if response.status != 200:
            raise server_exception()(response.refusal(), str(response.status))
        if call.method == "infer":
            return InferResponse.from_http(response.body, response.headers)
        return json.loads(response.body) if call.method.startswith("get_") else None


Arguments = Mapping[str, Any]
Endpoint = tuple[str, dict[str, Any] | None]


def _model_uri(arguments: Arguments) -> str:
    return _uri_of(arguments["model_name"], arguments.get("model_version") or "")


@lru_cache(maxsize=1024)
def _uri_of(model_name: str, version: str) -> str:
    return f"v2/models/{_quoted(model_name)}{f'/versions/{_quoted(version)}' if version else ''}"


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _load(arguments: Arguments) -> Endpoint:
    parameters = {} if arguments.get("config") is None else {"config": arguments["config"]}
    for path, content in (arguments.get("files") or {}).items():
        parameters[path] = base64.b64encode(content).decode()
    uri = f"v2/repository/models/{_quoted(arguments['model_name'])}/load"
    return uri, {"parameters": parameters}


def _unload(arguments: Arguments) -> Endpoint:
    uri = f"v2/repository/models/{_quoted(arguments['model_name'])}/unload"
    return uri, {"parameters": {"unload_dependents": False}}


def _statistics(arguments: Arguments) -> Endpoint:
    return f"{_model_uri(arguments) if arguments.get('model_name') else 'v2/models'}/stats", None


def _region_uri(kind: str, arguments: Arguments, action: str) -> str:
    region = f"/region/{_quoted(arguments['name'])}" if arguments.get("name") else ""
    return f"v2/{kind}sharedmemory{region}/{action}"


def _register_system(arguments: Arguments) -> Endpoint:
    content = {name: arguments[name] for name in ("key", "offset", "byte_size")}
    return _region_uri("system", arguments, "register"), content


def _register_cuda(arguments: Arguments) -> Endpoint:
    handle = arguments["raw_handle"]
    text = handle.decode() if isinstance(handle, bytes) else handle
    content = {"raw_handle": {"b64": text}, "device_id": arguments["device_id"], "byte_size": arguments["byte_size"]}
    return _region_uri("cuda", arguments, "register"), content


# For each method but ``infer``: the URI, and the JSON to post; nothing is posted of an empty one, and None is a GET.
_ENDPOINTS: dict[str, Callable[[Arguments], Endpoint]] = {
    "is_server_live": lambda _: ("v2/health/live", None),
    "is_server_ready": lambda _: ("v2/health/ready", None),
    "is_model_ready": lambda arguments: (f"{_model_uri(arguments)}/ready", None),
    "get_server_metadata": lambda _: ("v2", None),
    "get_model_metadata": lambda arguments: (_model_uri(arguments), None),
    "get_model_config": lambda arguments: (f"{_model_uri(arguments)}/config", None),
    "get_model_repository_index": lambda _: ("v2/repository/index", {}),
    "load_model": _load,
    "unload_model": _unload,
    "get_inference_statistics": _statistics,
    "get_system_shared_memory_status": lambda _: ("v2/systemsharedmemory/status", None),
    "register_system_shared_memory": _register_system,
    "unregister_system_shared_memory": lambda arguments: (_region_uri("system", arguments, "unregister"), {}),
    "get_cuda_shared_memory_status": lambda _: ("v2/cudasharedmemory/status", None),
    "register_cuda_shared_memory": _register_cuda,
    "unregister_cuda_shared_memory": lambda arguments: (_region_uri("cuda", arguments, "unregister"), {}),
}


def _infer_body(arguments: Arguments, headers: dict[str, object]) -> list[Part]:
    """The JSON of an inference and the tensors' data; adds the header that tells where the JSON ends."""
    inputs, body = [], []
    for tensor in arguments["inputs"]:
        data = tensor.data()
        if data is not None:
            body.append(data)
        size = None if data is None else len(data)
        inputs.append((tensor.name, tuple(tensor.shape), tensor.datatype, size, tensor.region, tensor.region_bytes))
    outputs = arguments.get("outputs") or ()
    parameters = {name: arguments[name] for name in ("priority", "timeout") if name in arguments}
    parameters.update(arguments.get("parameters") or {})
    if not outputs:
        parameters["binary_data_output"] = True
    members = _described_tensors(tuple(inputs), tuple(outputs))
    if arguments.get("request_id"):
        members = f'{members}, "id": {json.dumps(arguments["request_id"])}'
    if parameters:
        members = f'{members}, "parameters": {json.dumps(parameters)}'
    text = f"{{{members}}}".encode()
    if body:
        headers[HEADER_LENGTH] = len(text)
    return [text, *body]


@lru_cache(maxsize=1024)
def _described_tensors(inputs: tuple[tuple[Any, ...], ...], outputs: tuple[OutputRequest, ...]) -> str:
    """The members ``inputs`` and ``outputs`` of an inference; those of most requests to a model are the same."""
    members: dict[str, Any] = {"inputs": [_described_input(*each) for each in inputs]}
    if outputs:
        members["outputs"] = [_described_output(output) for output in outputs]
    return json.dumps(members)[1:-1]


def _described_input(
    name: str, shape: tuple[int, ...], datatype: str, size: int | None, region: str, region_bytes: int
) -> dict[str, Any]:
    if size is None:
        parameters: dict[str, Any] = {"shared_memory_region": region, "shared_memory_byte_size": region_bytes}
    else:
        parameters = {"binary_data_size": size}
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": parameters}


def _described_output(output: OutputRequest) -> dict[str, Any]:
    parameters: dict[str, Any] = {"binary_data": not output.region}
    if output.class_count:
        parameters["classification"] = output.class_count
    if output.region:
        parameters["shared_memory_region"] = output.region
        parameters["shared_memory_byte_size"] = output.region_bytes
    return {"name": output.name, "parameters": parameters}


def _decompressed(response: HttpResponse, limit: int | None, too_long: Callable[[], Exception]) -> bytes:
    """The decompressed body of a response."""
    encoding = response.headers["content-encoding"].strip().lower()
    if encoding == "identity" or not response.body:
        return response.body
    if encoding not in _WINDOW_BITS:
        raise PyTritonClientInferenceServerError(
            f"the server's response has the encoding {encoding!r:.100}; a client understands gzip and deflate"
        )
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        # One byte beyond the limit shows that there are more; 0 would be no limit.
        body = stream.decompress(response.body, 0 if limit is None else min(limit, sys.maxsize - 1) + 1)
    except zlib.error as error:
        raise _not_compressed(encoding, str(error)) from error
    if limit is not None and len(body) > limit:
        raise too_long()
    if not stream.eof or stream.unused_data:
        raise _not_compressed(encoding, "it is cut short" if not stream.eof else "it goes on after its end")
    return body


def _not_compressed(encoding: str, reason: str) -> PyTritonClientInferenceServerError:
    return PyTritonClientInferenceServerError(f"the server's response cannot be decompressed by {encoding}: {reason}")
