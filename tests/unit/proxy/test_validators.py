from __future__ import annotations

from collections import UserDict

import numpy as np
import pytest

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.types import Request, RequestBatch, Response, ResponseBatch
from pytriton.proxy.validators import TritonResultsValidator

OUTPUTS = [
    TensorSpec("y", (2, -1), np.float32),
    TensorSpec("n", (1,), np.int64),
    TensorSpec("s", (1,), np.bytes_),
    TensorSpec("each", (), np.bool_),
]
Y = np.zeros((3, 2, 5), np.float32)
X = np.zeros((3, 1))
both_modes = pytest.mark.parametrize("strict", [False, True])


def validator(strict=False, batching=True):
    return TritonResultsValidator(TritonModelConfig("model", batching=batching, outputs=OUTPUTS), strict)


def check(responses, strict=False, batching=True, requests=None):
    validator(strict, batching).validate_responses([{"x": X}] if requests is None else requests, responses)


@both_modes
@pytest.mark.parametrize("kind", [dict, UserDict, Request, Response])
@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"y": Y},
        {"n": np.zeros((3, 1), np.int64), "each": np.zeros(3, np.bool_)},
        {"s": np.array([[b"a"], [b""], [b"c"]], object)},
        {"s": np.array([["a"], ["b"], ["ü"]])},
        {"s": np.array([[b"a"], [b"b"], [b"c"]])},
    ],
)
def test_right_responses_pass(strict, kind, tensors):
    check([kind(tensors)], strict, requests=[Request({"x": X})])


@both_modes
def test_empty_object_arrays_pass(strict):
    requests = [{"x": np.zeros((0, 1))}]
    check([{"s": np.empty((0, 1), object)}], strict, requests=requests)


@both_modes
def test_an_exception_fails_its_request_alone_and_passes(strict):
    check([ValueError("no"), {"y": Y}, KeyboardInterrupt()], strict, requests=[{"x": X}] * 3)


@both_modes
@pytest.mark.parametrize(
    ("responses", "message"),
    [
        (({"y": Y},), "returned a tuple; return a list with one dict"),
        ({"y": Y}, "returned a dict; return a list"),
        (None, "returned a NoneType"),
        ([], "returned 0 responses to 1 requests; return one per request"),
        ([{"y": Y}, {"y": Y}], "returned 2 responses to 1 requests"),
        ([[Y]], "response 0 is a list; return a dict"),
        ([Y], "response 0 is a ndarray; return a dict"),
        ([{1: Y}], "response 0 has the key 1, a int; name each output with a str"),
        ([{"y": [1, 2]}], "output 'y' of response 0 is a list; return a numpy.ndarray"),
        ([{"y": np.float32(1)}], "output 'y' of response 0 is a float32; return"),
        ([{"y": Y.astype(complex)}], "output 'y' of response 0 has dtype complex128; return booleans"),
        ([{"y": Y.astype("datetime64[s]")}], "has dtype datetime64"),
        ([{"s": np.array([["a"]] * 3, object)}], "output 's' of response 0 is an object array of str; .* encode text"),
        ([{"s": np.array([[1]] * 3, object)}], "is an object array of int"),
        ([{"y": np.array(1, np.float32)}], "output 'y' of response 0 is a 0-d array; the first axis must be the batch"),
        ([{"y": Y[:2]}], "output 'y' of response 0 has 2 rows, expected 3; return one per input row"),
    ],
)
def test_wrong_responses_are_refused_in_both_modes(strict, responses, message):
    with pytest.raises(ValueError, match=message):
        check(responses, strict)


@both_modes
def test_the_message_names_the_request(strict):
    with pytest.raises(ValueError, match="output 'y' of response 1 has 3 rows, expected 1"):
        check([{"y": Y}, {"y": Y}], strict, requests=[Request({"x": X}), Request({"x": X[:1]})])


