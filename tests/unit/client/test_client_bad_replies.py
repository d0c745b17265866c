"""Servers that are broken or hostile: each answer is right, or an error of the client."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from pytriton.client import AsyncioModelClient, DecoupledModelClient, FuturesModelClient, ModelClient
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientValueError,
)
from pytriton.client.http_messages import HttpResponse
from pytriton.client.tensors import InferResponse
from pytriton.model_config.parser import ModelConfigParser
from tests.unit.loopback import listening, serving_grpc

CONFIG = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [
        {"name": "y", "data_type": "TYPE_FP32", "dims": [2]},
        {"name": "t", "data_type": "TYPE_STRING", "dims": [-1]},
    ],
}
KNOWN = {"model_config": ModelConfigParser.from_dict(CONFIG), "ensure_model_is_ready": False}
X = np.zeros((1, 2), np.float32)
Y = np.array([[1, 2]], np.float32)
DATA = Y.tobytes()
LENGTH = "Inference-Header-Content-Length"


def output(name="y", datatype="FP32", shape=(1, 2), size=8):
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def answer(*outputs, data=DATA, length=None, headers=(), **fields):
    """The bytes of a response."""
    header = json.dumps({"model_name": "m", "model_version": "1", "outputs": outputs, **fields}).encode()
    lines = [f"{LENGTH}: {len(header) if length is None else length}", *headers]
    return raw(header + data, *lines)


def raw(body, *lines, status="200 OK"):
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def text(*items):
    return b"".join(len(item).to_bytes(4, "little") + item for item in items)


def infer_sync(address, **settings):
    with ModelClient(address, "m", inference_timeout_s=20, **{**KNOWN, **settings}) as client:
        return client.infer_batch(X)


def infer_async(address, **settings):
    async def infer():
        async with AsyncioModelClient(address, "m", inference_timeout_s=20, **{**KNOWN, **settings}) as client:
            return await client.infer_batch(X)

    return asyncio.run(infer())


def infer_futures(address, **settings):
    with FuturesModelClient(address, "m", inference_timeout_s=20, **{**KNOWN, **settings}) as client:
        return client.infer_batch(X).result()


BOTH = pytest.mark.parametrize("infer", [infer_sync, infer_async])
ALL = pytest.mark.parametrize("infer", [infer_sync, infer_async, infer_futures])


class Scripted:
    """Gives one connection after the other its answer; after that of a repeated one, the piece at its end for ever."""

    def __init__(self, *answers, repeated=b""):
        self.answers, self.repeated = list(answers), repeated

    def __call__(self, connection, stopped):
        connection.recv(2**16)
        with contextlib.suppress(OSError):  # the client has closed the connection
            connection.sendall(self.answers.pop(0))
            while self.repeated and not stopped.is_set():
                connection.sendall(self.repeated)


@ALL
def test_a_right_answer_is_decoded(infer):
    script = Scripted(answer(output(), output("t", "BYTES", [1, 2], 9), data=Y.tobytes() + text(b"", b"\x00")))
    with listening(script) as address:
        found = infer(address)
    np.testing.assert_array_equal(found["y"], Y)
    assert found["t"].tolist() == [[b"", b"\x00"]]


BAD = {
    "negative header length": answer(output(), length=-5),
    "negative header length of an answer without data behind it": raw(
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}', f"{LENGTH}: -5"
    ),
    "header length beyond the body": answer(output(), length=10_000),
    "header length within the header": answer(output(), length=20),
    "header length that is no number": answer(output(), length="many"),
    "header length in other digits": answer(output(), length="\xb2"),
    "huge header length": answer(output(), length="9" * 5000),
    "negative size": answer(output(size=-8)),
    "size beyond the body": answer(output(size=800)),
    "size that is no number": answer(output(size="8")),
    "size that is a boolean": answer(output(shape=[1], size=True), data=b"a"),
    "size that is not that of the shape": answer(output(shape=[1, 3])),
    "sizes that overlap": answer(output(), output("t", "BYTES", [1], 8)),
    "more data than is said": answer(output(), data=Y.tobytes() * 2),
    "other dtype of the same size": answer(output(datatype="INT32")),
    "other dtype": answer(output("y", "BYTES", [1], 8), data=text(b"abcd")),
    "unknown dtype": answer(output(datatype="FP31")),
    "dtype that is no text": answer(output(datatype=["FP32"])),
    "negative shape": answer(output(shape=[-1, -2])),
    "shape of no numbers": answer(output(shape="12")),
    "shape of fractions": answer(output(shape=[1.0, 2.0])),
    "shape that overflows": answer(output(shape=[2**62, 2**62])),
    "shape of many axes": answer(output(shape=[1] * 99 + [2])),
    "two outputs of one name": answer(output(size=4), output(size=4)),
    "text longer than its data": answer(output("t", "BYTES", [1, 1], 5), data=b"\xff\xff\xff\xffa"),
    "fewer texts than said": answer(output("t", "BYTES", [1, 2], 5), data=text(b"a")),
    "more texts than said": answer(output("t", "BYTES", [1, 1], 10), data=text(b"a", b"b")),
    "many texts without data": answer(output("t", "BYTES", [2**60], 0), data=b""),
    "no data": raw(b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2]}]}'),
    "too few values": raw(b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1]}]}'),
    "values of another kind": raw(b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 1], "data": ["1"]}]}'),
    "values beyond the dtype": raw(b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1e300]}]}'),
    "values of any size": raw(
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1' + b"0" * 4000 + b"]}]}"
    ),
    "texts that are none": raw(b'{"outputs": [{"name": "t", "datatype": "BYTES", "shape": [1], "data": [1]}]}'),
    "outputs of another form": answer(fields=1, outputs=[1], data=b""),
    "no outputs": raw(b"{}"),
    "no JSON": raw(b"<html>"),
    "no object": raw(b"[1]"),
    "nothing": raw(b""),
    "no text": raw(b"\xff\xfe\xfd"),
    "deep JSON": raw(b"[" * 10**6),
    "deep outputs": raw(b'{"outputs": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"),
    "unknown encoding": answer(output(), headers=["Content-Encoding: br"]),
    "not compressed as it says": answer(output(), headers=["Content-Encoding: gzip"]),
    "error that is no text": raw(b'{"error": {"a": 1}}', status="500 Oops"),
    "error in HTML": raw(b"<html>\xff", status="502 Bad Gateway"),
    "deep error": raw(b"[" * 10**6, status="500 Oops"),
    "success of another kind": raw(b"", status="204 No Content"),
    "other protocol": raw(b"", "Upgrade: x", "Connection: upgrade", status="101 Switching"),
    "status that is no number": b"HTTP/1.1 OK\r\n\r\n",
    "greeting of another protocol": b"220 mail ESMTP\r\n",
    "two lengths": raw(b"ab", "Content-Length: 1"),
    "length and chunks": raw(b"0\r\n\r\n", "Transfer-Encoding: chunked"),
    "negative chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    "cut short": answer(output())[:-1],
}


@BOTH
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_answer_is_an_error_of_the_client(infer, bad):
    def talk(connection, stopped):
        connection.recv(2**16)
        connection.sendall(bad)
        connection.shutdown(socket.SHUT_WR)

    with listening(talk) as address, pytest.raises(PyTritonClientInferenceServerError) as caught:
        infer(address)
    assert len(str(caught.value)) < 5000


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "body": (CHUNKS, b"1\r\na\r\n" * 9999),
    "trailers": (CHUNKS + b"0\r\n", b"X: y\r\n" * 9999),
}


@BOTH
@pytest.mark.parametrize(("begin", "repeated"), ENDLESS.values(), ids=ENDLESS)
def test_an_endless_answer_is_an_error(infer, begin, repeated):
    with (
        listening(Scripted(begin, repeated=repeated)) as address,
        pytest.raises(PyTritonClientInferenceServerError, match=r"max_response_bytes|headers"),
    ):
        infer(address, max_response_bytes=2**20)


def retry_sync(address, **settings):
    with ModelClient(address, "m", **KNOWN, **settings) as client:
        with pytest.raises(PyTritonClientInferenceServerError, match="max_response_bytes"):
            client.infer_batch(X)
        return client.infer_batch(X)


def retry_async(address, **settings):
    async def infer():
        async with AsyncioModelClient(address, "m", **KNOWN, **settings) as client:
            with pytest.raises(PyTritonClientInferenceServerError, match="max_response_bytes"):
                await client.infer_batch(X)
            return await client.infer_batch(X)

    return asyncio.run(infer())


@pytest.mark.parametrize("retry", [retry_sync, retry_async])
@pytest.mark.parametrize(
    "long",
    [
        pytest.param(raw(gzip.compress(bytes(2**22)), "Content-Encoding: gzip"), id="decompressed"),
        pytest.param(raw(bytes(2**21)), id="as it travels"),
    ],
)
def test_after_an_answer_beyond_the_limit_the_client_makes_another_connection(retry, long):
    with listening(Scripted(long, answer(output()))) as address:
        np.testing.assert_array_equal(retry(address, max_response_bytes=2**20)["y"], Y)


@BOTH
def test_an_answer_of_any_length_is_taken_without_a_limit(infer):
    compressed = answer(output())
    head, _, body = compressed.partition(b"\r\n\r\n")
    packed = gzip.compress(body)
    length = head.split(LENGTH.encode())[1]
    script = Scripted(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n%b%b\r\n\r\n"
        % (len(packed), LENGTH.encode(), length)
        + packed
    )
    with listening(script) as address:
        np.testing.assert_array_equal(infer(address, max_response_bytes=None)["y"], Y)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1"])
@pytest.mark.parametrize("kind", [ModelClient, AsyncioModelClient, FuturesModelClient, DecoupledModelClient])
def test_a_limit_that_is_none_is_refused(kind, limit):
    with pytest.raises(PyTritonClientValueError, match="max_response_bytes must be an int above 0"):
        kind("grpc://localhost", "m", max_response_bytes=limit)


def test_a_client_of_another_client_has_its_limit():
    with ModelClient("localhost", "m", max_response_bytes=5) as client:
        assert ModelClient.from_existing_client(client)._max_response_bytes == 5


def message(raw=(), **changes):
    tensor = {"name": "y", "datatype": "FP32", "shape": [1, 2], **changes}
    return service_pb2.ModelInferResponse(
        outputs=[service_pb2.ModelInferResponse.InferOutputTensor(**tensor)], raw_output_contents=list(raw)
    )


def twice():
    doubled = message([Y.tobytes()] * 2)
    doubled.outputs.append(doubled.outputs[0])
    return doubled


BAD_MESSAGES = {
    "no data": message(),
    "two data": message([Y.tobytes()] * 2),
    "short data": message([b"a"]),
    "long data": message([Y.tobytes() * 2]),
    "other dtype": message([Y.tobytes()], datatype="INT32"),
    "unknown dtype": message([Y.tobytes()], datatype="FP31"),
    "negative shape": message([Y.tobytes()], shape=[-1, -2]),
    "shape that overflows": message([Y.tobytes()], shape=[2**62, 2**62]),
    "lying text": message([b"\xff\xff\xff\xffa"], name="t", datatype="BYTES", shape=[1]),
    "two outputs of one name": twice(),
}


@BOTH
@pytest.mark.parametrize("bad", BAD_MESSAGES.values(), ids=BAD_MESSAGES)
def test_a_bad_message_is_an_error_of_the_client(infer, bad):
    with serving_grpc() as server:
        server.answer = bad
        with pytest.raises(PyTritonClientInferenceServerError) as caught:
            infer(f"grpc://{server.address}")
    assert not isinstance(caught.value, PyTritonClientConnectionError)


@BOTH
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_beyond_the_limit_is_an_error_that_says_so(infer, compression):
    with serving_grpc() as server:
        server.hold = lambda context: context.set_compression(compression)
        server.answer = message([bytes(8000)], shape=[1000, 2])
        with pytest.raises(PyTritonClientInferenceServerError, match="higher max_response_bytes"):
            infer(f"grpc://{server.address}", max_response_bytes=1000)


def read(response):
    for name in ("y", "t"):
        response.as_numpy(name)


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["y", "data", "shape"]), inner),
    max_leaves=6,
)
OUTPUTS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["y", "t"]) | NESTED,
        "datatype": st.sampled_from(["FP32", "BYTES", "BOOL", "INT8", "FP64"]) | NESTED,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | NESTED,
        "data": NESTED,
        "parameters": NESTED | st.fixed_dictionaries({"binary_data_size": st.integers(-2, 20) | NESTED}),
    },
)


@settings(max_examples=300)
@given(
    outputs=st.lists(OUTPUTS, max_size=3) | NESTED,
    data=st.binary(max_size=20),
    surplus=st.integers(-3, 3),
    binary=st.booleans(),
)
def test_any_answer_becomes_arrays_or_an_error_of_the_client(outputs, data, surplus, binary):
    header = json.dumps({"outputs": outputs}).encode()
    response = HttpResponse(200, header + data)
    if binary:
        response.headers[LENGTH.lower()] = str(len(header) + surplus)
    with contextlib.suppress(PyTritonClientError):
        read(InferResponse.from_http(response.body, response.headers))


@given(
    shape=st.lists(st.integers(-1, 4), max_size=4),
    datatype=st.sampled_from(["FP32", "BYTES", "BOOL", "INT8", "FP64", ""]),
    data=st.lists(st.binary(max_size=20), max_size=2),
)
def test_any_message_becomes_arrays_or_an_error_of_the_client(shape, datatype, data):
    with contextlib.suppress(PyTritonClientError):
        read(InferResponse.from_grpc(message(data, shape=shape, datatype=datatype)))
