from __future__ import annotations

import asyncio
from collections import UserDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.decorators import batch, convert_output, get_inference_request_batch_size, pad_batch, sample
from pytriton.decorators.batching import whole_batch_form
from pytriton.exceptions import PyTritonRuntimeError, PyTritonValidationError
from pytriton.model_config import DynamicBatcher
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.types import Request, RequestBatch, Response, ResponseBatch

A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = np.arange(8, 12, dtype=np.float32).reshape(1, 4)


def recorder(returns):
    """A function that keeps its calls; ``returns`` makes the result from the keyword arguments."""

    def function(*args, **kwargs):
        function.calls.append((args, kwargs))
        return returns(**kwargs)

    function.calls = []
    return function


def columns(rows, **inputs):
    return RequestBatch(inputs, rows, [Request() for _ in rows])


# batch


def test_batch_joins_the_inputs_and_splits_the_outputs():
    function = recorder(lambda a: {"o": np.hstack([a, a])[:, :7]})
    results = batch(function)([Request({"a": A}), Request({"a": B})])
    [(args, kwargs)] = function.calls
    assert args == ()
    assert kwargs["a"].tolist() == [*A.tolist(), *B.tolist()]
    assert [result["o"].shape for result in results] == [(2, 7), (1, 7)]
    assert results[1]["o"].tolist() == [[8, 9, 10, 11, 8, 9, 10]]


@pytest.mark.parametrize("request_type", [dict, UserDict, Request, Response])
def test_batch_takes_any_mapping_as_a_request(request_type):
    results = batch(lambda a: {"o": a})([request_type({"a": A}), request_type({"a": B})])
    assert [result["o"].tolist() for result in results] == [A.tolist(), B.tolist()]


def test_batch_hands_over_one_block_without_copying():
    whole = np.zeros((3, 4), np.float32)
    function = recorder(lambda a: {"o": a})
    results = batch(function)(columns([2, 1], a=whole))
    assert function.calls[0][1]["a"] is whole
    assert isinstance(results, ResponseBatch)
    assert results.columns()["o"] is whole
    assert [result["o"].shape for result in results] == [(2, 4), (1, 4)]


class Model:
    @batch
    def method(self, a):
        return {"o": a * self.factor}

    __call__ = method
    factor = 3


class Plain:
    def __call__(self, requests):
        return requests


@pytest.mark.parametrize(
    ("function", "has"),
    [
        (batch(lambda a: {"o": a * 3}), True),
        (Model().method, True),
        (Model(), True),
        (lambda requests: requests, False),
        (sample(lambda a: {"o": a}), False),
        (sample(batch(lambda a: {"o": a})), False),
        (Plain(), False),
        (Model, False),
    ],
)
def test_only_a_callable_with_batch_outermost_has_a_whole_batch_form(function, has):
    form = whole_batch_form(function)
    assert (form is not None) is has
    if form:
        outputs = form({"a": A})
        assert list(outputs) == ["o"]
        assert np.array_equal(outputs["o"], 3 * A)


def test_batch_uses_what_was_changed_in_a_block():
    requests = columns([1, 1], a=np.zeros((2, 1)))
    requests[1]["a"] = np.ones((3, 1))
    results = batch(lambda a: {"o": a})(requests)
    assert [result["o"].tolist() for result in results] == [[[0]], [[1], [1], [1]]]


def test_batch_does_not_copy_the_inputs_of_a_single_request():
    function = recorder(lambda a: {"o": a})
    batch(function)([{"a": A}])
    assert function.calls[0][1]["a"] is A


def test_batch_passes_other_arguments_through():
    function = recorder(lambda a, extra: {"o": a})
    batch(function)([{"a": A}], "positional", extra="keyword")
    [(args, kwargs)] = function.calls
    assert args == ("positional",)
    assert kwargs["extra"] == "keyword"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.sampled_from([np.float32, np.int8, np.bool_, object]))
def test_batch_gives_each_request_its_own_rows_back(rows, dtype):
    requests = [{"a": np.full((count, 2), b"x" if dtype is object else i, dtype)} for i, count in enumerate(rows)]
    for request, result in zip(requests, batch(lambda a: {"o": a})(requests), strict=True):
        assert result["o"].dtype == request["a"].dtype
        assert result["o"].tolist() == request["a"].tolist()


@pytest.mark.parametrize("sequence", [list, tuple])
def test_batch_names_the_arrays_of_a_list_or_tuple_by_the_models_outputs(bind, sequence):
    function = batch(lambda a: sequence([a, a + 1]))
    bind(function, outputs={"same": ((4,), np.float32), "next": ((4,), np.float32)})
    [result] = function([{"a": A}])
    assert result["same"].tolist() == A.tolist()
    assert result["next"].tolist() == (A + 1).tolist()


def test_batch_refuses_a_list_of_another_length_than_the_models_outputs(bind):
    function = batch(lambda a: [a, a])
    bind(function, outputs={"o": ((4,), np.float32)})
    with pytest.raises(PyTritonValidationError, match=r"returned 2 outputs, model 'model' has 1: \['o'\]"):
        function([{"a": A}])


