"""Batches beyond the model's maximum, sent in parts, on a scripted server."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.client.arguments import RequestOptions
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientTimeoutError,
)
from pytriton.client.sync import drive
from pytriton.model_config.triton_model_config import TensorSpec
from tests.unit.scripted import Result, Script, config, echo, infer, session

SPLIT = RequestOptions(split_batches=True)
NUMBERS, TEXTS = TensorSpec("x", (2,), np.float32), TensorSpec("t", (-1,), bytes)


def model(max_batch_size=4, **changes):
    specs = {"inputs": [NUMBERS, TEXTS], "outputs": [NUMBERS, TEXTS], **changes}
    return session(config(max_batch_size=max_batch_size, **specs), True)


def batch(rows):
    texts = np.array([[b"%d" % row] for row in range(rows)], dtype=object)
    return {"x": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2), "t": texts}


@given(rows=st.integers(1, 40), size=st.integers(1, 9))
def test_parts_are_as_few_as_possible_and_their_answers_are_joined_in_order(rows, size):
    server, inputs = Script(infer=echo), batch(rows)
    outputs = drive(infer(model(size), **inputs, sample=False, options=SPLIT), server)
    assert [call.arguments["inputs"][0].shape[0] for call in server.calls] == [
        min(size, rows - start) for start in range(0, rows, size)
    ]
    for name, array in inputs.items():
        assert outputs[name].dtype == array.dtype
        assert outputs[name].tolist() == array.tolist()


def test_parts_are_views_of_the_callers_arrays():
    inputs = batch(10)
    server = Script(infer=echo)
    drive(infer(model(), **inputs, sample=False, options=SPLIT), server)
    for call in server.calls:
        for tensor in call.arguments["inputs"]:
            assert np.shares_memory(tensor.array, inputs[tensor.name])


def test_parts_have_the_same_parameters_and_headers_but_ids_of_their_own():
    server = Script(infer=echo)
    conversation = infer(model(), **batch(8), sample=False, options=SPLIT, parameters={"p": 1}, headers={"h": 2})
    drive(conversation, server)
    assert [call.arguments["parameters"] for call in server.calls] == [{"p": 1}] * 2
    assert [call.headers for call in server.calls] == [{"h": "2"}] * 2
    assert [call.arguments["request_id"] for call in server.calls] == ["0", "1"]


def test_timeout_bounds_each_part():
    server = Script(infer=echo)
    options = RequestOptions(split_batches=True, inference_timeout_s=2)
    drive(infer(model(), **batch(8), sample=False, options=options), server)
    assert [call.timeout_s for call in server.calls] == [2, 2]


def test_large_batch_is_refused_without_the_option_which_the_text_names():
    with pytest.raises(PyTritonClientInputError, match=r"batch-size must be <= 4 .*with_options\(split_batches=True\)"):
        drive(infer(model(), **batch(5), sample=False), Script())


def test_sample_is_never_split():
    server = Script(infer=echo)
    rows = {"x": np.zeros(2, np.float32), "t": np.array([b"a"] * 9, object)}
    drive(infer(model(), **rows, options=SPLIT), server)
    assert [call.arguments["inputs"][1].shape for call in server.calls] == [(1, 9)]


@pytest.mark.parametrize("error", [PyTritonClientConnectionError, PyTritonClientTimeoutError])
def test_error_says_which_rows_failed_and_stays_what_it_is(error):
    server = Script(echo, error("it broke"))
    with pytest.raises(error, match=r"^rows 4 to 7 of the split batch of 9 failed: it broke$") as caught:
        drive(infer(model(), **batch(9), sample=False, options=SPLIT), server)
    assert type(caught.value) is error
    assert isinstance(caught.value.__cause__, PyTritonClientError)
    assert server.answers == []


def test_client_that_was_closed_meanwhile_sends_no_further_part():
    client = model()

    def close_and_answer(call):
        client.close()
        return echo(call)

    server = Script(infer=close_and_answer)
    with pytest.raises(PyTritonClientClosedError, match="rows 4 to 7"):
        drive(infer(client, **batch(9), sample=False, options=SPLIT), server)
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"x": batch(8)["x"]},
        {"t": np.array([[b"a"]] * 8 + [["text"]], dtype=object)},
        {"x": batch(9)["x"].astype(int)},
        {"x": np.zeros((9, 3), np.float32)},
        {"x": np.zeros((0, 2), np.float32), "t": np.zeros((0, 1), "S1")},
    ],
    ids=["rows", "text at the end", "dtype", "shape", "no rows"],
)
def test_whole_batch_is_checked_before_its_first_part_is_sent(wrong):
    with pytest.raises(PyTritonClientInputError):
        drive(infer(model(), **{**batch(9), **wrong}, sample=False, options=SPLIT), Script())


def result(rows, *shape):
    return Result(x=np.zeros((rows, *shape), np.float32))


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([result(4, 2), result(3, 2)], r"\(4, 2\), \(3, 2\) .* one row per row"),
        ([result(4, 2), result(2, 3)], r"\(4, 2\), \(2, 3\) .* rows alone"),
        ([result(4, 2), Result(t=np.zeros((2, 1), object))], "one row per row"),
        ([result(4), Result(x=np.zeros((), np.float32))], "one row per row"),
    ],
    ids=["rows", "shape", "missing", "no axis"],
)
def test_answers_that_do_not_fit_each_other_are_a_server_error(answers, reason):
    with pytest.raises(PyTritonClientInferenceServerError, match=reason):
        drive(infer(model(), **batch(6), sample=False, options=SPLIT), Script(*answers))


def test_output_that_no_part_had_stays_absent():
    answers = [result(4, 2), result(2, 2)]
    outputs = drive(infer(model(), **batch(6), sample=False, options=SPLIT), Script(*answers))
    assert {name: array.shape for name, array in outputs.items()} == {"x": (6, 2)}
