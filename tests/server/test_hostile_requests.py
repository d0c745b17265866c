"""Requests that ended the bundled server: it refuses them, and the same process goes on answering."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import zlib
from contextlib import closing
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.triton import VALID_TRITON_ENDPOINTS, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.own_server import server_of, serving
from tests.server.processes import descendants
from tests.server.proxies import HAS_EDGE, MALFORMED, native_part_only

pytestmark = pytest.mark.either_proxy

DEPTH = 1_000_000  # 8 MiB of stack sufficed for 36,000
ENDPOINTS = {
    "infer": "/v2/models/{numbers}/infer",
    "version": "/v2/models/{numbers}/versions/1/infer",
    "generate": "/v2/models/{counter}/generate",
    "generate_stream": "/v2/models/{counter}/generate_stream",
    "load": "/v2/repository/models/{numbers}/load",
    "index": "/v2/repository/index",
    "trace": "/v2/trace/setting",
    "model trace": "/v2/models/{numbers}/trace/setting",
    "logging": "/v2/logging",
    "shared memory": "/v2/systemsharedmemory/region/r/register",
    "CUDA shared memory": "/v2/cudasharedmemory/region/r/register",
}
NESTED = {
    "arrays": b"[" * DEPTH,
    "objects": b'{"a":' * DEPTH,
    "parameters": b'{"parameters":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "unknown member": b'{"x":1,"z":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
}
COMPRESSED = {"gzip": gzip.compress(NESTED["arrays"], 1), "deflate": zlib.compress(NESTED["arrays"], 1)}
IMPOSSIBLE = [[1, 1 << 40], [1, 1 << 61], [1 << 61, 1], [1 << 62, 8], [1 << 31, 1 << 31], [(1 << 63) - 1, 3]]
MANY = 100_000


@batch
def double(x):
    return {"y": x * 2}


@batch
def repeat(x):
    return {"y": x}


@pytest.fixture(scope="module")
def numbers(bind):
    return bind(double, max_batch_size=8)


@pytest.fixture(scope="module")
def words(bind):
    return bind(repeat, [Tensor((-1,), bytes, "x")], [Tensor((-1,), bytes, "y")])


@pytest.fixture(scope="module")
def paths(numbers, counter):
    return {name: path.format(numbers=numbers, counter=counter) for name, path in ENDPOINTS.items()}


@pytest.fixture(autouse=True)
def survivor(triton_config, triton, numbers):
    """After each test the same process answers as before."""
    pid = server_of(triton_config)
    yield
    url = f"http://{LOCALHOST}:{triton_config.http_port}"
    with ModelClient(url, numbers, init_timeout_s=60) as client:
        assert client.infer_sample(np.ones(3, np.float32))["y"].tolist() == [2, 2, 2]
    assert server_of(triton_config) == pid


@pytest.fixture
def post(triton_config):
    """``post(path, body, headers)``: status of the reply, and its body."""

    def post(path, body, headers=(), port=triton_config.http_port):
        with closing(http.client.HTTPConnection(LOCALHOST, port, timeout=60)) as connection:
            connection.request("POST", path, body, dict(headers))
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

    return post


@pytest.fixture
def post_chunks(triton_config):
    """``post_chunks(path, byte, count)``: the status of the reply to a body of as many chunks."""

    def post_chunks(path, byte, count):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        with socket.create_connection((LOCALHOST, triton_config.http_port), timeout=60) as connection:
            connection.sendall(head + b"1\r\n%c\r\n" % byte * count + b"0\r\n\r\n")
            with closing(http.client.HTTPResponse(connection)) as reply:
                reply.begin()
                return reply.status

    return post_chunks


@pytest.fixture(scope="module")
def stub(triton_config, triton):
    with grpc.insecure_channel(f"{LOCALHOST}:{triton_config.grpc_port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def tensor(**members):
    return {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3], **members}


def request(*inputs, **members):
    return json.dumps({"inputs": list(inputs) or [tensor()], **members})


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_deeply_nested_json_is_refused_at_each_endpoint(post, paths, endpoint):
    status, text = post(paths[endpoint], NESTED["arrays"])
    assert (status, "error" in json.loads(text)) == (MALFORMED, True)


@pytest.mark.parametrize("endpoint", ["infer", "generate", "load"])
@pytest.mark.parametrize("what", NESTED)
def test_it_does_not_matter_what_is_nested(post, paths, endpoint, what):
    assert post(paths[endpoint], NESTED[what])[0] in (200, 400, 500)


def test_deeply_nested_values_of_a_tensor_are_read_or_refused(post, paths):
    values = '{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":' + "[" * DEPTH + "1" + "]" * DEPTH + "}]}"
    status, text = post(paths["infer"], values)
    if HAS_EDGE:
        assert status == 400
    else:
        assert (status, json.loads(text)["outputs"][0]["data"]) == (200, [2.0])


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_deeply_nested_json_is_refused_when_it_is_compressed(post, paths, encoding):
    assert post(paths["infer"], COMPRESSED[encoding], {"Content-Encoding": encoding})[0] == MALFORMED


@pytest.mark.parametrize("endpoint", ["infer", "generate", "load", "trace", "logging", "shared memory"])
def test_a_body_of_many_small_chunks_is_refused_at_each_endpoint(post_chunks, paths, endpoint):
    assert post_chunks(paths[endpoint], ord("["), DEPTH) == MALFORMED


@native_part_only
@pytest.mark.parametrize("shape", IMPOSSIBLE)
def test_a_shape_beyond_all_memory_is_refused_before_memory_is_taken_for_it(post, paths, shape):
    status, text = post(paths["infer"], request(tensor(shape=shape)))
    assert status == 400
    assert "too large extents" in text or "more than the memory that is available" in text or "does not match" in text


@native_part_only
@pytest.mark.parametrize("shape", [[1, -1], [-1, -3], [1 << 31, 1 << 31]])
def test_such_a_shape_is_refused_over_grpc_too(stub, numbers, shape):
    asked = service_pb2.ModelInferRequest(model_name=numbers, raw_input_contents=[b""])
    asked.inputs.add(name="x", datatype="FP32", shape=shape)
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(asked, timeout=60)
    assert refused.value.details() == "input 'x' has a shape with negative or too large extents"


@native_part_only
def test_classes_of_strings_are_refused(post, words):
    strings = tensor(datatype="BYTES", data=["a", "b", "c"])
    asked = request(strings, outputs=[{"name": "y", "parameters": {"classification": 2}}])
    status, text = post(f"/v2/models/{words}/infer", asked)
    assert status == 400
    assert "class result not available for output due to unsupported type 'BYTES'" in text


@native_part_only
def test_classes_of_strings_are_refused_over_grpc_too(stub, words):
    asked = service_pb2.ModelInferRequest(model_name=words, raw_input_contents=[b"\1\0\0\0a"])
    asked.inputs.add(name="x", datatype="BYTES", shape=[1, 1])
    asked.outputs.add(name="y").parameters["classification"].int64_param = 2
    with pytest.raises(grpc.RpcError, match="unsupported type 'BYTES'"):
        stub.ModelInfer(asked, timeout=60)


@native_part_only
def test_too_many_parameters_are_refused_at_once(post, paths):
    assert post(paths["infer"], request(parameters={f"p{number}": 1 for number in range(1024)}))[0] == 200
    status, text = post(paths["infer"], request(parameters={f"p{number}": 1 for number in range(MANY)}))
    assert (status, "more than 1024 parameters" in text) == (400, True)


@native_part_only
def test_too_many_outputs_are_refused_at_once(post, paths):
    status, text = post(paths["infer"], request(outputs=[{"name": f"y{number}"} for number in range(MANY)]))
    assert (status, "more than 16384 outputs" in text) == (400, True)


@native_part_only
@pytest.mark.parametrize("count", [2, MANY])
def test_an_output_that_is_requested_twice_is_refused(post, paths, stub, numbers, count):
    message = "output 'y' is requested more than once"
    status, text = post(paths["infer"], request(outputs=[{"name": "y"}] * count))
    assert (status, message in text) == (400, True)
    asked = service_pb2.ModelInferRequest(model_name=numbers, raw_input_contents=[bytes(12)])
    asked.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    for _ in range(count):
        asked.outputs.add(name="y")
    # The edge counts them before it looks at their names.
    with pytest.raises(grpc.RpcError, match=message if count == 2 else f"{message}|too many parameters or tensors"):
        stub.ModelInfer(asked, timeout=60)
    assert post(paths["infer"], request(outputs=[{"name": "y"}]))[0] == 200


@pytest.mark.parametrize("size", [11, 13, 1 << 32, (1 << 63) - 1, (1 << 64) - 1, -1, "12", None])
def test_a_wrong_number_of_binary_bytes_is_refused(post, paths, size):
    binary = {"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": size}}
    head = request(binary).encode()
    length = {"Inference-Header-Content-Length": str(len(head))}
    assert post(paths["infer"], head + bytes(12), length)[0] in (400, 500)


@pytest.mark.parametrize("length", ["-1", "1", str(1 << 31), str((1 << 63) - 1), str(1 << 64)])
def test_a_wrong_length_of_the_json_is_refused(post, paths, length):
    assert post(paths["infer"], request(), {"Inference-Header-Content-Length": length})[0] in (400, 500)


@pytest.mark.parametrize("length", [0, 5, 0x7FFFFFFF, 0xFFFFFFFC, 0xFFFFFFFF])
@pytest.mark.parametrize("shape", [[1, 1], [1, 1_000_000]])
def test_a_string_longer_than_its_data_is_refused(stub, words, length, shape):
    data = length.to_bytes(4, "little") + b"abcd"
    asked = service_pb2.ModelInferRequest(model_name=words, raw_input_contents=[data])
    asked.inputs.add(name="x", datatype="BYTES", shape=shape)
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(asked, timeout=60)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("count", [-1, "a", 1.5, None])
def test_a_wrong_number_of_classes_is_refused(post, paths, count):
    asked = request(outputs=[{"name": "y", "parameters": {"classification": count}}])
    assert post(paths["infer"], asked)[0] == MALFORMED


@pytest.mark.parametrize("key", ["", "missing", "/../etc/passwd", "/" + "a" * 5000])
@pytest.mark.parametrize(("offset", "size"), [(0, 1 << 40), (1 << 62, 1 << 62), ((1 << 64) - 4096, 8192)])
def test_shared_memory_that_does_not_exist_is_refused(post, paths, key, offset, size):
    asked = json.dumps({"key": key, "offset": offset, "byte_size": size})
    assert post(paths["shared memory"], asked)[0] in (400, 500)


@pytest.mark.parametrize("handle", ["", "AAAA", "!!!!", "A" * 86 + "==", "A" * 1_000_000])
def test_handles_of_cuda_memory_that_are_none_are_refused(post, paths, handle):
    asked = json.dumps({"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": 64})
    assert post(paths["CUDA shared memory"], asked)[0] in (400, 500)


@pytest.mark.parametrize("read", [0, 1, 50])
def test_streams_may_be_cancelled_at_any_time(stub, counter, read):
    asked = service_pb2.ModelInferRequest(model_name=counter, raw_input_contents=[np.float32(200).tobytes()])
    asked.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    for _ in range(30):
        stream = stub.ModelStreamInfer(iter([asked] * 3))
        for _ in range(read):
            assert not next(stream).error_message
        stream.cancel()


def test_connections_may_be_reset_at_any_time(triton_config, paths):
    body = request().encode()
    whole = f"POST {paths['infer']} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    for end in range(1, len(whole) + 1, 7):
        with socket.create_connection((LOCALHOST, triton_config.http_port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing resets
            connection.sendall(whole[:end])


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_without_the_token_a_protected_endpoint_does_not_read_the_body(post, paths, closed_port, endpoint):
    status, text = post(paths[endpoint], NESTED["arrays"], port=closed_port)
    assert (status, "This API is restricted" in text) == (403, True)


@pytest.fixture(scope="module")
def closed_port():
    """HTTP port of a server with all endpoints protected."""
    security = TritonSecurityConfig(restricted_endpoints=VALID_TRITON_ENDPOINTS)
    with local_config() as config, serving(config, security_config=security):
        yield config.http_port


@native_part_only
def test_programs_that_the_server_starts_do_not_get_its_library(triton_config, bind):
    bind(double, proxy="python")
    server = server_of(triton_config)
    assert "libpytriton_preload.so" in Path(f"/proc/{server}/maps").read_text()
    programs = descendants(server)
    assert programs
    for pid in programs:
        assert b"libpytriton_preload.so" not in Path(f"/proc/{pid}/environ").read_bytes()