@pytest.mark.parametrize("outputs", [None, 3, "text", A, {A.shape}])
def test_batch_refuses_results_that_are_neither_mapping_nor_list(outputs):
    with pytest.raises(PyTritonValidationError, match=f"returned a {type(outputs).__name__}; return a dict"):
        batch(lambda a: outputs)([{"a": A}])


def test_batch_refuses_outputs_with_another_number_of_rows():
    with pytest.raises(ValueError, match="output 'o' has 2 rows, expected 3; return one per input row"):
        batch(lambda a: {"ok": a, "o": a[:2]})([{"a": A}, {"a": B}])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([1, 2], "output 'o' is a list; return a numpy.ndarray"),
        (np.float32(1), "output 'o' is a float32; return"),
        (np.array(1), "output 'o' is a 0-d array, expected 2 rows"),
    ],
)
def test_batch_refuses_outputs_without_a_batch_axis(output, message):
    with pytest.raises(ValueError, match=message):
        batch(lambda a: {"o": output})([{"a": A}])


def test_batch_refuses_requests_with_different_inputs():
    with pytest.raises(PyTritonValidationError, match=r"request 0 has \['a'\], request 1 has \['a', 'b'\]; put @group"):
        batch(lambda **inputs: inputs)([{"a": A}, {"a": A, "b": A}])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "no inputs"),
        ({"a": np.array(1)}, "input 'a' is a 0-d array"),
        ({"a": [1]}, "input 'a' is a list"),
        ({"a": A, "b": B}, "request 0 has 2 rows, but its input 'b' has 1"),
        (A, "a request is a ndarray"),
    ],
)
def test_batch_refuses_requests_whose_rows_are_unclear(request_, message):
    with pytest.raises(PyTritonValidationError, match=message):
        batch(lambda **inputs: inputs)([request_, request_])


def test_batch_refuses_inputs_that_cannot_be_joined():
    with pytest.raises(PyTritonValidationError, match=r"input 'a' cannot be joined.*\(2, 4\), \(1, 3\)"):
        batch(lambda a: {"o": a})([{"a": A}, {"a": B[:, :3]}])


def test_batch_refuses_an_empty_list():
    with pytest.raises(PyTritonValidationError, match="empty list"):
        batch(lambda **inputs: inputs)([])


@pytest.mark.parametrize("decorate", [batch, sample])
def test_batch_and_sample_refuse_to_be_called_without_requests(decorate):
    with pytest.raises(PyTritonRuntimeError, match=f"@{decorate.__name__} needs the list of requests"):
        decorate(lambda **inputs: inputs)(a=A)


def test_batch_keeps_empty_strings_and_requests_without_rows():
    empty, none = np.empty((2, 0), object), np.empty((0, 4), np.float32)
    assert batch(lambda a: {"o": a})([{"a": empty}, {"a": empty}])[0]["o"].shape == (2, 0)
    assert [r["o"].shape for r in batch(lambda a: {"o": a})([{"a": none}, {"a": A}])] == [(0, 4), (2, 4)]


def test_batch_works_on_a_coroutine_function():
    @batch
    async def function(a):
        await asyncio.sleep(0)
        return {"o": a}

    assert [result["o"].tolist() for result in asyncio.run(function([{"a": A}, {"a": B}]))] == [A.tolist(), B.tolist()]


def test_batch_cuts_each_value_of_a_generator():
    @batch
    def function(a):
        yield {"o": a}
        yield {"o": a[:1]}

    results = function([{"a": A}])
    assert next(results)[0]["o"].tolist() == A.tolist()
    with pytest.raises(ValueError, match="output 'o' has 1 rows, expected 2"):
        next(results)


# sample


@pytest.mark.parametrize("returns", [lambda a: {"o": a}, lambda a: [a], lambda a: (a,)])
def test_sample_takes_the_first_request_without_a_batch_axis(bind, returns):
    function = recorder(returns)
    decorated = sample(function)
    bind(decorated, outputs={"o": ((4,), np.float32)}, batching=False)
    row = A[0]
    assert decorated([Request({"a": row}), Request({"a": B})]) == [{"o": row}]
    assert function.calls[0][1]["a"] is row


def test_sample_passes_other_arguments_through():
    function = recorder(lambda a, extra: {"o": a})
    sample(function)([{"a": A[0]}], "positional", extra="keyword")
    [(args, kwargs)] = function.calls
    assert args == ("positional",)
    assert kwargs["extra"] == "keyword"


# pad_batch


def padded(bind, returns, sizes=(4, 2), largest=8):
    function = recorder(returns)
    decorated = batch(pad_batch(function))
    bind(decorated, max_batch_size=largest, batcher=sizes and DynamicBatcher(preferred_batch_size=list(sizes)))
    return function, decorated


def test_pad_batch_output_is_trimmed_to_the_original_rows(bind):
    function, decorated = padded(bind, lambda a: {"o": a * 2})
    results = decorated([{"a": A}, {"a": B}])
    assert function.calls[0][1]["a"].tolist() == [*A.tolist(), *B.tolist(), *B.tolist()]
    assert [result["o"].tolist() for result in results] == [(A * 2).tolist(), (B * 2).tolist()]


