"""What calls are as requests, and what errors of libraries and servers become, per protocol."""

import dataclasses
import gzip
import json
import ssl
import zlib

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.client.grpc_protocol import GrpcProtocol
from pytriton.client.http_protocol import HttpProtocol
from pytriton.client.tensors import InputTensor, OutputRequest
from pytriton.client.transport import ProtocolAdapter

INFER = Call("infer", 5.0, {"model_name": "m", "inputs": [], "request_id": "1"})
NOT_TRUSTED = ssl.SSLCertVerificationError(1, "CERTIFICATE_VERIFY_FAILED")


def protocol_of(scheme, **options):
    kind = {"http": ProtocolAdapter, "grpc": GrpcProtocol}[scheme]
    return kind("the server", {}, **options)


def request_of(call):
    """The head and the body of a call over HTTP."""
    head, *body = HttpProtocol(TritonUrl.from_url("host/base"), {"X-Name": "a"}).request(call)
    return head.decode(), b"".join(body)


@pytest.mark.parametrize(("algorithm", "decompress"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_a_request_over_http_is_compressed_if_it_is_wanted(algorithm, decompress):
    plain_head, plain = request_of(INFER)
    head, body = request_of(dataclasses.replace(INFER, compression=algorithm))
    assert f"\r\nContent-Encoding: {algorithm}\r\nAccept-Encoding: {algorithm}\r\n" in head
    assert decompress(body) == plain
    assert "Encoding" not in plain_head


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_a_request_over_grpc_is_compressed_if_it_is_wanted(algorithm):
    protocol = protocol_of("grpc")
    compressed = protocol.request(dataclasses.replace(INFER, compression=algorithm))
    assert compressed.options["compression"].name == algorithm.capitalize()
    assert "compression" not in protocol.request(INFER).options


def test_parameters_keep_their_types_over_grpc():
    parameters = {"text": "a", "flag": True, "number": -3, "share": 0.5}
    message = protocol_of("grpc").request(Call("infer", 5.0, {**INFER.arguments, "parameters": parameters})).message
    sent = {name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in message.parameters.items()}
    assert sent == parameters


def tensors_of(body, size):
    """The JSON of a request's body, and the data behind it."""
    return json.loads(body[:size]), body[size:]


def test_an_inference_has_the_same_content_over_both_protocols():
    numbers, texts = np.arange(6, dtype=np.int16).reshape(3, 2).T, np.array([[b"a"], [b""]], object)
    inputs = [
        InputTensor("n", "INT16", numbers.shape, numbers),
        InputTensor("t", "BYTES", texts.shape, texts),
        InputTensor("r", "FP32", (2, 1), None, "region", 8),
    ]
    outputs = [
        OutputRequest("y"),
        OutputRequest("c", class_count=3),
        OutputRequest("s", region="other", region_bytes=5),
    ]
    given = {"model_name": "m", "model_version": "2", "inputs": inputs, "outputs": outputs, "request_id": "7"}
    call = Call("infer", 5.0, {**given, "priority": 1, "timeout": 9, "parameters": {"b": True, "i": -1, "s": "x"}})
    head, body = request_of(call)
    assert head.startswith("POST /base/v2/models/m/versions/2/infer HTTP/1.1\r\nHost: host:8000\r\nX-Name: a\r\n")
    size = int(head.split("Inference-Header-Content-Length: ")[1].split("\r\n")[0])
    header, data = tensors_of(body, size)
    message = protocol_of("grpc").request(call).message
    assert header["id"] == message.id == "7"
    assert [each["shape"] for each in header["inputs"]] == [[*each.shape] for each in message.inputs]
    assert data == b"".join(message.raw_input_contents) == numbers.tobytes() + b"\1\0\0\0a\0\0\0\0"
    assert [each["parameters"].get("binary_data_size") for each in header["inputs"]] == [12, 9, None]
    assert header["inputs"][2]["parameters"] == {"shared_memory_region": "region", "shared_memory_byte_size": 8}
    assert message.inputs[2].parameters["shared_memory_region"].string_param == "region"
    assert header["outputs"] == [
        {"name": "y", "parameters": {"binary_data": True}},
        {"name": "c", "parameters": {"binary_data": True, "classification": 3}},
        {
            "name": "s",
            "parameters": {"binary_data": False, "shared_memory_region": "other", "shared_memory_byte_size": 5},
        },
    ]
    assert message.outputs[1].parameters["classification"].int64_param == 3
    assert message.outputs[2].parameters["shared_memory_byte_size"].int64_param == 5
    assert header["parameters"] == {"priority": 1, "timeout": 9, "b": True, "i": -1, "s": "x"}
    assert message.parameters["b"].bool_param is True
    assert message.parameters["i"].int64_param == -1
    assert message.parameters["s"].string_param == "x"
    assert message.parameters["priority"].uint64_param == 1


MODEL = {"model_name": "m n", "model_version": ""}
CUDA = {"name": "r", "raw_handle": b"aGFuZGxl", "device_id": 1, "byte_size": 8}


@pytest.mark.parametrize(
    ("method", "arguments", "line", "content"),
    [
        ("is_server_live", {}, "GET /base/v2/health/live", None),
        ("is_model_ready", MODEL, "GET /base/v2/models/m%20n/ready", None),
        ("get_model_config", {**MODEL, "model_version": "3"}, "GET /base/v2/models/m%20n/versions/3/config", None),
        ("get_model_metadata", MODEL, "GET /base/v2/models/m%20n", None),
        ("get_server_metadata", {}, "GET /base/v2", None),
        ("get_inference_statistics", {"model_name": ""}, "GET /base/v2/models/stats", None),
        ("get_inference_statistics", {"model_name": "m"}, "GET /base/v2/models/m/stats", None),
        ("get_model_repository_index", {}, "POST /base/v2/repository/index", None),
        (
            "load_model",
            {"model_name": "m", "config": "{}", "files": {"file:1/a": b"\xff"}},
            "POST /base/v2/repository/models/m/load",
            {"parameters": {"config": "{}", "file:1/a": "/w=="}},
        ),
        (
            "unload_model",
            {"model_name": "m"},
            "POST /base/v2/repository/models/m/unload",
            {"parameters": {"unload_dependents": False}},
        ),
        (
            "register_system_shared_memory",
            {"name": "a/b", "key": "/k", "offset": 4, "byte_size": 8},
            "POST /base/v2/systemsharedmemory/region/a%2Fb/register",
            {"key": "/k", "offset": 4, "byte_size": 8},
        ),
        (
            "register_cuda_shared_memory",
            CUDA,
            "POST /base/v2/cudasharedmemory/region/r/register",
            {"raw_handle": {"b64": "aGFuZGxl"}, "device_id": 1, "byte_size": 8},
        ),
        ("unregister_cuda_shared_memory", {}, "POST /base/v2/cudasharedmemory/unregister", None),
        ("get_system_shared_memory_status", {}, "GET /base/v2/systemsharedmemory/status", None),
    ],
)
def test_calls_over_http_have_the_paths_and_the_json_of_the_protocol(method, arguments, line, content):
    head, body = request_of(Call(method, 5.0, arguments))
    assert head.startswith(f"{line} HTTP/1.1\r\n")
    assert (json.loads(body) if body else None) == content


@pytest.mark.parametrize(
    ("method", "arguments", "rpc", "fields"),
    [
        ("is_model_ready", MODEL, "ModelReady", {"name": "m n"}),
        ("get_inference_statistics", {"model_name": ""}, "ModelStatistics", {}),
        ("load_model", {"model_name": "m"}, "RepositoryModelLoad", {"model_name": "m"}),
        (
            "register_cuda_shared_memory",
            CUDA,
            "CudaSharedMemoryRegister",
            {"name": "r", "raw_handle": b"handle", "device_id": 1, "byte_size": 8},
        ),
        ("unregister_system_shared_memory", {"name": "r"}, "SystemSharedMemoryUnregister", {"name": "r"}),
    ],
)
def test_calls_over_grpc_have_the_messages_of_the_protocol(method, arguments, rpc, fields):
    request = protocol_of("grpc").request(Call(method, 5.0, arguments))
    assert request.rpc == rpc
    assert {field.name: value for field, value in request.message.ListFields()} == fields
    assert request.options["timeout"] == 5.0


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        ("UNAVAILABLE", "Exceeds maximum queue size", PyTritonClientServerUnavailableError),
        ("UNAVAILABLE", "Request timeout expired", PyTritonClientQueueTimeoutError),
        ("NOT_FOUND", "Request for unknown model: 'm' has no available versions", PyTritonClientServerUnavailableError),
        ("NOT_FOUND", "no such region", PyTritonClientInferenceServerError),
        ("INTERNAL", "OSError: Request timeout expired", PyTritonClientInferenceServerError),
        ("INVALID_ARGUMENT", "Request for unknown model", PyTritonClientInferenceServerError),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_status_tells_what_the_server_means(scheme, status, text, kind):
    codes = {"UNAVAILABLE": "503", "NOT_FOUND": "404", "INTERNAL": "500", "INVALID_ARGUMENT": "400"}
    error = InferenceServerException(text, codes[status] if scheme == "http" else f"StatusCode.{status}")
    translated = protocol_of(scheme).translate(INFER, error)
    assert type(translated) is kind
    assert translated.message == str(error)


def test_lack_of_an_access_token_is_not_said_to_pass():
    error = InferenceServerException("This protocol is restricted, expecting header", "StatusCode.UNAVAILABLE")
    assert type(protocol_of("grpc").translate(INFER, error)) is PyTritonClientInferenceServerError


def test_queue_timeout_is_both_a_timeout_and_an_answer_of_the_server():
    assert issubclass(PyTritonClientQueueTimeoutError, PyTritonClientTimeoutError)
    assert issubclass(PyTritonClientQueueTimeoutError, PyTritonClientInferenceServerError)


def wrapped(error):
    """As aiohttp does."""
    outer = OSError("cannot connect")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize("error", [NOT_TRUSTED, wrapped(NOT_TRUSTED), ssl.SSLError(1, "WRONG_VERSION_NUMBER")])
def test_failed_handshake_over_https_says_what_to_check(error):
    with pytest.raises(PyTritonClientTlsError, match=r"TLS handshake with the server failed at infer: .*check that"):
        raise protocol_of("http").translate(INFER, error)


@pytest.mark.parametrize("text", ["Ssl handshake failed: X", "Custom verification check failed with error: X"])
def test_failed_handshake_over_grpc_says_what_to_check(text):
    error = InferenceServerException(f"failed to connect to all addresses; {text}", "StatusCode.UNAVAILABLE")
    with pytest.raises(PyTritonClientTlsError, match=r"TLS handshake with the server failed at infer: .*check that"):
        raise protocol_of("grpc").translate(INFER, error)


@pytest.mark.parametrize("error", [ssl.SSLEOFError(8, "EOF"), ssl.SSLZeroReturnError(6, "closed"), OSError("reset")])
def test_connection_that_ends_in_the_handshake_is_a_connection_error_that_may_pass(error):
    translated = protocol_of("http", secured=True).translate(INFER, error)
    assert type(translated) is PyTritonClientConnectionError
    assert "demands clients' certificates" in translated.message


def test_connections_without_tls_do_not_mention_certificates():
    assert "certificate" not in protocol_of("http").translate(INFER, OSError("reset")).message
