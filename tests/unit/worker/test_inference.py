"""Frames as the proxy sends them, answered by a callable: what it sees, and what goes back."""

import asyncio
import json
import logging
import math
from dataclasses import replace

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.decorators.batching import whole_batch_form
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.types import Request, RequestBatch, Response
from pytriton.wire.frames import ERROR, REQUEST, RESPONSE, Frame, pack, unpack
from pytriton.wire.tensors import WHOLE_BATCH, joined, tensor
from pytriton.worker.inference import Inference, Options

CONFIG = TritonModelConfig(
    "model",
    batching=True,
    inputs=[TensorSpec("x", (-1,), np.float32), TensorSpec("s", (1,), np.bytes_, optional=True)],
    outputs=[TensorSpec("y", (-1,), np.float32)],
)
TEXT = replace(CONFIG, outputs=[TensorSpec("t", (1,), np.bytes_)])
BOTH = replace(CONFIG, outputs=[*CONFIG.outputs, *TEXT.outputs])
X = [np.array([[1, 2], [3, 4]], np.float32), np.array([[5, 6]], np.float32)]
S = [np.array([[b"a"], [b"\0"]], object), np.array([[b""]], object)]


def sent(frame, tensors):
    """A frame as it comes out of the channel."""
    return unpack(memoryview(bytearray(pack(frame, tensors))))


def whole_batch(*columns, metadata=b"", apart=False):
    """Requests whose inputs travelled as one block: one list of the requests' arrays per input."""
    rows = [len(array) for array in columns[0]]
    tensors = [joined(index, column, sum(rows)) for index, column in enumerate(columns)]
    return sent(Frame(REQUEST, 7, len(rows), rows, metadata, apart=apart), tensors)


def per_request(*requests, metadata=b""):
    """Requests that travelled one by one: each a dict from the input's index to its array."""
    tensors = [tensor(name, array, i) for i, request in enumerate(requests) for name, array in request.items()]
    return sent(Frame(REQUEST, 7, len(requests), None, metadata), tensors)


class Answers:
    """Makes Inference objects, and closes them."""

    def __init__(self):
        self.made = []
        self.stops = 0

    def stop(self):
        self.stops += 1

    def of(self, function, frame, config=CONFIG, **options):
        """The reply to a frame, as the proxy receives it."""
        form = whole_batch_form(function)
        self.made.append(Inference(function, config, Options(**options), self.stop, form))
        return sent(*self.made[-1].answer(frame))


@pytest.fixture
def answers():
    answers = Answers()
    yield answers
    for inference in answers.made:
        inference.close()


def outputs_of(reply):
    """The reply's arrays by output index and request."""
    assert reply.kind == RESPONSE
    return {(item.name, item.request): reply.array(item).tolist() for item in reply.tensors}


def status_of(reply):
    assert reply.kind == ERROR
    assert reply.tensors == []
    return json.loads(reply.metadata)


def metadata(**entries):
    """Metadata of requests ``r0``, ``r1``, ...: parameters and wanted outputs."""
    told = {name[1:]: {"parameters": entry[0], "outputs": entry[1]} for name, entry in entries.items()}
    return json.dumps(told).encode()


def test_a_block_reaches_the_callable_as_requests_that_know_it(answers):
    seen = []

    def function(requests):
        seen.append((requests.columns()["x"], requests[1]["x"], requests[0].data["s"], requests))
        return [{} for _ in requests]

    answers.of(function, whole_batch(X, S))
    ((whole, second, strings, requests),) = seen
    assert isinstance(requests, RequestBatch)
    assert whole.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert np.shares_memory(whole, second)
    assert second.tolist() == [[5, 6]]
    assert strings.tolist() == [[b"a"], [b"\0"]]
    assert whole.flags.writeable


def test_a_batched_answer_goes_back_as_a_block(answers):
    reply = answers.of(batch(lambda x, s: {"y": x * 2, "t": s}), whole_batch(X, S), BOTH)
    assert outputs_of(reply) == {
        (0, WHOLE_BATCH): [[2, 4], [6, 8], [10, 12]],
        (1, WHOLE_BATCH): [[b"a"], [b"\0"], [b""]],
    }
    assert list(reply.rows) == [2, 1]
    assert (reply.number, reply.requests) == (7, 2)


