"""The protocol of Triton over HTTP, without sockets: calls become requests, and responses what the calls return."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from pytriton.client.arguments import SEQUENCE
from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call, OtherProgramError
from pytriton.client.http_messages import HttpResponse, Part, RequestWriter
from pytriton.client.tensors import HEADER_LENGTH, InferResponse, InputTensor, OutputRequest
from pytriton.client.transport import ProtocolAdapter, server_exception

__all__ = ["HttpProtocol"]

_COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
_RIGHT_PORT = (
    "give the port of the server's HTTP endpoint, which is 8000 by default, and not that of metrics or of the HTTP API"
)
_HEALTH = {"is_server_live", "is_server_ready", "is_model_ready"}


class HttpProtocol(ProtocolAdapter):
    """The requests of calls, and what responses mean.

    Args:
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
        headers: dict[str, object] = {**self.headers(call)}
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
        return [head, *[part for part in body if part]]

    def answer(self, call: Call, response: HttpResponse) -> Any:
        """What a call returns.

        Raises:
            InferenceServerException: The server answered with an error.
            OtherProgramError: It is no Triton server.
            PyTritonClientInferenceServerError: The response contradicts itself.
            ValueError: The response is no JSON, or empty.
        """
        if call.method in _HEALTH:
            if response.status == 404:  # from no Triton server
                raise OtherProgramError(f"another program answers there, with status 404; {_RIGHT_PORT}")
            return response.status == 200
        if response.status != 200:
            raise server_exception()(response.refusal(), str(response.status))
        if call.method == "infer":
            return InferResponse.from_http(response.body, response.headers)
        if not call.method.startswith("get_"):
            return None
        if not response.body:  # Triton's port of metrics answers everything so
            raise ValueError(f"the answer is empty; {_RIGHT_PORT}")
        return json.loads(bytes(response.body))

    def stream_request(self, call: Call) -> list[Part]:
        """The parts of a request for a stream of responses, as the server's extension "generate" has it.

        Inputs travel without their shapes, and texts have to be UTF-8.

        Raises:
            PyTritonClientValueError: As :meth:`request`.
            UnicodeDecodeError: A text is not UTF-8.
        """
        arguments = call.arguments
        members = {each.name: _plain(each) for each in arguments["inputs"]}
        members |= {"id": arguments.get("request_id") or "", "parameters": dict(arguments.get("parameters") or {})}
        body = json.dumps(members, ensure_ascii=False).encode()
        uri = f"{_model_uri(arguments)}/generate_stream"
        return [self._writer.head(b"POST", uri, self.headers(call), len(body)), body]

    def stream_answer(self, event: bytes) -> InferResponse:
        """The response in an event of a stream; of its outputs those that are texts or lists of texts.

        Raises:
            InferenceServerException: It is an error.
            PyTritonClientInferenceServerError: It is no response.
        """
        response = InferResponse.from_event(event)
        if error := response.get_response().get("error"):
            raise server_exception()(error)
        return response

    def end_stream(self, response: HttpResponse) -> None:
        """Check the response at the end of a stream; raises as :meth:`stream_answer`."""
        if (body := bytes(response.body)).startswith(b"data:"):  # an error of the model; the status may be 400 for any
            self.stream_answer(body)
        if response.status != 200:
            raise server_exception()(response.refusal(), str(response.status))


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
    parameters = {name: arguments[name] for name in ("priority", "timeout", *SEQUENCE) if name in arguments}
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


def _plain(tensor: InputTensor) -> Any:
    """The values of an input as JSON has them, flat; a single one without a list."""
    assert tensor.array is not None
    values = tensor.array.ravel().tolist()
    if tensor.datatype == "BYTES":
        values = [value.decode() for value in values]
    return values[0] if len(values) == 1 else values


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
