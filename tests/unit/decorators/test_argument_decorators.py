from __future__ import annotations

from collections import UserDict

import numpy as np
import pytest

from pytriton.decorators import batch, fill_optionals, first_value
from pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError, PyTritonValidationError
from pytriton.proxy.types import Request, RequestBatch

A = np.arange(12, dtype=np.float32).reshape(3, 4)
INPUTS = {"a": ((4,), np.float32), "b": ((1,), np.float32), "n": ((-1, 2), np.int32), "s": ((1,), np.bytes_)}


def echo(requests):
    return requests


def filled(bind, target=echo, batching=True, **defaults):
    decorated = fill_optionals(**defaults)(target)
    bind(decorated, INPUTS, batching=batching)
    return decorated


# fill_optionals


@pytest.mark.parametrize("kind", [dict, UserDict, Request])
def test_fill_optionals_repeats_the_default_for_each_row(bind, kind):
    given = [kind({"a": A}), kind({"a": A[:1], "b": A[:1, :1]})]
    first, second = filled(bind, b=np.array([7], np.float32))(given)
    assert first["b"].tolist() == [[7], [7], [7]]
    assert first["b"].dtype == np.float32
    assert first["b"].flags.writeable
    assert second is given[1]
    assert "b" not in given[0]


def test_fill_optionals_gives_the_default_as_it_is_without_batching(bind):
    default = np.array([7], np.float32)
    [request] = filled(bind, b=default, batching=False)([{"a": A[0]}])
    assert request["b"].tolist() == [7]
    request["b"][0] = 8
    assert default.tolist() == [7]


def test_fill_optionals_keeps_what_else_belongs_to_a_request(bind):
    request = Request({"a": A}, {"key": 1}, "span", ["o"])
    [result] = filled(bind, b=np.zeros(1, np.float32))([request])
    assert (result.parameters, result.span, result.requested_output_names) == ({"key": 1}, "span", ["o"])


def test_fill_optionals_leaves_a_block_that_lacks_nothing_alone(bind):
    requests = RequestBatch({"a": A}, [2, 1], [Request(), Request()])
    assert filled(bind, a=np.zeros(4, np.float32))(requests) is requests
    assert requests.columns()["a"] is A


def test_fill_optionals_fills_a_block_as_one(bind):
    requests = RequestBatch({"a": A}, [2, 1], [Request(), Request()])
    result = filled(bind, b=np.array([7], np.float32))(requests)
    assert result.columns()["a"] is A
    assert result.columns()["b"].tolist() == [[7], [7], [7]]
    assert [request["b"].tolist() for request in result] == [[[7], [7]], [[7]]]


def test_fill_optionals_fills_a_block_whose_requests_were_changed(bind):
    requests = RequestBatch({"a": A}, [2, 1], [Request(), Request()])
    requests[0]["b"] = A[:2, :1]
    result = filled(bind, b=np.array([7], np.float32))(requests)
    assert [request["b"].tolist() for request in result] == [[[0], [4]], [[7]]]


@pytest.mark.parametrize("default", [np.array([b"text"]), np.array([b"text"], object)])
@pytest.mark.parametrize("declared", [np.bytes_, np.object_])
def test_fill_optionals_treats_bytes_and_objects_as_equal(bind, default, declared):
    decorated = fill_optionals(s=default)(echo)
    bind(decorated, {"a": ((4,), np.float32), "s": ((1,), declared)})
    [request] = decorated([{"a": A}])
    assert request["s"].tolist() == [[b"text"]] * 3
    assert request["s"].dtype == object


@pytest.mark.parametrize("shape", [(0, 2), (3, 2)])
def test_fill_optionals_accepts_any_size_of_a_free_dimension(bind, shape):
    [request] = filled(bind, n=np.zeros(shape, np.int32))([{"a": A}])
    assert request["n"].shape == (3, *shape)


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"z": np.zeros(1)}, r"default for 'z'; model 'model' has inputs \['a', 'b', 'n', 's'\]"),
        ({"b": [1.0]}, "default of input 'b' is a list; give a numpy.ndarray"),
        ({"b": np.zeros(1)}, "default of input 'b' has dtype float64, expected float32"),
        ({"b": np.array([b"x"])}, "default of input 'b' has dtype"),
        ({"s": np.array(["x"])}, "default of input 's' has dtype"),
        ({"b": np.zeros(2, np.float32)}, r"default of input 'b' has shape \(2,\), expected \(1,\)"),
        ({"b": np.zeros((1, 1), np.float32)}, r"default of input 'b' has shape \(1, 1\)"),
        ({"n": np.zeros((3, 3), np.int32)}, r"default of input 'n' has shape \(3, 3\), expected \(-1, 2\)"),
    ],
)
def test_fill_optionals_refuses_defaults_that_do_not_match_the_signature(bind, defaults, message):
    decorated = filled(bind, **defaults)
    for _ in range(2):
        with pytest.raises(PyTritonBadParameterError, match=message):
            decorated([{"a": A, **defaults}])


