import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import Tensor

DIMENSION = st.just(-1) | st.integers(min_value=1, max_value=2**63 - 1)


@given(st.lists(DIMENSION))
def test_a_shape_is_kept_as_a_tuple_of_int(dimensions):
    for given_as in (dimensions, tuple(dimensions), [np.int64(dimension) for dimension in dimensions]):
        shape = Tensor(shape=given_as, dtype=np.float32).shape
        assert shape == tuple(dimensions)
        assert type(shape) is tuple
        assert all(type(dimension) is int for dimension in shape)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (-2,), (1.0,), ("3",), (None,), (True,), 3, "33", None, {1}], ids=repr)
def test_an_impossible_shape_is_refused(shape):
    with pytest.raises(PyTritonBadParameterError, match="shape"):
        Tensor(shape=shape, dtype=np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.longlong, bool, bytes, np.bytes_, object, np.object_])
def test_a_type_is_kept_as_it_was_given(dtype):
    assert Tensor((1,), dtype).dtype is dtype


@pytest.mark.parametrize("dtype", ["float32", np.dtype("float32"), np.dtype(">f4")])
def test_what_names_a_type_becomes_the_scalar_type(dtype):
    assert Tensor((1,), dtype).dtype is np.float32


@pytest.mark.parametrize("dtype", [np.str_, np.complex64, np.datetime64, np.void, None])
def test_an_impossible_dtype_is_refused(dtype):
    with pytest.raises(PyTritonBadParameterError, match="not supported"):
        Tensor((1,), dtype)


def test_name_and_optional_are_positional_and_not_needed():
    assert Tensor((1,), np.int8, "a", True) == Tensor(shape=(1,), dtype=np.int8, name="a", optional=True)
    assert Tensor((1,), np.int8).name is None
    assert Tensor((1,), np.int8).optional is False
    assert Tensor((1,), np.int8, optional=None).optional is False


def test_tensors_are_hashable_and_picklable():
    tensor = Tensor((1,), np.int8, "a")
    assert len({tensor, Tensor([1], "int8", "a")}) == 1
    assert pickle.loads(pickle.dumps(tensor)) == tensor


def test_labels_are_kept_as_a_tuple(tmp_path):
    file = tmp_path / "labels.txt"
    file.write_bytes("cat\r\ndög\n\n".encode())
    assert Tensor((3,), np.float32).labels is None
    assert Tensor((3,), np.float32, labels=["cat", "dög", ""]).labels == ("cat", "dög", "")
    for path in (file, str(file)):
        assert Tensor((3,), np.float32, labels=path) == Tensor((3,), np.float32, labels=["cat", "dög", ""])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "must not be empty"),
        (["a", 1], "must be a list of texts"),
        (3, "must be a list of texts"),
        (["a\nb"], "has several lines"),
        ("no/such/file.txt", "'no/such/file.txt': .*No such file"),
    ],
)
def test_impossible_labels_are_refused(labels, message):
    with pytest.raises(PyTritonBadParameterError, match=message):
        Tensor((3,), np.float32, labels=labels)


def test_a_file_of_labels_is_text(tmp_path):
    (tmp_path / "labels.txt").write_bytes(b"\xff")
    with pytest.raises(PyTritonBadParameterError, match="cannot read labels"):
        Tensor((3,), np.float32, labels=tmp_path / "labels.txt")


@pytest.mark.parametrize(
    ("given", "kept"), [("NCHW", "NCHW"), ("FORMAT_NHWC", "NHWC"), ("FORMAT_NONE", None), (None, None)]
)
def test_a_format_has_two_names(given, kept):
    assert Tensor((3, 2, 2), np.float32, format=given).format == kept


@pytest.mark.parametrize("value", ["nchw", "CHW", 1, ""])
def test_another_format_is_refused(value):
    with pytest.raises(PyTritonBadParameterError, match="format must be 'NCHW', 'NHWC' or None"):
        Tensor((3, 2, 2), np.float32, format=value)