def test_a_callable_under_batch_gets_the_frames_own_memory_and_no_requests(answers):
    seen = []

    @batch
    def function(*args, **inputs):
        seen.append((args, inputs["x"]))
        return {"y": inputs["x"]}

    frame = whole_batch(X, S)
    reply = answers.of(function, frame)
    ((args, x),) = seen
    assert args == ()
    assert np.shares_memory(x, np.frombuffer(frame.data, np.uint8))
    assert outputs_of(reply)[0, WHOLE_BATCH] == [[1, 2], [3, 4], [5, 6]]
    assert list(reply.rows) == [2, 1]


def test_a_decorator_above_batch_sees_the_requests(answers):
    seen = []

    def above(requests):
        seen.extend(requests)
        return batch(lambda x: {"y": x * 2})(requests)

    assert outputs_of(answers.of(above, whole_batch(X)))[0, WHOLE_BATCH] == [[2, 4], [6, 8], [10, 12]]
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"y": np.zeros((2, 2), np.float32)}, "output 'y' of the batch has 2 rows, expected 3"),
        ({"y": np.float32(1)}, "output 'y' of the batch is a float32"),
        ({"y": np.zeros((), np.float32)}, "output 'y' of the batch is a 0-d array"),
        ({"y": np.zeros(3, complex)}, "output 'y' of the batch has dtype complex128"),
        (None, "returned a NoneType"),
    ],
    ids=str,
)
def test_a_wrong_result_under_batch_is_refused(answers, returned, message):
    assert message in status_of(answers.of(batch(lambda **_: returned), whole_batch(X, S)))["message"]


def test_a_batched_answer_that_was_changed_goes_back_per_request(answers):
    def function(requests):
        responses = batch(lambda x: {"y": x})(requests)
        responses[1] = {"y": -responses[1]["y"]}
        return responses

    assert outputs_of(answers.of(function, whole_batch(X))) == {(0, 0): [[1, 2], [3, 4]], (0, 1): [[-5, -6]]}


def test_requests_of_different_shapes_get_their_own_arrays(answers):
    seen = []

    def function(requests):
        seen.extend(dict(request) for request in requests)
        return [{"y": request["x"] + 1} for request in requests]

    wide = np.ones((1, 3), np.float32)
    reply = answers.of(function, per_request({0: X[0]}, {0: wide, 1: S[1]}, {}))
    assert status_of(reply)["message"] == "KeyError: 'x'"  # request 2 lacks it
    assert [list(inputs) for inputs in seen] == [["x"], ["x", "s"], []]
    reply = answers.of(function, per_request({0: X[0]}, {0: wide}))
    assert outputs_of(reply) == {(0, 0): [[2, 3], [4, 5]], (0, 1): [[2, 2, 2]]}
    assert reply.rows is None


def test_a_model_without_batching_gets_and_gives_shapes_as_they_are(answers):
    config = TritonModelConfig(
        "m", batching=False, inputs=[TensorSpec("x", (2,), np.int32)], outputs=[TensorSpec("y", (), np.int32)]
    )
    reply = answers.of(
        lambda requests: [{"y": requests[0]["x"].sum(dtype=np.int32)[...]}],
        per_request({0: np.array([3, 4], np.int32)}),
        config,
    )
    assert outputs_of(reply) == {(0, 0): 7}


def test_requests_have_their_parameters_less_those_for_the_server(answers):
    seen = []

    def function(requests):
        seen.extend((request.parameters, request.requested_output_names) for request in requests)
        return [{} for _ in requests]

    reserved = ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"]
    hidden = dict.fromkeys([*reserved, "triton_enable_empty_final_response"], 1)
    told = {"text": "ä", "count": 3, "flag": True, "ratio": 0.5, "tritonic": "x"}
    answers.of(function, whole_batch(X, metadata=metadata(r1=({**told, **hidden}, ["t"]))), BOTH)
    assert seen == [({}, ["y", "t"]), (told, ["t"])]