def test_fill_optionals_checks_its_defaults_again_for_another_model(bind):
    decorated = filled(bind, b=np.zeros(1, np.float32))
    decorated([{"a": A}])
    bind(decorated, {"a": ((4,), np.float32)})
    with pytest.raises(PyTritonBadParameterError, match="default for 'b'"):
        decorated([{"a": A}])


def test_fill_optionals_cannot_fill_a_request_without_inputs(bind):
    with pytest.raises(PyTritonValidationError, match="no inputs"):
        filled(bind, b=np.zeros(1, np.float32))([{}])


def test_fill_optionals_refuses_to_be_called_without_requests(bind):
    with pytest.raises(PyTritonRuntimeError, match="@fill_optionals needs the list of requests"):
        filled(bind, b=np.zeros(1, np.float32))(a=A)


def test_fill_optionals_passes_other_arguments_through(bind):
    decorated = filled(bind, lambda requests, extra, *, scale: (extra, scale))
    assert decorated([{"a": A}], "x", scale=2) == ("x", 2)


# first_value


def first(bind, *keys, inputs, **options):
    decorated = first_value(*keys, **options)(lambda **kwargs: kwargs)
    bind(decorated, INPUTS)
    return decorated(**inputs)


def test_first_value_is_a_numpy_scalar_where_an_element_is_single(bind):
    result = first(bind, "t", inputs={"t": np.full((4, 1), 0.7, np.float32), "a": A})
    assert result["t"] == np.float32(0.7)
    assert type(result["t"]) is np.float32
    assert result["a"] is A


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (np.array([3, 3]), 3),
        (np.full((2, 1, 1), 3), 3),
        (np.array([[b"x"], [b"x"]], object), b"x"),
        (np.array([[b"x"], [b"x"]]), b"x"),
        (np.array([b"x", b"x"], object), b"x"),
    ],
)
def test_first_value_squeezes_elements_of_size_one(bind, array, value):
    result = first(bind, "t", inputs={"t": array})["t"]
    assert result == value
    assert not isinstance(result, np.ndarray)
    assert isinstance(result, bytes) == isinstance(value, bytes)


def test_first_value_keeps_arrays(bind):
    assert first(bind, "a", inputs={"a": A}, strict=False)["a"].tolist() == A[0].tolist()
    assert first(bind, "t", inputs={"t": A[:, :1]}, strict=False, squeeze_single_values=False)["t"].shape == (1,)


def test_first_value_refuses_different_values_if_strict(bind):
    with pytest.raises(PyTritonRuntimeError, match=r"different values of input 'a'; put @group_by_values\('a'\)"):
        first(bind, "a", inputs={"a": A})


def test_first_value_of_a_single_row_is_never_different(bind):
    assert np.isnan(first(bind, "t", inputs={"t": np.array([[np.nan]])})["t"])


def test_first_value_skips_missing_inputs(bind):
    assert first(bind, "t", inputs={"a": A}) == {"a": A}


def test_first_value_can_be_stacked(bind):
    decorated = first_value("t")(first_value("u")(lambda **kwargs: kwargs))
    bind(decorated, INPUTS)
    assert decorated(t=np.array([[1]]), u=np.array([[2]])) == {"t": 1, "u": 2}
    assert decorated(t=np.array([[1]])) == {"t": 1}


@pytest.mark.parametrize("kind", [dict, UserDict, Request])
def test_first_value_reduces_each_request_of_a_list(bind, kind):
    decorated = first_value("t")(echo)
    bind(decorated, INPUTS)
    given = [kind({"t": np.full((count, 1), count), "a": A}) for count in (2, 3)]
    results = decorated(given)
    assert [result["t"] for result in results] == [2, 3]
    assert all(result["a"] is A for result in results)
    assert given[0]["t"].shape == (2, 1)


def test_first_value_above_batch_makes_inputs_that_batch_refuses(bind):
    decorated = first_value("t")(batch(lambda **inputs: inputs))
    bind(decorated, INPUTS)
    with pytest.raises(PyTritonValidationError, match="input 't' is a int64; pass a"):
        decorated([{"a": A[:1], "t": np.array([[1]])}])


@pytest.mark.parametrize("value", [np.array(1), np.empty((0, 1)), [1], np.empty((0, 1), object)])
def test_first_value_needs_a_row(bind, value):
    with pytest.raises(PyTritonRuntimeError, match="needs at least one row of input 't', got"):
        first(bind, "t", inputs={"a": A, "t": value})


def test_first_value_needs_a_model_with_batching(bind):
    decorated = first_value("t")(lambda **kwargs: kwargs)
    bind(decorated, INPUTS, batching=False)
    with pytest.raises(PyTritonRuntimeError, match="needs a model with batching; 'model' has none"):
        decorated(t=A)


@pytest.mark.parametrize("name", ["triton_context", "__triton_context__"])
def test_first_value_refuses_reserved_names_at_decoration(name):
    with pytest.raises(PyTritonBadParameterError, match=f"reserved key name: '{name}' is not allowed"):
        first_value("a", name)
