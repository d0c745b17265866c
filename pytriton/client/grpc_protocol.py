"""gRPC without channels: calls become messages, and messages become what the calls return.

The messages are those of :mod:`tritonclient.grpc`, which is imported when a client needs it: that takes 0.2 s.
"""

from __future__ import annotations

import base64
import importlib
import ipaddress
import math
import socket
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES, SEQUENCE, check_metadata
from pytriton.client.auth import Tls
from pytriton.client.conversations import Call, OtherProgramError
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInferenceServerError
from pytriton.client.tensors import InferResponse
from pytriton.client.transport import ProtocolAdapter, server_exception

__all__ = [
    "GrpcProtocol",
    "GrpcRequest",
    "channel_options",
    "grpc_messages",
    "open_channel",
    "refusal",
]

_LARGEST_MESSAGE_BYTES = 2**31 - 1

# gRPC has one status for what the server sends and for failures of the connection; only the text tells them apart.
_HTTP_TEXT = "http1.x server"
_SOME_HTTP_TEXT = "socket closed"  # also what a server of HTTP may look like
_CONNECTION_TEXTS = (
    "failed to connect",
    "connection refused",
    "connection reset",
    "connection timed out",
    "socket closed",
    "broken pipe",
    "errors resolving",
    "resolution failed",
    "keepalive",
    "goaway",
    "endpoint closing",
    "recvmsg",
    "sendmsg",
    "stream removed",
    "unreachable",
    "no route to host",
)
_TLS_TEXTS = ("handshake failed", "verification check failed")
_LENGTH_TEXTS = ("Received message larger than max", "Decompressed message larger than max")


class GrpcRequest(NamedTuple):
    """A call as gRPC sends it.

    Attributes:
        rpc: Name of the remote procedure.
        message: Its argument.
        options: ``metadata``, ``timeout`` and ``compression``.
    """

    rpc: str
    message: Any
    options: dict[str, Any]


class GrpcProtocol(ProtocolAdapter):
    """The messages of calls, and what the server's messages and errors mean."""

    def request(self, call: Call) -> GrpcRequest:
        """What to send for a call.

        Raises:
            PyTritonClientValueError: The name or version of a model, or a header, cannot be sent.
        """
        options: dict[str, Any] = {"metadata": tuple(self.metadata(call).items())}
        if not math.isinf(call.timeout_s):
            options["timeout"] = call.timeout_s
        if call.compression:
            options["compression"] = compression(call.compression)
        if call.method == "infer":
            return GrpcRequest("ModelInfer", _infer_message(call.arguments), options)
        rpc, fields = _RPCS[call.method]
        message = getattr(grpc_messages(), f"{rpc}Request")(**fields(call.arguments))
        return GrpcRequest(rpc, message, options)

    def stream_request(self, call: Call, *, marks_end: bool) -> Any:
        """The ``ModelInferRequest`` of a call over a stream.

        Args:
            call: Its headers and its compression are those of the stream.
            marks_end: The server marks the last response, and sends an empty one if there is no other.
        """
        message = _infer_message(call.arguments)
        if marks_end:
            message.parameters["triton_enable_empty_final_response"].bool_param = True
        return message

    def metadata(self, call: Call) -> dict[str, str]:
        """The headers of a call; gRPC refuses upper-case letters in their names.

        Raises:
            PyTritonClientValueError: A header cannot travel as metadata.
        """
        check_metadata(call.headers)
        return {name.lower(): value for name, value in self.headers(call).items()}

    def answer(self, call: Call, message: Any) -> Any:
        """What a call returns.

        Raises:
            PyTritonClientInferenceServerError: The response contradicts itself.
        """
        if call.method == "infer":
            return InferResponse.from_grpc(message)
        if call.method.startswith("is_"):
            return message.live if call.method == "is_server_live" else message.ready
        to_dict = importlib.import_module("google.protobuf.json_format").MessageToDict
        answer = to_dict(message, preserving_proto_field_name=True)
        return plain_answer(call.method, answer)

    def stream_answer(self, call: Call, message: Any) -> InferResponse:
        """The response in a ``ModelStreamInferResponse``.

        Triton 2.51 can send responses on the stream of another client, after a client cancelled a stream just when it
        ended.

        Raises:
            InferenceServerException: It is an error.
            ConnectionError: It belongs to another request; the stream cannot be used any more.
            PyTritonClientInferenceServerError: It contradicts itself.
        """
        if message.error_message:
            raise self._server_exception(message.error_message)
        response, request_id = message.infer_response, call.arguments["request_id"]
        if response.id not in ("", request_id):
            raise ConnectionError(
                f"the server sent a response to request {response.id!r} on the stream of request {request_id!r}; send "
                "the request again"
            )
        return InferResponse.from_grpc(response)

    def translate(self, call: Call, error: Exception) -> PyTritonClientError:
        """The clients' error for anything that performing a call raised."""
        if isinstance(error, self._server_exception):
            text = str(error)
            if text.startswith("[StatusCode.DEADLINE_EXCEEDED]"):
                return self.timeout(call)
            if text.startswith("[StatusCode.UNAVAILABLE]"):
                lowered = text.lower()
                if any(cause in lowered for cause in _TLS_TEXTS):
                    return self.tls_failure(call, error)
                if any(cause in lowered for cause in _CONNECTION_TEXTS):
                    if _HTTP_TEXT in lowered or _SOME_HTTP_TEXT in lowered:
                        kind = OtherProgramError if _HTTP_TEXT in lowered else ConnectionError
                        error = kind(f"{text}. If this is a port of HTTP, the URL begins with http://")
                    return self.connection_failure(call, error)
            if any(cause in text for cause in _LENGTH_TEXTS):
                return PyTritonClientInferenceServerError(
                    f"{text}; if the model may answer so, make the client with a higher max_response_bytes"
                )
        return super().translate(call, error)


