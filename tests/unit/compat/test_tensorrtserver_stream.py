"""Streams of the first protocol's contexts, and servers that answer in other ways than Triton."""

import queue
from concurrent import futures
from contextlib import closing, contextmanager

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.exceptions import PyTritonClientConnectionError, PyTritonClientInferenceServerError
from pytriton.client.tensors import InputTensor
from pytriton.compat.tensorrtserver.connection import RequestStream
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException

DEADLINE_S = 30.0


class Scripted(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Streams whose answers a test gives.

    Attributes:
        asked: Ids of the requests, in their order.
        said: Answers to send; None ends the stream, and a status fails it.
        headers: Of each stream.
    """

    def __init__(self):
        self.asked, self.said, self.headers = queue.Queue(), queue.Queue(), []

    def ModelStreamInfer(self, requests, context):
        self.headers.append(dict(context.invocation_metadata()))
        for request in requests:
            self.asked.put(request.id)
            if request.model_name == "last":
                break
        while isinstance(said := self.said.get(timeout=DEADLINE_S), service_pb2.ModelStreamInferResponse):
            yield said
        if said is not None:
            context.abort(said, "for this reason")

    def ids(self, count):
        return [self.asked.get(timeout=DEADLINE_S) for _ in range(count)]


@contextmanager
def served(servicer):
    server = grpc.server(futures.ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.fixture
def script():
    return Scripted()


@pytest.fixture
def stream(script):
    with served(script) as address, closing(opened(address)) as stream:
        yield stream


def opened(address):
    return RequestStream(TritonUrl.from_url(f"grpc://{address}"), {"X-Name": "value"})


def send(stream, request_id, model="m"):
    tensor = InputTensor("x", "FP32", (1,), np.ones(1, np.float32))
    arguments = {"model_name": model, "model_version": "", "inputs": [tensor], "outputs": []}
    return stream.send(Call("stream_infer", np.inf, {**arguments, "request_id": request_id, "parameters": {}}))


def answer(request_id, value=1.0, final=True):
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.id = request_id
    message.infer_response.outputs.add(name="y", datatype="FP32", shape=[1])
    message.infer_response.raw_output_contents.append(np.float32(value).tobytes())
    message.infer_response.parameters["triton_final_response"].bool_param = final
    return message


def failure(request_id, text):
    message = service_pb2.ModelStreamInferResponse(error_message=text)
    message.infer_response.id = request_id
    return message


def value_of(sent):
    return sent.result(DEADLINE_S).as_numpy("y")[0]


def test_requests_are_sent_before_any_is_answered_and_each_gets_its_own_answer(script, stream):
    sent = {name: send(stream, name) for name in ("1", "2")}
    sent["3"] = send(stream, "3", "last")
    assert script.ids(3) == ["1", "2", "3"]
    for number, name in ((20, "2"), (30, "3"), (10, "1")):
        script.said.put(answer(name, number))
    assert {name: value_of(each) for name, each in sent.items()} == {"1": 10, "2": 20, "3": 30}
    assert script.headers[0]["x-name"] == "value"


def test_an_error_reaches_the_request_that_it_is_about(script, stream):
    first, second, third = send(stream, "1"), send(stream, "2"), send(stream, "3", "last")
    script.said.put(failure("2", "too small"))
    with pytest.raises(PyTritonClientInferenceServerError, match="too small"):
        second.result(DEADLINE_S)
    for each, name in ((first, "1"), (third, "3")):
        script.said.put(answer(name))
        assert value_of(each) == 1


def test_an_answer_without_id_is_that_to_the_oldest_request(script, stream):
    first, second = send(stream, "1"), send(stream, "2", "last")
    script.said.put(failure("", "too small"))
    with pytest.raises(PyTritonClientInferenceServerError, match="too small"):
        first.result(DEADLINE_S)
    script.said.put(answer("", 2))
    assert value_of(second) == 2


def test_later_responses_to_a_request_are_passed_over(script, stream):
    first, second = send(stream, "1"), send(stream, "2", "last")
    for message in (answer("1", 1, final=False), answer("1", 5), answer("2", 2)):
        script.said.put(message)
    assert (value_of(first), value_of(second)) == (1, 2)


def test_a_request_without_responses_is_an_error(script, stream):
    sent = send(stream, "1", "last")
    empty = answer("1")
    del empty.infer_response.outputs[:], empty.infer_response.raw_output_contents[:]
    script.said.put(empty)
    with pytest.raises(InferenceServerException, match="no response"):
        sent.result(DEADLINE_S)


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        (None, PyTritonClientConnectionError, "closed the stream"),
        (grpc.StatusCode.INTERNAL, PyTritonClientInferenceServerError, "for this reason"),
    ],
)
def test_a_stream_that_ends_fails_all_its_requests_and_the_next_one_opens_another(script, stream, end, kind, message):
    sent = [send(stream, "1"), send(stream, "2", "last")]
    script.said.put(end)
    for each in sent:
        with pytest.raises(kind, match=message):
            each.result(DEADLINE_S)
    script.said.put(answer("3", 3))
    assert value_of(send(stream, "3", "last")) == 3
    assert len(script.headers) == 2


def test_a_server_that_cannot_be_reached_fails_the_request(closed_port):
    with closing(opened(closed_port)) as stream:
        for number in ("1", "2"):
            with pytest.raises(PyTritonClientConnectionError):
                send(stream, number).result(DEADLINE_S)


def test_finishing_waits_for_all_answers_and_takes_no_more_requests(script, stream):
    sent = [send(stream, "1"), send(stream, "2")]
    script.ids(2)
    with futures.ThreadPoolExecutor(1) as pool:
        finishing = pool.submit(stream.finish)
        for message in (answer("1", 1), answer("2", 2), None):
            assert not finishing.done()
            script.said.put(message)
        finishing.result(DEADLINE_S)
    assert [each.done() for each in sent] == [True, True]
    assert [value_of(each) for each in sent] == [1, 2]
    with pytest.raises(InferenceServerException, match="closed"):
        send(stream, "3")


def test_closing_fails_the_requests_that_wait(script, stream):
    sent = send(stream, "1", "last")
    script.ids(1)
    for _ in range(2):
        stream.close()
    with pytest.raises(InferenceServerException, match="closed before the answer came"):
        sent.result(DEADLINE_S)
    script.said.put(None)
