"""Random inputs for load tests."""

import numpy as np
import pytest

from pytriton.cli.inputs import InputError, Inputs, parse_shapes
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

DTYPES = [
    np.bool_,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.float16,
    np.float32,
    np.float64,
]


def config(*inputs, **options):
    return TritonModelConfig("m", inputs=[TensorSpec(*each) for each in inputs], **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_have_the_declared_type(dtype):
    (array,) = Inputs(config(("x", (2, 3), dtype)), batch_size=4).arrays()
    assert (array.dtype, array.shape) == (np.dtype(dtype), (4, 2, 3))


def test_texts_are_bytes_in_object_arrays():
    (array,) = Inputs(config(("x", (2,), np.bytes_))).arrays()
    assert (array.dtype, array.shape) == (np.dtype(object), (1, 2))
    assert all(isinstance(each, bytes) and each for each in array.ravel())


def test_inputs_come_in_the_order_of_the_model():
    inputs = Inputs(config(("b", (2,), np.float32), ("a", (3,), np.int64)), batch_size=2)
    assert [array.shape for array in inputs.arrays()] == [(2, 2), (2, 3)]
    assert inputs.describe() == [
        {"name": "b", "dtype": "FP32", "shape": [2, 2]},
        {"name": "a", "dtype": triton_name(np.int64), "shape": [2, 3]},
    ]


def test_a_model_without_batching_gets_no_batch_axis():
    inputs = Inputs(config(("x", (2,), np.float32), batching=False))
    assert (inputs.rows, inputs.arrays()[0].shape, inputs.describe()[0]["shape"]) == (0, (2,), [2])


def test_open_dimensions_get_one_size_and_chosen_ones_theirs():
    model = config(("x", (-1, 3), np.float32), ("y", (-1,), np.float32))
    inputs = Inputs(model, shapes={"x": (5, 3)}, dynamic_size=7)
    assert [array.shape for array in inputs.arrays()] == [(1, 5, 3), (1, 7)]


def test_one_value_per_row_has_an_axis_for_it():
    assert Inputs(config(("x", (), np.float32)), batch_size=2).arrays()[0].shape == (2, 1)


def test_two_requests_differ():
    inputs = Inputs(config(("x", (100,), np.float32)))
    assert not np.array_equal(inputs.arrays()[0], inputs.arrays()[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 5}, "batches of up to 4 rows, not 5"),
        ({"shapes": {"z": (1,)}}, "has no input 'z'; it has x"),
        ({"shapes": {"x": (1, 4)}}, r"has the shape any,3 without the batch axis, which \(1, 4\) does not fit"),
        ({"shapes": {"x": (1,)}}, "does not fit"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        Inputs(config(("x", (-1, 3), np.float32)), **options)


def test_a_batch_size_is_refused_for_a_model_without_batching():
    with pytest.raises(InputError, match="does not support batching"):
        Inputs(config(("x", (3,), np.float32), batching=False), batch_size=1)


def test_shapes_are_read_from_texts():
    assert parse_shapes(["x=3,224", "in:put=1", "y:2"]) == {"x": (3, 224), "in:put": (1,), "y": (2,)}


@pytest.mark.parametrize("text", ["x", "x=", "=1", "x=a", "x=0", "x=1,-1", ""])
def test_other_texts_are_no_shapes(text):
    with pytest.raises(InputError, match="not of the form"):
        parse_shapes([text])