def test_undeclared_outputs_and_other_shapes_and_dtypes_pass_unless_strict():
    check([{"y": np.zeros((3, 9)), "n": np.zeros((3, 7), np.float64), "more": np.zeros(1)}])
    check([{"more": np.array(0)}])


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"more": Y},
            r"output 'more' of response 0 is not declared; the model's outputs are \['y', 'n', 's', 'each'\]",
        ),
        ({"y": Y.astype(np.float64)}, "output 'y' of response 0 has dtype float64, expected float32; convert it"),
        ({"y": np.array([[[b"a"]]] * 3)}, "has dtype .S1, expected float32"),
        ({"n": np.zeros((3, 1), np.int32)}, "output 'n' of response 0 has dtype int32, expected int64"),
        ({"s": np.zeros((3, 1))}, "output 's' of response 0 has dtype float64, expected bytes"),
        ({"y": Y[:, :, 0]}, r"output 'y' of response 0 has shape \(3, 2\), expected \(-1, 2, -1\); -1 is any size"),
        ({"y": Y[:, :1]}, r"has shape \(3, 1, 5\), expected \(-1, 2, -1\)"),
        ({"each": np.zeros((3, 1), np.bool_)}, r"has shape \(3, 1\), expected \(-1,\)"),
    ],
)
def test_strict_refuses_what_differs_from_the_declaration(tensors, message):
    with pytest.raises(ValueError, match=message):
        check([tensors], strict=True)


def test_strict_accepts_another_byte_order():
    check([{"y": Y.astype(">f4")}], strict=True)


@both_modes
def test_without_batching_there_is_no_batch_axis(strict):
    check([{"y": Y[0], "each": np.array(True)}], strict, batching=False)


def test_strict_without_batching_compares_the_whole_shape():
    with pytest.raises(ValueError, match=r"has shape \(3, 2, 5\), expected \(2, -1\)"):
        check([{"y": Y}], strict=True, batching=False)


@pytest.mark.parametrize("request_", [{}, {"x": np.array(1)}, Request()])
def test_rows_are_not_compared_where_the_request_does_not_tell(request_):
    check([{"y": Y}], requests=[request_])


def block(*rows):
    return RequestBatch({"x": np.zeros((sum(rows), 1))}, rows, [Request() for _ in rows])


@both_modes
def test_whole_batch_outputs_are_checked_without_looking_into_the_requests(strict):
    requests = block(2, 1)
    check(ResponseBatch({"y": Y}, requests.rows), strict, requests=requests)
    assert requests.columns() is not None
    with pytest.raises(ValueError, match="output 'y' of response 0 is an object array of int"):
        check(ResponseBatch({"y": np.ones((3, 1), object)}, [2, 1]), strict, requests=requests)


def test_whole_batch_outputs_cut_by_other_rows_are_refused():
    with pytest.raises(ValueError, match="output 'y' of response 0 has 1 rows, expected 2"):
        check(ResponseBatch({"y": Y}, [1, 2]), requests=block(2, 1))


def test_whole_batch_outputs_that_were_changed_are_checked_one_by_one():
    responses = ResponseBatch({"y": Y}, [2, 1])
    responses[1]["y"] = Y
    with pytest.raises(ValueError, match="output 'y' of response 1 has 3 rows, expected 1"):
        check(responses, requests=[{"x": X[:2]}, {"x": X[:1]}])


def test_an_output_must_have_the_rows_that_are_expected():
    validator().validate_output("y", Y, 3, "the batch")
    with pytest.raises(ValueError, match="output 'y' of the batch has 3 rows, expected 4"):
        validator().validate_output("y", Y, 4, "the batch")
    with pytest.raises(ValueError, match="output 'y' of the batch has shape"):
        validator(strict=True).validate_output("y", Y[:, :1], 3, "the batch")


def test_object_arrays_of_text_pass_where_they_are_encoded():
    text, numbers = np.array([["a"], [b"b"], ["c"]], object), np.array([[1]] * 3, object)
    config = TritonModelConfig("m", outputs=[TensorSpec("s", (1,), np.bytes_)])
    for strict in (False, True):
        validator = TritonResultsValidator(config, strict, encodes_text=True)
        validator.validate_responses([{"x": Y}], [{"s": text}])
        with pytest.raises(ValueError, match="is an object array of int"):
            validator.validate_responses([{"x": Y}], [{"s": numbers}])
