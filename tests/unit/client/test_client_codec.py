"""Checking and encoding of inputs, decoding of outputs, in the bytes of both protocols."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tritonclient.grpc import service_pb2

from pytriton.client.codec import Codec
from pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientValueError,
)
from pytriton.client.tensors import HEADER_LENGTH, InferResponse, OutputRequest
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

BOTH = pytest.mark.parametrize("scheme", ["http", "grpc"])
NUMBERS = [
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64,
]  # fmt: skip
F32 = np.float32


def codec(*inputs, outputs=(), max_batch_size=4, decoupled=False):
    config = TritonModelConfig(
        model_name="m",
        batching=max_batch_size > 0,
        max_batch_size=max_batch_size,
        decoupled=decoupled,
        inputs=[TensorSpec(*spec) for spec in inputs],
        outputs=[TensorSpec(*spec) for spec in outputs],
    )
    return Codec(config)


def echo(scheme, tensors):
    """The response of a model that returns its inputs, as the server would send it."""
    contents = [bytes(tensor.data()) for tensor in tensors]
    if scheme == "http":
        outputs = [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": tensor.shape,
                "parameters": {"binary_data_size": len(content)},
            }
            for tensor, content in zip(tensors, contents, strict=True)
        ]
        header = json.dumps({"outputs": outputs}).encode()
        return InferResponse.from_http(header + b"".join(contents), {HEADER_LENGTH: str(len(header))})
    message = service_pb2.ModelInferResponse(raw_output_contents=contents)
    for tensor in tensors:
        message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    return InferResponse.from_grpc(message)


def assert_same(array, expected):
    assert array.shape == expected.shape
    if expected.dtype.kind == "S":
        expected = expected.astype(object)
    assert array.dtype == expected.dtype
    if expected.dtype == object:
        assert array.tolist() == expected.tolist()
        assert all(type(item) is bytes for item in array.ravel())
    else:
        assert array.tobytes() == expected.tobytes()  # NaNs too


texts = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"\0", b"a\0b\0", "žluťoučký".encode(), b"\xff\xfe"]))
shapes = hnp.array_shapes(min_dims=1, max_dims=6, min_side=0, max_side=3)


@st.composite
def object_arrays(draw):
    shape = draw(shapes)
    array = np.empty(shape, dtype=object)
    for index in np.ndindex(*shape):
        array[index] = draw(texts)
    return array


any_array = st.one_of(
    st.sampled_from(NUMBERS).flatmap(lambda dtype: hnp.arrays(dtype, shapes)),
    hnp.arrays(st.sampled_from(["S1", "S5"]), shapes),
    object_arrays(),
)


@BOTH
@given(array=any_array, named=st.data())
def test_every_type_and_shape_comes_back_as_it_was_sent(scheme, array, named):
    dims = tuple(named.draw(st.sampled_from([-1, size])) if size else -1 for size in array.shape)
    spec = ("x", dims, array.dtype.type)
    plain = codec(spec, outputs=[spec], max_batch_size=0)
    assert_same(plain.decode(echo(scheme, plain.encode({"x": array}, sample=True)), sample=True)["x"], array)


@BOTH
@given(array=any_array)
def test_sample_travels_as_a_batch_of_one_and_comes_back_without_it(scheme, array):
    spec = ("x", (-1,) * array.ndim, array.dtype.type)
    batching = codec(spec, outputs=[spec])
    tensors = batching.encode({"x": array}, sample=True)
    assert list(tensors[0].shape) == [1, *array.shape]
    assert_same(batching.decode(echo(scheme, tensors), sample=True)["x"], array)


@BOTH
def test_strided_batch_is_sent_in_c_order(scheme):
    spec = ("x", (3, 2), np.int64)
    batching = codec(spec, outputs=[spec])
    batch = np.arange(24).reshape(2, 3, 4)[::-1, :, ::2]
    assert_same(batching.decode(echo(scheme, batching.encode({"x": batch}, sample=False)), sample=False)["x"], batch)


def test_numpy_bytes_in_an_object_array_are_sent_as_their_bytes():
    spec = ("x", (3,), bytes)
    plain = codec(spec, outputs=[spec], max_batch_size=0)
    array = np.empty(3, dtype=object)
    array[:] = [np.bytes_(b"a"), b"b\0", b""]
    decoded = plain.decode(echo("http", plain.encode({"x": array}, sample=True)), sample=True)["x"]
    assert decoded.tolist() == [b"a", b"b\0", b""]


def test_the_callers_array_is_not_changed():
    array = np.array([np.bytes_(b"a")], dtype=object)
    codec(("x", (1,), bytes)).encode({"x": array}, sample=True)
    assert type(array[0]) is np.bytes_


def test_tensor_declared_without_dimensions_is_one_column():
    scalar = codec(("x", (), F32), ("y", (), F32))
    assert [tensor.shape for tensor in scalar.encode({"x": np.zeros((2, 1), F32), "y": np.ones((2, 1), F32)},
                                                       sample=False)] == [(2, 1), (2, 1)]  # fmt: skip


def test_outputs_that_did_not_come_back_are_absent():
    two = codec(("x", (1,), F32), outputs=[("x", (1,), F32), ("y", (1,), F32)])
    assert set(two.decode(echo("http", two.encode({"x": np.zeros(1, F32)}, sample=True)), sample=True)) == {"x"}


def test_sample_of_an_output_without_further_axes_is_still_an_array():
    class Result:
        def as_numpy(self, name):
            return np.array([7], F32)

    output = codec(outputs=[("x", (1,), F32)]).decode(Result(), sample=True)["x"]
    assert isinstance(output, np.ndarray)
    assert output.shape == ()


@pytest.mark.parametrize("output", [np.zeros((0, 1), F32), np.zeros((), F32)])
def test_output_without_the_sample_is_a_server_error(output):
    class Result:
        def as_numpy(self, name):
            return output

    with pytest.raises(PyTritonClientInferenceServerError, match="'x'"):
        codec(outputs=[("x", (1,), F32)]).decode(Result(), sample=True)


def test_all_configured_outputs_are_requested():
    outputs = codec(outputs=[("x", (1,), F32), ("y", (1,), F32)]).requested_outputs
    assert outputs == [OutputRequest("x"), OutputRequest("y")]


def test_positional_inputs_take_the_order_of_the_model():
    assert codec(("b", (1,), F32), ("a", (1,), F32)).by_name([1, 2]) == {"b": 1, "a": 2}


def test_fewer_positional_inputs_leave_optional_ones_out():
    optional = codec(("a", (1,), F32), ("b", (1,), F32, True))
    tensors = optional.encode(optional.by_name([np.zeros(1, F32)]), sample=True)
    assert [tensor.name for tensor in tensors] == ["a"]


def test_surplus_positional_inputs_are_refused():
    with pytest.raises(PyTritonClientInputError, match="2 inputs were given, but model 'm' has inputs 'a'"):
        codec(("a", (1,), F32)).by_name([1, 2])


def test_model_without_inputs_is_encoded_as_such():
    assert codec(max_batch_size=0).encode({}, sample=True) == []


def test_unknown_name_is_refused_with_the_known_ones():
    known = codec(("a", (1,), F32), ("b", (1,), F32, True))
    with pytest.raises(PyTritonClientInputError, match=r"no input 'c'; it has inputs 'a', 'b' \(optional\)"):
        known.encode({"a": np.zeros(1, F32), "c": np.zeros(1, F32)}, sample=True)


def test_missing_input_is_refused_by_name():
    with pytest.raises(PyTritonClientInputError, match="input 'a' of model 'm' is missing"):
        codec(("a", (1,), F32), ("b", (1,), F32)).encode({"b": np.zeros(1, F32)}, sample=True)


def test_no_input_at_all_is_refused():
    with pytest.raises(PyTritonClientValueError, match="no input was given"):
        codec(("a", (1,), F32, True)).encode({}, sample=True)


@pytest.mark.parametrize("value", [[1.0], 1.0, F32(1), "text", None])
def test_what_is_no_array_is_refused(value):
    with pytest.raises(PyTritonClientValueError, match="asarray"):
        codec(("a", (1,), F32)).encode({"a": value}, sample=True)


@pytest.mark.parametrize("dtype", [">f4", "f8", "i4", "?", "c8", "U3", "S3", object, "M8[s]", "V4"])
def test_other_dtype_is_refused_with_the_conversion(dtype):
    with pytest.raises(PyTritonClientInputError, match=r"expects float32; convert it with \.astype\(numpy\.float32\)"):
        codec(("a", (1,), F32)).encode({"a": np.zeros(1, dtype)}, sample=True)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(1, F32), "dtype float32, but BYTES"),
        (np.array(["text"]), r"numpy\.char\.encode"),
        (np.array(["text"], dtype=object), r"holds a str \('text'\)"),
        (np.array([b"fine", None, b"fine"], dtype=object), r"holds a NoneType"),
    ],
)
def test_only_bytes_are_bytes(array, message):
    with pytest.raises(PyTritonClientInputError, match=message):
        codec(("a", (-1,), bytes)).encode({"a": array}, sample=True)


@pytest.mark.parametrize(
    ("sample", "max_batch_size", "shape", "message"),
    [
        (True, 4, (3,), r"shape \(3,\), but model 'm' expects \(2, any\)$"),
        (True, 4, (1, 2, 9), r"expects \(2, any\); for a batch use infer_batch$"),
        (True, 0, (3, 1), r"expects \(2, any\)$"),
        (True, 0, (1, 2, 9), r"expects \(2, any\)$"),
        (False, 4, (2, 9), r"expects \(batch, 2, any\); for a single sample use infer_sample$"),
        (False, 4, (1, 3, 9), r"expects \(batch, 2, any\)$"),
        (False, 4, (), r"expects \(batch, 2, any\)$"),
    ],
)
def test_wrong_shape_is_refused_with_the_right_one(sample, max_batch_size, shape, message):
    with pytest.raises(PyTritonClientInputError, match=message):
        codec(("a", (2, -1), F32), max_batch_size=max_batch_size).encode({"a": np.zeros(shape, F32)}, sample=sample)


@pytest.mark.parametrize("rows", [1, 4])
def test_batch_sizes_up_to_the_maximum_are_encoded(rows):
    (tensor,) = codec(("a", (1,), F32)).encode({"a": np.zeros((rows, 1), F32)}, sample=False)
    assert tensor.shape == (rows, 1)


@pytest.mark.parametrize(("rows", "message"), [(0, "at least one"), (5, "batch-size must be <= 4")])
def test_batch_size_out_of_range_is_refused(rows, message):
    with pytest.raises(PyTritonClientInputError, match=message):
        codec(("a", (1,), F32)).encode({"a": np.zeros((rows, 1), F32)}, sample=False)


def test_inputs_of_different_batch_size_are_refused():
    with pytest.raises(PyTritonClientInputError, match="'b' has 3 rows, but input 'a' has 2"):
        codec(("a", (1,), F32), ("b", (1,), F32)).encode(
            {"a": np.zeros((2, 1), F32), "b": np.zeros((3, 1), F32)}, sample=False
        )