def test_requests_do_not_share_their_lists_and_dicts(answers):
    def function(requests):
        requests[0].parameters["a"] = 1
        requests[0].requested_output_names.clear()
        assert requests[1].parameters == {}
        assert requests[1].requested_output_names == ["y"]
        return [{"y": request["x"]} for request in requests]

    assert outputs_of(answers.of(function, whole_batch(X))) == {(0, 0): [[1, 2], [3, 4]], (0, 1): [[5, 6]]}


def test_what_requests_say_is_not_read_for_callables_that_take_the_whole_batch(answers):
    reply = answers.of(batch(lambda x: {"y": x}), whole_batch(X, metadata=b"no JSON"))
    assert outputs_of(reply) == {(0, WHOLE_BATCH): [[1, 2], [3, 4], [5, 6]]}
    assert list(reply.rows) == [2, 1]


def test_only_declared_and_requested_outputs_go_back(answers):
    def function(requests):
        return [{"t": request["s"], "undeclared": request["x"], "y": request["x"]} for request in requests]

    frame = whole_batch(X, S, metadata=metadata(r0=({}, ["t"])), apart=True)
    assert sorted(outputs_of(answers.of(function, frame, BOTH))) == [(0, 1), (1, 0), (1, 1)]


def test_a_batched_answer_respects_requested_outputs_too(answers):
    frame = whole_batch(X, S, metadata=metadata(r1=({}, ["y"])), apart=True)
    reply = answers.of(batch(lambda x, s: {"y": x, "t": s}), frame, BOTH)
    assert sorted(outputs_of(reply)) == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("dtype", [np.float64, np.int8, ">f4", np.bool_])
def test_outputs_are_cast_to_their_declared_dtype(answers, dtype):
    reply = answers.of(batch(lambda x: {"y": (x > 2).astype(dtype)}), whole_batch(X))
    assert reply.array(reply.tensors[0]).dtype == np.float32
    assert outputs_of(reply) == {(0, WHOLE_BATCH): [[0, 0], [1, 1], [1, 1]]}


@pytest.mark.parametrize(
    "strings",
    [np.array([["ä"]] * 3), np.array([["ä".encode()]] * 3), np.array([["ä".encode()]] * 3, object)],
    ids=lambda strings: strings.dtype.kind,
)
def test_text_and_bytes_go_back_as_bytes(answers, strings):
    reply = answers.of(batch(lambda x: {"t": strings}), whole_batch(X), TEXT)
    assert outputs_of(reply) == {(0, WHOLE_BATCH): [["ä".encode()]] * 3}


@pytest.mark.parametrize("kind", [dict, Response, Request])
def test_responses_may_be_any_mapping(answers, kind):
    reply = answers.of(lambda requests: [kind({"y": request["x"]}) for request in requests], whole_batch(X))
    assert outputs_of(reply) == {(0, 0): [[1, 2], [3, 4]], (0, 1): [[5, 6]]}


def test_coroutines_and_generators_are_answered_likewise(answers):
    async def coroutine(requests):
        await asyncio.sleep(0)
        return [{"y": request["x"]} for request in requests]

    async def async_generator(requests):
        yield await coroutine(requests)

    def generator(requests):
        yield [{"y": request["x"]} for request in requests]

    for function in (coroutine, async_generator, generator):
        reply = answers.of(function, whole_batch(X))
        assert outputs_of(reply) == {(0, 0): [[1, 2], [3, 4]], (0, 1): [[5, 6]]}


ROWS = np.ones((3, 1), np.float32)


