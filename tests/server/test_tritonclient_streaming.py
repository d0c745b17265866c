"""tritonclient receives any number of responses to a request through a stream."""

import threading

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from tests.server.processes import DEADLINE_S
from tests.server.tritonclient_streams import Stream
from tests.server.tritonclients import only, only_grpc

TENSORS = [Tensor((1,), np.float32, "x")], [Tensor((1,), np.float32, "y")]


@batch
def count_up(x):
    """As many responses as the number says; a negative one fails after as many."""
    for number in range(abs(int(x[0, 0]))):
        yield {"y": np.full_like(x, number)}
    if x[0, 0] < 0:
        raise ValueError("below zero")


def repeat_parameters(requests):
    yield [{"y": np.full((1, 1), request.parameters["value"], np.float32)} for request in requests]


class Endless:
    """Answers until it is closed."""

    def __init__(self):
        self.closed = threading.Event()

    @batch
    def __call__(self, x):
        try:
            while True:
                yield {"y": x}
        finally:
            self.closed.set()


@pytest.fixture(scope="module")
def counting(bind):
    return bind(count_up, *TENSORS, decoupled=True, batcher=None)


@pytest.fixture(scope="module")
def doubling(bind):
    """A coupled model."""
    return bind(batch(lambda x: {"y": x * 2}), *TENSORS)


@pytest.fixture
def endless(bind):
    """Belongs to one test."""
    endless = Endless()
    endless.model = bind(endless, *TENSORS, decoupled=True)
    return endless


def number(value):
    return {"x": np.array([[value]], np.float32)}


def values(replies):
    return [reply["y"][0, 0] for reply in replies]


def first_error(stream):
    """The error after any number of answers."""
    while not isinstance(reply := stream.next(), InferenceServerException):
        assert reply is not None, "the stream ended without an error"
    return reply


@only_grpc
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_all_responses_come_in_order(api, counting, count):
    with Stream(api) as stream:
        stream.send(counting, number(count), request_id="7")
        replies = stream.finish()
    assert values(replies) == list(range(count))
    assert {reply.response["id"] for reply in replies} <= {"7"}


@only_grpc
def test_requests_of_one_stream_are_told_apart_by_their_ids(api, counting):
    counts = {"a": 3, "b": 0, "c": 5, "d": 1}
    with Stream(api) as stream:
        for request_id, count in counts.items():
            stream.send(counting, number(count), request_id=request_id)
        replies = stream.finish()
    for request_id, count in counts.items():
        assert values(reply for reply in replies if reply.response["id"] == request_id) == list(range(count))


@only("grpc")
@pytest.mark.parametrize("count", [0, 2])
def test_the_end_of_the_responses_is_told_if_asked_for(api, counting, count):
    with Stream(api) as stream:
        stream.send(counting, number(count), enable_empty_final_response=True)
        replies = stream.finish()
    assert [reply.response["parameters"]["triton_final_response"] for reply in replies] == [False] * count + [True]
    assert [reply.names() for reply in replies] == [["y"]] * count + [[]]


@only("grpc")
def test_a_coupled_model_gives_one_response_which_is_the_last(api, doubling):
    with Stream(api) as stream:
        stream.send(doubling, number(4), enable_empty_final_response=True)
        (reply,) = stream.finish()
    assert reply["y"][0, 0] == 8
    assert reply.response["parameters"]["triton_final_response"] is True


@only_grpc
def test_coupled_and_decoupled_models_share_a_stream(api, counting, doubling):
    # The second waits for the first's answer: Triton 2.51 aborts with ``byte_buffer->Valid()`` when a coupled and a
    # decoupled request are under way at once on one stream. And the end of the requests waits for all answers: else the
    # stream may never end.
    with Stream(api) as stream:
        stream.send(doubling, number(4), request_id="coupled")
        answer = stream.answer()
        stream.send(counting, number(2), request_id="decoupled")
        replies = [answer, stream.answer(), stream.answer(), *stream.finish()]
    assert [(reply.response["id"], reply["y"][0, 0]) for reply in replies] == [
        ("coupled", 8),
        ("decoupled", 0),
        ("decoupled", 1),
    ]


@only_grpc
def test_an_error_comes_after_the_responses_before_it_and_the_stream_goes_on(api, counting):
    with Stream(api) as stream:
        stream.send(counting, number(-2))
        assert values([stream.answer(), stream.answer()]) == [0, 1]
        assert "below zero" in stream.error().message()
        stream.send(counting, number(1))
        assert values([stream.answer()]) == [0]  # before the end: Triton 2.51 may not end a stream that had an error
        assert stream.finish() == []