@pytest.mark.parametrize(
    ("rows", "sizes", "called"),
    [
        (1, (4, 2), 2),
        (2, (4, 2), 2),
        (3, (4, 2), 4),
        (5, (4, 2), 8),
        (8, (4, 2), 8),
        (3, (), 8),
        (3, None, 8),
        (3, (16,), 8),
    ],
)
def test_pad_batch_fills_up_to_the_smallest_size_that_fits(bind, rows, sizes, called):
    function, decorated = padded(bind, lambda a: {"o": a}, sizes)
    [result] = decorated([{"a": np.arange(rows)}])
    assert len(function.calls[0][1]["a"]) == called
    assert result["o"].tolist() == list(range(rows))


def test_batch_larger_than_every_size_passes_unpadded(bind):
    function, decorated = padded(bind, lambda a: {"o": a})
    [result] = decorated([{"a": np.arange(9)}])
    assert len(function.calls[0][1]["a"]) == len(result["o"]) == 9


def test_pad_batch_trims_lists_and_leaves_other_keywords_alone(bind):
    function = recorder(lambda a, scale: [a * scale])
    decorated = pad_batch(function)
    bind(decorated, max_batch_size=4)
    for scale in (np.float32(3), np.array(3.0), 3):
        assert decorated(a=np.arange(3), scale=scale)["y"].tolist() == [0, 3, 6]
        assert function.calls[-1][1]["scale"] is scale


def test_pad_batch_above_batch_pads_requests_to_the_longest():
    seen = []

    @pad_batch
    @batch
    def lengths(ids, text):
        seen.append((ids.tolist(), text.tolist()))
        return {"y": (ids != 0).sum(axis=1, keepdims=True)}

    ids = [np.array([[1, 2]]), np.array([[3, 4, 5], [6, 7, 0]]), np.array([[8]])]
    text = [np.array([[b"a"]], object), np.array([[b"b", b"c"], [b"d", b"e"]], object), np.array([[b"f"]], object)]
    answers = lengths([Request({"ids": i, "text": t}, {}) for i, t in zip(ids, text, strict=True)])
    assert [answer["y"].tolist() for answer in answers] == [[[2]], [[3], [2]], [[1]]]
    assert seen == [
        (
            [[1, 2, 0], [3, 4, 5], [6, 7, 0], [8, 0, 0]],
            [[b"a", b""], [b"b", b"c"], [b"d", b"e"], [b"f", b""]],
        )
    ]
    assert ids[0].shape == (1, 2)


def test_pad_batch_above_batch_does_not_copy_requests_of_equal_shapes():
    @pad_batch
    def same(requests):
        return requests

    requests = [Request({"x": np.ones((1, 3))}, {}), Request({"x": np.ones((2, 3))}, {})]
    assert all(each is request for each, request in zip(same(requests), requests, strict=True))


def test_pad_batch_repeats_strings(bind):
    function, decorated = padded(bind, lambda a: {"o": a})
    [result] = decorated([{"a": np.array([[b"p"], [b"q"], [b""]], object)}])
    assert function.calls[0][1]["a"].tolist() == [[b"p"], [b"q"], [b""], [b""]]
    assert result["o"].tolist() == [[b"p"], [b"q"], [b""]]


def test_pad_batch_refuses_a_batch_without_rows(bind):
    _, decorated = padded(bind, lambda a: {"o": a})
    with pytest.raises(PyTritonValidationError, match="without rows"):
        decorated([{"a": np.empty((0, 4))}])


def test_pad_batch_refuses_outputs_that_lack_the_padded_rows(bind):
    _, decorated = padded(bind, lambda a: {"o": a[:3]})
    with pytest.raises(ValueError, match="output 'o' has 3 rows, expected 4"):
        decorated([{"a": np.arange(3)}])


def test_pad_batch_without_requests_and_arrays_is_misuse(bind):
    decorated = pad_batch(lambda requests: requests)
    bind(decorated)
    with pytest.raises(PyTritonRuntimeError, match="@pad_batch got no keyword arrays; put it below @batch"):
        decorated(requests={"a": A})


def test_pad_batch_refuses_inputs_of_different_sizes(bind):
    decorated = pad_batch(lambda **inputs: inputs)
    bind(decorated)
    with pytest.raises(PyTritonRuntimeError, match=r"different batch sizes \{'a': 2, 'b': 1\}"):
        decorated(a=A, b=B)


# what they are made of


def test_batch_size_is_the_first_dimension_of_the_first_input():
    assert get_inference_request_batch_size(Request({"a": A, "b": B})) == 2
    assert get_inference_request_batch_size({"b": B, "a": A}) == 1


def test_convert_output_names_lists_by_the_given_configuration():
    config = TritonModelConfig("m", outputs=[TensorSpec("o", (4,), np.float32), TensorSpec("p", (4,), np.float32)])
    assert convert_output([A, B], model_config=config) == {"o": A, "p": B}
    assert convert_output(Response({"o": A})) == {"o": A}
    with pytest.raises(PyTritonValidationError, match="not bound to a model"):
        convert_output([A, B])