@pytest.mark.parametrize("returned", [{"y": ROWS.astype(float)}, {"y": ROWS, "other": ROWS}])
def test_strict_refuses_what_is_else_cast_or_dropped(answers, returned):
    function = batch(lambda x: returned)
    assert list(outputs_of(answers.of(function, whole_batch(X)))) == [(0, WHOLE_BATCH)]
    assert status_of(answers.of(function, whole_batch(X), strict=True))["message"].startswith("ValueError: output")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "ValueError: a callable returned a NoneType; return a list"),
        ([{}], "ValueError: a callable returned 1 responses to 2 requests"),
        ([{}, 3], "ValueError: response 1 is a int"),
        ([{}, {"y": [1.0]}], "ValueError: output 'y' of response 1 is a list"),
        ([{}, {"y": np.ones((2, 1))}], "ValueError: output 'y' of response 1 has 2 rows, expected 1"),
        ([{}, {"y": np.array([[b"a", 1]], object)}], "ValueError: could not convert"),
    ],
)
def test_a_wrong_answer_fails_the_batch_with_what_is_wrong(answers, returned, message):
    assert status_of(answers.of(lambda requests: returned, whole_batch(X)))["message"].startswith(message)


def test_an_exception_in_place_of_a_response_fails_that_request_alone(answers, caplog):
    reply = answers.of(lambda requests: [ValueError("not you"), {"y": requests[1]["x"]}], whole_batch(X))
    assert outputs_of(reply) == {(0, 1): [[5, 6]]}
    assert json.loads(reply.metadata) == {"errors": {"0": {"message": "ValueError: not you", "code": "INTERNAL"}}}
    assert [record.exc_info[0] for record in caplog.records] == [ValueError]


def raising(error):
    def function(requests):
        raise error

    return function


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_an_exception_becomes_an_error_with_its_name_and_text(answers, kind):
    reply = answers.of(raising(kind("no")), whole_batch(X[:1]))
    assert status_of(reply) == {"message": f"{kind.__name__}: no", "code": "INTERNAL", "isolate": False}
    assert (reply.number, reply.requests) == (7, 1)
    assert answers.stops == 0


def test_an_exception_of_merged_requests_asks_for_each_alone(answers, caplog):
    assert status_of(answers.of(raising(ValueError("no")), whole_batch(X)))["isolate"] is True
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "2 merged requests raised ValueError: no; calling again with each alone" in record.getMessage()
    assert record.exc_info is None  # the call alone will say it


def test_isolation_can_be_turned_off(answers, caplog):
    assert status_of(answers.of(raising(ValueError("no")), whole_batch(X), isolate_errors=False))["isolate"] is False
    assert [record.exc_info[0] for record in caplog.records] == [ValueError]


@pytest.mark.parametrize("wanted", [False, True])
def test_the_traceback_is_told_only_if_wanted(answers, wanted):
    message = status_of(answers.of(raising(ValueError("no")), whole_batch(X), send_traceback=wanted))["message"]
    assert message.startswith("Traceback") is wanted
    assert ("in function" in message) is wanted
    assert message.strip().endswith("ValueError: no")


def test_an_unrecoverable_error_stops_the_server_and_is_not_tried_again(answers, caplog):
    reply = answers.of(raising(PyTritonUnrecoverableError("the device is lost")), whole_batch(X))
    message = "PyTritonUnrecoverableError: the device is lost"
    assert status_of(reply) == {"message": message, "code": "INTERNAL", "isolate": False}
    assert answers.stops == 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_an_error_without_a_usable_text_is_still_an_answer(answers):
    class NastyError(Exception):
        def __str__(self):
            raise RuntimeError("no text either")

    assert status_of(answers.of(raising(NastyError()), whole_batch(X)))["message"].startswith("NastyError")


def test_a_frame_that_names_no_input_is_an_error(answers):
    reply = answers.of(raising(AssertionError("not called")), per_request({5: X[0]}))
    assert "IndexError" in status_of(reply)["message"]


def test_asyncio_works_inside_a_callable_that_is_not_async(answers):
    async def work(x):
        await asyncio.sleep(0)
        return {"y": x}

    def function(requests):
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return [asyncio.run(work(request["x"])) for request in requests]

    assert outputs_of(answers.of(function, whole_batch(X)))[0, 1] == [[5, 6]]