@only_grpc
@pytest.mark.parametrize("options", [{"model_name": "unknown"}, {"model_version": "7"}], ids=["model", "version"])
def test_a_request_for_an_unknown_model_is_refused(api, counting, options):
    # And nothing follows on this stream: Triton 2.51 may lose the next answer, or end (docs/security.md).
    with Stream(api) as stream:
        stream.send_request({"model_name": counting, "inputs": api.inputs(number(1)), **options})
        assert "unknown model" in stream.error().message()


@only_grpc
def test_a_request_that_is_refused_leaves_a_usable_stream(api, counting):
    with Stream(api) as stream:
        stream.send_request({"model_name": counting, "inputs": []})
        assert "expected 1 inputs" in stream.error().message()
        stream.send(counting, number(1))
        assert values([stream.answer()]) == [0]  # before the end: Triton 2.51 may not end a stream that had an error
        assert stream.finish() == []


@only_grpc
def test_versions_and_parameters_reach_the_callable(api, triton):
    name = f"versions-{api.kind}"
    for version in (1, 2):
        triton.bind(name, repeat_parameters, *TENSORS, version, ModelConfig(decoupled=True))
    with Stream(api, headers={"x-any": "header"}, compression_algorithm="gzip") as stream:
        options = {"parameters": {"value": 5}, "sequence_id": "text", "sequence_start": True, "priority": 1}
        stream.send(name, number(0), model_version="1", outputs=[api.lib.InferRequestedOutput("y")], **options)
        (reply,) = stream.finish()
    assert (reply["y"][0, 0], reply.response["model_version"]) == (5, "1")


@only_grpc
def test_two_streams_are_independent(api, counting):
    with Stream(api) as first, Stream(api) as second:
        for stream, count in ((first, 3), (second, 2), (first, 1)):
            stream.send(counting, number(count))
        assert sorted(values(first.finish())) == [0, 0, 1, 2]
        assert values(second.finish()) == [0, 1]


@only_grpc
def test_a_stream_that_lasts_too_long_ends(api, endless):
    with Stream(api, stream_timeout=2) as stream:
        stream.send(endless.model, number(1))
        assert first_error(stream).status() == "StatusCode.DEADLINE_EXCEEDED"
        assert endless.closed.wait(DEADLINE_S)


@only_grpc
def test_a_cancelled_stream_ends_at_once_and_closes_the_callable(api, endless, doubling):
    with Stream(api) as stream:
        stream.send(endless.model, number(1))
        assert values([stream.answer()]) == [1]
        stream.stop(cancel_requests=True)
        assert first_error(stream).status() == "StatusCode.CANCELLED"
    assert endless.closed.wait(DEADLINE_S)
    with Stream(api) as stream:
        stream.send(doubling, number(4))
        assert values(stream.finish()) == [8]


@only("grpc")
def test_a_client_has_one_stream_at_a_time(api, doubling):
    with pytest.raises(InferenceServerException, match=r"start_stream\(\)"):
        api.client.async_stream_infer(doubling, api.inputs(number(1)))
    api.client.start_stream(lambda result, error: None)
    with pytest.raises(InferenceServerException, match="already running"):
        api.client.start_stream(lambda result, error: None)
    api.client.stop_stream()
    api.client.start_stream(lambda result, error: None)
    api.client.stop_stream()


@only("grpc.aio")
@pytest.mark.parametrize("request_", ["text", {"inputs": []}, {"model_name": "model"}])
def test_requests_that_lack_something_end_the_stream(api, request_):
    with Stream(api) as stream:
        stream.send_request(request_)
        assert stream.error().status() == "StatusCode.CANCELLED"  # all that grpc.aio tells of an iterator that raises


@pytest.mark.parametrize("count", [0, 1, 3])
def test_without_a_stream_a_decoupled_model_is_refused(api, counting, count):
    with api.refuses("UNIMPLEMENTED", "decoupled"):
        api.infer(counting, number(count))


def test_the_configuration_says_that_a_model_is_decoupled(api, counting, doubling):
    assert api.call("get_model_config", counting)["model_transaction_policy"] == {"decoupled": True}
    policy = api.call("get_model_config", doubling).get("model_transaction_policy", {})
    assert not policy.get("decoupled", False)
