"""The arrays of warm-up requests."""

import numpy as np
import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import ModelWarmup, WarmupInput
from pytriton.model_config.common import generate_warmup_data, generate_warmup_requests
from pytriton.model_config.triton_model_config import TensorSpec

NUMBERS = [
    np.bool_,
    *(np.int8, np.int16, np.int32, np.int64),
    *(np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64),
]
TEXTS = [np.bytes_, np.object_, bytes, object]
SHAPES = [(), (1,), (3, 2), (2, 1, 2, 1)]
MANY = (2000,)


def saved(tmp_path, array):
    path = tmp_path / "data.npy"
    np.save(path, array)
    return str(path)


def from_file(tmp_path, array, shape, batch_size, dtype=np.int32):
    return generate_warmup_data(WarmupInput(dtype, shape, input_data_file=saved(tmp_path, array)), batch_size)


@pytest.mark.parametrize("source", ["zero_data", "random_data"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [*NUMBERS, *TEXTS], ids=lambda dtype: dtype.__name__)
def test_every_dtype_and_rank_has_data_with_and_without_a_batch_axis(dtype, shape, source):
    described = WarmupInput(dtype, shape, **{source: True})
    for batch_size, expected in ((0, shape), (1, (1, *shape)), (3, (3, *shape))):
        array = generate_warmup_data(described, batch_size)
        assert type(array) is np.ndarray
        assert array.shape == expected
        assert array.dtype == (np.dtype(object) if dtype in TEXTS else np.dtype(dtype))
        if dtype in TEXTS:
            assert all(type(text) is bytes for text in array.flat)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_zeros_are_zeros(dtype):
    assert not generate_warmup_data(WarmupInput(dtype, (4,), zero_data=True), 2).any()


def test_zeros_of_bytes_are_empty():
    assert set(generate_warmup_data(WarmupInput(bytes, (4,), zero_data=True), 2).flat) == {b""}


@pytest.mark.parametrize("dtype", NUMBERS)
def test_random_numbers_differ_and_stay_in_their_range(dtype):
    array = generate_warmup_data(WarmupInput(dtype, MANY, random_data=True), 1)
    assert len(np.unique(array)) > 1
    if dtype is np.bool_:
        return
    if np.dtype(dtype).kind == "f":
        low, high = 0, np.nextafter(np.dtype(dtype).type(1), np.dtype(dtype).type(0))
    elif np.dtype(dtype).itemsize <= 2:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        assert array.max() > 0.9 * high
    else:
        low, high = 0, 99
        assert array.max() > 90
    assert array.min() >= low
    assert array.max() <= high


def test_random_bytes_are_letters_and_digits_of_several_lengths():
    texts = [*generate_warmup_data(WarmupInput(bytes, MANY, random_data=True), 1).flat]
    lengths = {len(text) for text in texts}
    assert (min(lengths), max(lengths)) == (8, 32)
    assert all(text.decode("ascii").isalnum() for text in texts)


@pytest.mark.parametrize(
    ("rows", "batch_size", "expected"), [(1, 3, [0, 0, 0]), (2, 3, [0, 1, 0]), (3, 2, [0, 1]), (2, 2, [0, 1])]
)
def test_the_rows_of_a_file_are_repeated_or_cut_to_the_batch(tmp_path, rows, batch_size, expected):
    array = np.repeat(np.arange(rows), 2).reshape(rows, 2)
    assert from_file(tmp_path, array, (2,), batch_size)[:, 1].tolist() == expected


def test_one_sample_in_a_file_is_every_row_of_the_batch(tmp_path):
    assert from_file(tmp_path, np.array([7, 8]), (2,), 3).tolist() == [[7, 8]] * 3
    assert from_file(tmp_path, np.array([7, 8]), (2,), 0).tolist() == [7, 8]


def test_a_file_is_cast_to_the_dtype_of_the_input(tmp_path):
    assert from_file(tmp_path, np.array([[1.0]]), (1,), 1, np.int16).dtype == np.int16
    texts = from_file(tmp_path, np.array([["ä"]]), (1,), 1, bytes)
    assert texts.tolist() == [["ä".encode()]]
    assert from_file(tmp_path, np.array([[b"ab", b"c"]]), (2,), 1, object).tolist() == [[b"ab", b"c"]]


@pytest.mark.parametrize("array", [np.zeros((2, 3)), np.zeros((0, 2)), np.zeros(()), np.zeros((1, 1, 2))])
def test_a_file_of_another_shape_is_refused_with_both_shapes(tmp_path, array):
    with pytest.raises(PyTritonBadParameterError, match=r"data.npy has shape .*, expected \(2, 2\)"):
        from_file(tmp_path, array, (2,), 2)


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY"])
def test_a_file_that_is_no_array_is_refused(tmp_path, content):
    path = tmp_path / "data.npy"
    path.write_bytes(content)
    with pytest.raises(PyTritonBadParameterError, match=r"data.npy cannot be read as \.npy of float32"):
        generate_warmup_data(WarmupInput(np.float32, (1,), input_data_file=str(path)), 1)


def test_a_file_that_is_not_there_or_holds_pickles_is_refused(tmp_path):
    with pytest.raises(PyTritonBadParameterError, match="No such file"):
        generate_warmup_data(WarmupInput(np.float32, (1,), input_data_file=str(tmp_path / "no.npy")), 1)
    with pytest.raises(PyTritonBadParameterError, match="cannot be read"):
        from_file(tmp_path, np.array([[None]], object), (1,), 1)


def test_the_first_source_wins(tmp_path):
    path = saved(tmp_path, np.array([5]))
    both = WarmupInput(np.int32, (1,), zero_data=True, random_data=True, input_data_file=path)
    assert generate_warmup_data(both, 1).tolist() == [[5]]
    assert not generate_warmup_data(WarmupInput(np.int32, MANY, zero_data=True, random_data=True), 1).any()


def test_without_a_source_there_is_no_data():
    with pytest.raises(PyTritonBadParameterError, match="set zero_data, random_data or input_data_file"):
        generate_warmup_data(WarmupInput(np.float32, (1,)), 1)


SPECS = [TensorSpec("b", (2,), np.float32), TensorSpec("a", (), np.bytes_, optional=True)]
B = WarmupInput(np.float32, (2,), zero_data=True)
A = WarmupInput(bytes, (), random_data=True)


def test_each_warm_up_makes_as_many_requests_as_it_says_in_the_models_order_of_inputs():
    first, second = ModelWarmup("both", 3, {"a": A, "b": B}, 2), ModelWarmup("one", 1, {"b": B}, 0)
    requests = generate_warmup_requests([first, second], SPECS, [])
    assert [[*request] for request in requests] == [["b", "a"], ["b", "a"], ["b"]]
    assert [request["b"].shape for request in requests] == [(3, 2), (3, 2), (1, 2)]
    assert requests[0]["a"].tolist() != requests[1]["a"].tolist()
    assert len(generate_warmup_requests(first, SPECS, [])) == 2


def test_without_batching_requests_have_no_batch_axis():
    (request,) = generate_warmup_requests(ModelWarmup("w", 1, {"b": B}, 1), SPECS, [], batching=False)
    assert request["b"].shape == (2,)


def test_names_that_the_model_does_not_have_are_refused():
    with pytest.raises(PyTritonBadParameterError, match=r"\['z'\] are no inputs of the model; it has \['b', 'a'\]"):
        generate_warmup_requests(ModelWarmup("w", 1, {"z": B}, 1), SPECS, [])
