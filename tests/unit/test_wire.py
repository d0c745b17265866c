import json
from itertools import pairwise

import numpy as np
import pytest
import wire
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

TARGET = wire.Target(port=8000, model="twice", floats=3)
VALUES = np.array([1.5, -2, 0], np.float32)


class Script:
    """A socket that takes and gives what it is told; a number is how much it takes, None is would-block."""

    def __init__(self, taken: list[int | None], given: list[bytes]) -> None:
        self.taken, self.given, self.sent = taken, given, b""

    def send(self, data: memoryview) -> int:
        count = self.taken.pop(0) if self.taken else len(data)
        if count is None:
            raise BlockingIOError
        self.sent += bytes(data[:count])
        return min(count, len(data))

    def recv_into(self, view: memoryview) -> int:
        if not self.given:
            raise BlockingIOError
        chunk = self.given.pop(0)
        view[: len(chunk)] = chunk
        return len(chunk)


def answered(
    body: bytes = b'{"outputs":[]}' + VALUES.tobytes(), status: bytes = b"200 OK", names: bytes = b""
) -> bytes:
    names = names or b"Content-Type: x\r\nInference-Header-Content-Length: 14\r\nContent-Length: %d" % len(body)
    return b"HTTP/1.1 %s\r\n%s\r\n\r\n%s" % (status, names, body)


def connection(*given: bytes, taken: list[int | None] | None = None, answer_bytes: int = 1000):
    return wire.Connection(Script(taken or [], list(given)), b"POST", answer_bytes)


def test_the_http_request_is_json_then_tensor_with_both_lengths():
    head, _, body = wire.http_request(TARGET).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ") for line in lines[1:])
    json_bytes = int(headers["Inference-Header-Content-Length"])
    assert lines[0] == "POST /v2/models/twice/infer HTTP/1.1"
    assert headers["Host"] == "127.0.0.1:8000"
    assert int(headers["Content-Length"]) == len(body) == json_bytes + 12
    assert json.loads(body[:json_bytes]) == {
        "inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}}],
        "outputs": [{"name": "OUTPUT", "parameters": {"binary_data": True}}],
    }
    np.testing.assert_array_equal(np.frombuffer(body[json_bytes:], np.float32), TARGET.values[0])


def test_the_grpc_request_carries_the_raw_tensor():
    request = service_pb2.ModelInferRequest.FromString(wire.grpc_request(TARGET))
    assert (request.model_name, request.inputs[0].name, request.inputs[0].datatype) == ("twice", "INPUT", "FP32")
    assert list(request.inputs[0].shape) == [1, 3]
    assert list(request.raw_input_contents) == [TARGET.values.tobytes()]


def test_strings_travel_behind_their_lengths_over_both_protocols():
    target = wire.Target(port=8000, model="echo", strings=2)
    assert target.datatype == "BYTES"
    first, second = target.values[0]
    data = b"".join(len(each).to_bytes(4, "little") + each for each in (first, second))
    _, _, body = wire.http_request(target).partition(b"\r\n\r\n")
    assert body.endswith(data)
    (described,) = json.loads(body.removesuffix(data))["inputs"]
    assert (described["datatype"], described["shape"]) == ("BYTES", [1, 2])
    assert described["parameters"] == {"binary_data_size": len(data)}
    request = service_pb2.ModelInferRequest.FromString(wire.grpc_request(target))
    assert (request.inputs[0].datatype, list(request.raw_input_contents)) == ("BYTES", [data])


def test_answers_of_strings_are_read_over_both_protocols():
    data = b"\2\0\0\0ab" + b"\0\0\0\0"
    connected = connection(answered(b'{"outputs":[]}' + data))
    connected.exchange()
    assert connected.output("BYTES").tolist() == [b"ab", b""]
    answer = service_pb2.ModelInferResponse(raw_output_contents=[data]).SerializeToString()
    assert wire.grpc_output(answer, "BYTES").tolist() == [b"ab", b""]


def test_the_grpc_answer_gives_the_raw_tensor():
    answer = service_pb2.ModelInferResponse(raw_output_contents=[VALUES.tobytes()]).SerializeToString()
    np.testing.assert_array_equal(wire.grpc_output(answer), VALUES)


def test_an_exchange_sends_the_request_and_takes_the_output():
    connected = connection(answered())
    assert connected.exchange() is True
    assert connected.stream.sent == b"POST"
    np.testing.assert_array_equal(connected.output(), VALUES)


def test_a_request_is_sent_in_the_pieces_that_the_socket_takes():
    connected = connection(taken=[1, None, 2])
    connected.start()
    assert connected.stream.sent == b"P"
    connected.send()
    assert connected.stream.sent == b"P"
    connected.send()
    assert (connected.stream.sent, bytes(connected.unsent)) == (b"POS", b"T")
    connected.send()
    assert (connected.stream.sent, len(connected.unsent)) == (b"POST", 0)


@given(st.lists(st.integers(1, len(answered()) - 1), unique=True))
def test_an_answer_may_arrive_in_any_pieces(cuts):
    edges = [0, *sorted(cuts), len(answered())]
    connected = connection(*(answered()[begin:end] for begin, end in pairwise(edges)))
    connected.start()
    assert [connected.receive() for _ in edges[1:]] == [False] * len(cuts) + [True]
    np.testing.assert_array_equal(connected.output(), VALUES)


def test_a_connection_is_used_again_for_an_answer_of_another_length():
    connected = connection(answered(), answered(b"{}", b"500 Internal", b"content-length: 2"), answered())
    assert [connected.exchange() for _ in range(3)] == [True, False, True]
    assert connected.stream.sent == b"POST" * 3


def test_an_error_of_the_server_is_shown():
    connected = connection(answered(b'{"error":"no"}', b"400 Bad Request"))
    assert connected.exchange() is False
    with pytest.raises(wire.LoadError, match=r"answered 400: .*no"):
        connected.output()


@pytest.mark.parametrize(
    ("given_bytes", "message"),
    [
        (b"", "closed the connection"),
        (answered(names=b"Transfer-Encoding: chunked"), "lacks .*Content-Length"),
        (answered(names=b"Inference-Header-Content-Length: 14"), "lacks .*Content-Length"),
        (b"SMTP ready\r\nContent-Length: 1\r\n\r\nx", "lacks .*HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", "more than was expected"),
    ],
)
def test_an_answer_that_cannot_be_measured_ends_the_load(given_bytes, message):
    with pytest.raises(wire.LoadError, match=message):
        connection(given_bytes).exchange()


def test_a_server_that_falls_silent_is_reported():
    with pytest.raises(wire.LoadError, match="no answer in"):
        connection(answered()[:20]).exchange()