@cache
def grpc_messages() -> Any:
    """The module ``tritonclient.grpc.service_pb2``."""
    return importlib.import_module("tritonclient.grpc.service_pb2")


def refusal(error: Any) -> Exception:
    """The ``InferenceServerException`` for a ``grpc.RpcError``."""
    failure: Exception = server_exception()(error.details(), str(error.code()))
    return failure


def plain_answer(method: str, answer: dict[str, Any]) -> Any:
    """The part of a message in JSON form that HTTP would answer with."""
    if method == "get_model_config":
        return answer["config"]
    return answer.get("models", []) if method == "get_model_repository_index" else answer


def compression(algorithm: str | None) -> Any:
    """GRPC's value for ``gzip`` or ``deflate``; None for None."""
    return importlib.import_module("grpc").Compression[algorithm.capitalize()] if algorithm else None


def is_on_this_machine(address: str) -> bool:
    """Whether a server's address is a Unix socket, or one of this machine's. No name but ``localhost`` is looked up.

    Args:
        address: ``host:port``, or gRPC's ``unix:path``.
    """
    host = address.rpartition(":")[0].strip("[]")
    if address.startswith("unix") or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(host)
        with socket.socket(socket.AF_INET if found.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except (ValueError, OSError):  # a name, or the address of another machine
        return False
    return True


def channel_options(address: str, max_response_bytes: int | None = None) -> list[tuple[str, Any]]:
    """The options of a channel to an address; ``max_response_bytes`` is that of :func:`open_channel`."""
    longest = min(max_response_bytes or _LARGEST_MESSAGE_BYTES, _LARGEST_MESSAGE_BYTES)
    options = [
        ("grpc.max_send_message_length", _LARGEST_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", longest),
    ]
    if is_on_this_machine(address):
        options.append(("grpc.enable_http_proxy", 0))  # else a proxy in the environment would be asked for it
    return options


def open_channel(
    address: str,
    tls: Tls | None = None,
    max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
    *,
    server_name: str = "",
    library: str = "grpc",
) -> Any:
    """A channel, which the caller closes; it connects at its first call.

    Args:
        address: ``host:port``.
        tls: None does not encrypt.
        max_response_bytes: The longest message to take; None for 2 GiB.
        server_name: The name that the server's certificate has, if it is not the host.
        library: ``grpc``, or ``grpc.aio`` for a channel of the running event loop.
    """
    module = importlib.import_module(library)
    options = channel_options(address, max_response_bytes)
    # Each client has its own connection, so that the pause after a failure of one does not delay the others.
    options.append(("grpc.use_local_subchannel_pool", 1))
    if tls is None:
        return module.insecure_channel(address, options=options)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    files = (tls.root_certificates, tls.private_key, tls.certificate_chain)
    contents = (None if path is None else Path(path).read_bytes() for path in files)
    credentials = importlib.import_module("grpc").ssl_channel_credentials(*contents)
    return module.secure_channel(address, credentials, options=options)


Arguments = Mapping[str, Any]


def _infer_message(arguments: Arguments) -> Any:
    message = grpc_messages().ModelInferRequest(
        model_name=arguments["model_name"],
        model_version=arguments.get("model_version", ""),
        id=arguments.get("request_id", ""),
    )
    for tensor in arguments["inputs"]:
        data = tensor.data()
        item = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if data is None:
            _set_region(item, tensor)
        else:
            message.raw_input_contents.append(bytes(data))
    for output in arguments.get("outputs") or ():
        item = message.outputs.add(name=output.name)
        if output.class_count:
            item.parameters["classification"].int64_param = output.class_count
        if output.region:
            _set_region(item, output)
    sequence = {name: arguments[name] for name in SEQUENCE if name in arguments}
    for name, value in {**(arguments.get("parameters") or {}), **sequence}.items():
        parameter = message.parameters[name]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            parameter.int64_param = value
        elif isinstance(value, float):  # of a request that is sent again; clients refuse it
            parameter.double_param = value
        else:
            parameter.string_param = value
    if "priority" in arguments:
        message.parameters["priority"].uint64_param = arguments["priority"]
    if "timeout" in arguments:
        message.parameters["timeout"].int64_param = arguments["timeout"]
    return message


def _set_region(item: Any, tensor: Any) -> None:
    item.parameters["shared_memory_region"].string_param = tensor.region
    item.parameters["shared_memory_byte_size"].int64_param = tensor.region_bytes


def _load_fields(arguments: Arguments) -> dict[str, Any]:
    parameter = grpc_messages().ModelRepositoryParameter
    parameters = {path: parameter(bytes_param=content) for path, content in (arguments.get("files") or {}).items()}
    if arguments.get("config") is not None:
        parameters["config"] = parameter(string_param=arguments["config"])
    return {"model_name": arguments["model_name"], "parameters": parameters}


def _unload_fields(arguments: Arguments) -> dict[str, Any]:
    alone = grpc_messages().ModelRepositoryParameter(bool_param=False)
    return {"model_name": arguments["model_name"], "parameters": {"unload_dependents": alone}}


def _cuda_fields(arguments: Arguments) -> dict[str, Any]:
    return {**arguments, "raw_handle": base64.b64decode(arguments["raw_handle"])}


def _model_fields(arguments: Arguments) -> dict[str, Any]:
    return {"name": arguments.get("model_name", ""), "version": arguments.get("model_version", "")}


# For each method but ``infer``: the remote procedure, and what makes the fields of its request of the call's arguments.
_RPCS: dict[str, tuple[str, Callable[[Arguments], dict[str, Any]]]] = {
    "is_server_live": ("ServerLive", dict),
    "is_server_ready": ("ServerReady", dict),
    "is_model_ready": ("ModelReady", _model_fields),
    "get_server_metadata": ("ServerMetadata", dict),
    "get_model_metadata": ("ModelMetadata", _model_fields),
    "get_model_config": ("ModelConfig", _model_fields),
    "get_model_repository_index": ("RepositoryIndex", dict),
    "load_model": ("RepositoryModelLoad", _load_fields),
    "unload_model": ("RepositoryModelUnload", _unload_fields),
    "get_inference_statistics": ("ModelStatistics", _model_fields),
    "get_system_shared_memory_status": ("SystemSharedMemoryStatus", dict),
    "register_system_shared_memory": ("SystemSharedMemoryRegister", dict),
    "unregister_system_shared_memory": ("SystemSharedMemoryUnregister", dict),
    "get_cuda_shared_memory_status": ("CudaSharedMemoryStatus", dict),
    "register_cuda_shared_memory": ("CudaSharedMemoryRegister", _cuda_fields),
    "unregister_cuda_shared_memory": ("CudaSharedMemoryUnregister", dict),
}