def test_not_a_number_and_infinity_go_back_unharmed(answers):
    (values,) = outputs_of(answers.of(batch(lambda x: {"y": x * math.nan}), whole_batch(X))).values()
    assert np.isnan(values).all()
    (values,) = outputs_of(answers.of(batch(lambda x: {"y": x * math.inf}), whole_batch(X))).values()
    assert np.isinf(values).all()


def texts_of(caplog):
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("function", [batch(lambda x, s: {"y": x}), batch(lambda x, s: {})])
def test_a_declared_output_that_is_missing_fails_the_batch(answers, caplog, function, strict):
    reply = answers.of(function, whole_batch(X, S), BOTH, strict=strict, isolate_errors=False)
    assert "but not 't'" in status_of(reply)["message"].replace("'y', 't'", "'t'")
    assert [record.exc_info[0] for record in caplog.records] == [ValueError]


@pytest.mark.parametrize("strict", [False, True])
def test_a_declared_output_that_is_missing_fails_its_request_alone(answers, caplog, strict):
    def function(requests):
        return [{"y": requests[0]["x"]}, {"y": requests[1]["x"], "t": requests[1]["s"]}]

    reply = answers.of(function, whole_batch(X, S), BOTH, strict=strict)
    assert sorted(outputs_of(reply)) == [(0, 1), (1, 1)]
    ((number, error),) = json.loads(reply.metadata)["errors"].items()
    assert number == "0"
    assert error["message"].startswith("ValueError: the callable returned 'y', but not 't'; return every output")
    assert [record.exc_info[0] for record in caplog.records] == [ValueError]


def test_an_output_that_nobody_asked_for_may_be_missing(answers, caplog):
    def function(requests):
        return [dict.fromkeys(request.requested_output_names, request["x"]) for request in requests]

    outputs = [*CONFIG.outputs, TensorSpec("z", (-1,), np.float32)]
    frame = whole_batch(X, metadata=metadata(r0=({}, ["y"]), r1=({}, ["z"])), apart=True)
    assert sorted(outputs_of(answers.of(function, frame, replace(CONFIG, outputs=outputs)))) == [(0, 0), (1, 1)]
    assert not caplog.records


def test_a_stream_lacks_no_output_either(answers):
    def function(requests):
        yield [{"y": requests[0]["x"]}]
        yield [{}]

    inference = Inference(function, replace(CONFIG, decoupled=True), Options(), answers.stop)
    answers.made.append(inference)
    first, second, *_ = [sent(*reply) for reply in inference.stream(whole_batch(X[:1]))]
    assert outputs_of(first) == {(0, 0): X[0].tolist()}
    assert "but not 'y'" in json.loads(second.metadata)["errors"]["0"]["message"]


@pytest.mark.parametrize(
    "function",
    [
        batch(lambda x: {"y": x, "other": x}),
        lambda requests: [{"y": request["x"], "other": request["x"]} for request in requests],
    ],
)
def test_an_output_that_is_not_declared_is_warned_of_once(answers, caplog, function):
    inference = Inference(function, CONFIG, Options(), answers.stop, whole_batch_form(function))
    answers.made.append(inference)
    for _ in range(3):
        assert {name for name, _ in outputs_of(sent(*inference.answer(whole_batch(X))))} == {0}
    (text,) = texts_of(caplog)
    assert text.startswith("model model: its callable returned 'other', which is not sent")


def test_failures_that_are_alike_are_counted(answers, caplog):
    def function(requests):
        raise ValueError(f"no {requests[0]['x'][0, 0]}")

    inference = Inference(function, CONFIG, Options(), answers.stop)
    for number in range(1000):
        inference.answer(whole_batch([np.full((1, 1), number, np.float32)]))
    inference.close()
    (first, last) = caplog.records
    assert first.exc_info[0] is ValueError
    assert "ValueError at " in last.getMessage()
    assert "test_inference.py:" in last.getMessage()
    assert "999 more times in the last " in last.getMessage()
    assert last.getMessage().endswith("ValueError: no 999.0")
