"""Calls of models by remote workers, as frames, and what happens to them when the connection is lost."""

import asyncio
import json
import threading

import numpy as np
import pytest

pytest.importorskip("zmq")
import zmq

from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientQueueFullError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientTimeoutError,
)
from pytriton.client.tensors import InputTensor, OutputRequest
from pytriton.cluster import call_server
from pytriton.cluster.call_client import CallClient, WorkerTransport
from pytriton.cluster.call_server import MAX_CALLS, MAX_UNTAKEN, CallServer, PendingCalls
from pytriton.cluster.calls import answer_of, call_of, error_frame, request_frame, result_frame
from pytriton.cluster.channel import RemoteChannel
from pytriton.cluster.messages import decode, encode, is_frame
from pytriton.exceptions import ErrorCode
from pytriton.wire.control import CALL, RESULT
from pytriton.wire.frames import CANCEL, ERROR, RELEASE, REQUEST, RESPONSE, Frame
from tests.server.processes import DEADLINE_S, wait_for

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)
TEXTS = np.array([b"a", "\u00f6".encode()], object)
ARGUMENTS = {
    "model_name": "m",
    "model_version": "",
    "inputs": [InputTensor("x", "FP32", (2, 3), NUMBERS), InputTensor("t", "BYTES", (2,), TEXTS)],
    "outputs": [OutputRequest("y"), OutputRequest("left out")],
    "parameters": {"own": 1},
    "request_id": "mine",
    "priority": 2,
}
CALLED = Call("infer", 5.0, ARGUMENTS, {"traceparent": "00-1-2-3"}, "gzip")


class Answered(dict):
    as_numpy = dict.get


def travelled(frame, tensors=()):
    return decode(encode(frame, tensors))


def test_a_call_arrives_as_it_was_made():
    call = call_of(travelled(*request_frame(7, CALLED)))
    (x, t), given = call.arguments["inputs"], {name: call.arguments[name] for name in ARGUMENTS if name != "inputs"}
    assert (x.datatype, t.datatype, t.array.tolist()) == ("FP32", "BYTES", TEXTS.tolist())
    np.testing.assert_array_equal(x.array, NUMBERS)
    assert given == {name: value for name, value in ARGUMENTS.items() if name != "inputs"}
    assert (call.method, call.timeout_s, call.headers, call.compression) == ("infer", 5.0, CALLED.headers, "gzip")


def test_a_worker_can_do_no_more_than_call_models():
    told = json.loads(request_frame(1, CALLED)[0].metadata)
    for change in ({"method": "load_model"}, {"method": "unload_model"}, {"compression": "br"}):
        frame, tensors = request_frame(1, CALLED)
        frame.metadata = json.dumps({**told, **change}).encode()
        with pytest.raises(ValueError, match="may call models"):
            call_of(travelled(frame, tensors))
    frame, tensors = request_frame(1, CALLED)
    headers = {"traceparent": "1\r\nhost: x"}
    frame.metadata = json.dumps({**told, "headers": headers}).encode()
    with pytest.raises(ValueError, match="printable"):
        call_of(travelled(frame, tensors))
    others = {"headers": {"triton-access-token": "t"}, "arguments": {**told["arguments"], "config": "{}"}}
    frame.metadata = json.dumps({**told, **others}).encode()
    call = call_of(travelled(frame, tensors))
    assert not call.headers
    assert "config" not in call.arguments


@pytest.mark.parametrize("size", [3, 100_000])
def test_results_and_errors_arrive_as_they_were(size):
    y = np.arange(size, dtype=np.int64)
    answer = answer_of(travelled(*result_frame(1, CALLED, Answered(y=y))))
    np.testing.assert_array_equal(answer.as_numpy("y"), y)
    assert answer.as_numpy("left out") is None
    assert answer_of(travelled(*result_frame(1, Call("is_model_ready", 1.0), False))) is False
    error = PyTritonClientQueueTimeoutError("late")
    error.code, error.details = ErrorCode.UNAVAILABLE, "[]"
    for raised in (error, OSError("late")):
        with pytest.raises(PyTritonClientQueueTimeoutError if raised is error else Exception, match="late") as caught:
            answer_of(travelled(error_frame(1, raised)))
        assert (caught.value.code, caught.value.details) == (getattr(raised, "code", None), "[]" * (raised is error))


@pytest.fixture
def router():
    with zmq.Context() as context:
        router = context.socket(zmq.ROUTER)
        router.setsockopt(zmq.RCVTIMEO, int(DEADLINE_S * 1e3))
        yield router
        router.close(0)


@pytest.fixture
def calls(router):
    with zmq.Context() as context:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        channel = RemoteChannel(context, f"tcp://127.0.0.1:{port}", 60.0, lambda connection: None, lambda: None)
        calls = CallClient()
        assert channel.wait_connected(DEADLINE_S)
        calls.join(channel)
        yield calls, channel
        calls.leave()
        calls.close()
        channel.close()


def taken(router):
    """The identity of the worker, and the call that it has made."""
    identity, word, *parts = router.recv_multipart()
    assert word == CALL
    assert is_frame(parts[0])
    return identity, decode(parts)


def test_batches_that_come_while_a_thread_waits_for_an_answer_are_received_later(router, calls):
    calls, channel = calls
    first, second = (calls.submit(anext_of(calls.responses(CALLED))) for _ in range(2))
    identity, one = taken(router)
    _, other = taken(router)
    router.send_multipart([identity, *encode(Frame(REQUEST, 5, 1), [])])
    for frame in (other, one):
        router.send_multipart([identity, RESULT, *encode(*result_frame(frame.number, CALLED, Answered(y=NUMBERS)))])
    for future in (first, second):
        np.testing.assert_array_equal(future.result(DEADLINE_S).as_numpy("y"), NUMBERS)
    assert channel.receive().number == 5


def test_calls_end_with_their_timeout_and_with_their_connection(router, calls):
    calls, _ = calls
    transport = WorkerTransport(calls)
    with pytest.raises(PyTritonClientTimeoutError, match="did not answer infer within 0"):
        transport.call(Call("infer", 0.1, ARGUMENTS))
    number = taken(router)[1].number
    cancelled = taken(router)[1]
    assert (cancelled.number, cancelled.kind) == (number, CANCEL)
    lost = calls.submit(anext_of(calls.responses(CALLED)))
    taken(router)
    router.close(0)
    with pytest.raises(PyTritonClientConnectionError, match="was lost"):
        lost.result(DEADLINE_S)
    with pytest.raises(PyTritonClientConnectionError, match="cannot be reached"):
        transport.call(CALLED)


class Server:
    """A connector, and a server that streams for ever, and answers other calls when the gate is open."""

    def __init__(self):
        self.begun = self.streamed = 0
        self.closed = False
        self.gate = threading.Event()

    def async_transport(self, *, streams):
        return self

    async def call(self, call):
        self.begun += 1
        while not self.gate.is_set():
            await asyncio.sleep(0.001)
        return True

    async def stream(self, call):
        while True:
            yield Answered(y=NUMBERS)
            self.streamed += 1

    async def close(self):
        self.closed = True


class Broker:
    """Does one thing at a time, in the thread that asks for it."""

    def __init__(self):
        self.router, self.sent, self.doing = self, [], threading.RLock()

    def call(self, function):
        with self.doing:
            function()

    def send(self, identity, parts):
        self.sent.append(decode(parts[1:]))


class Taken(PendingCalls):
    """Takes frames on the thread of its broker."""

    def take(self, frame):
        self._broker.call(lambda: super(Taken, self).take(frame))

    def end(self):
        self._broker.call(super().end)


@pytest.fixture
def served():
    server, broker = Server(), Broker()
    calls = CallServer(lambda: server)
    yield server, broker, Taken(calls, broker, b"w")
    calls.close()
    assert server.closed


def test_a_stream_is_read_no_further_than_its_worker_takes_it_and_ends_with_it(served):
    server, broker, calls = served
    calls.take(travelled(*request_frame(1, Call("stream_infer", 5.0, ARGUMENTS))))
    wait_for(lambda: len(broker.sent) == MAX_UNTAKEN and server.streamed == MAX_UNTAKEN, "as many as may be untaken")
    calls.take(Frame(RELEASE, 1, 1))
    wait_for(lambda: len(broker.sent) == MAX_UNTAKEN + 1, "one more")
    calls.end()
    assert broker.sent[-1].kind == ERROR
    assert len(broker.sent) == MAX_UNTAKEN + 2


def test_calls_beyond_the_most_of_a_worker_wait_and_cancelled_ones_are_not_made(served):
    server, broker, calls = served
    for number in range(MAX_CALLS + 2):
        calls.take(travelled(*request_frame(number, Call("is_server_ready", 5.0))))
    wait_for(lambda: server.begun == MAX_CALLS, "as many as may be made at a time")
    calls.take(Frame(CANCEL, MAX_CALLS, 1))
    server.gate.set()
    wait_for(lambda: len(broker.sent) == MAX_CALLS + 1, "the other answers")
    assert server.begun == MAX_CALLS + 1
    assert {frame.number for frame in broker.sent} == {*range(MAX_CALLS + 2)} - {MAX_CALLS}


def test_calls_that_wait_take_a_bounded_number_of_bytes_and_those_beyond_are_refused(served, monkeypatch):
    monkeypatch.setattr(call_server, "MAX_BYTES", 5 * call_server.TASK_BYTES)
    _, broker, calls = served
    for number in range(6):
        calls.take(travelled(*request_frame(number, Call("is_server_ready", 5.0))))
    assert [(frame.kind, frame.number) for frame in broker.sent] == [(ERROR, 4), (ERROR, 5)]
    with pytest.raises(PyTritonClientQueueFullError, match="make fewer at a time"):
        answer_of(broker.sent[0])
    calls.take(Frame(CANCEL, 0, 1))
    calls.take(travelled(*request_frame(6, Call("is_server_ready", 5.0))))
    assert len(broker.sent) == 2


def test_a_call_larger_than_the_bound_is_made_alone(served, monkeypatch):
    monkeypatch.setattr(call_server, "MAX_BYTES", 1)
    server, broker, calls = served
    for number in range(2):
        server.gate.clear()
        calls.take(travelled(*request_frame(number, Call("is_server_ready", 5.0))))
        server.gate.set()
        wait_for(lambda: len(broker.sent) == number + 1, "the answer")  # noqa: B023
        assert broker.sent[number].kind == RESPONSE


async def anext_of(responses):
    return await anext(responses)
