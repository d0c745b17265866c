from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytriton.decorators import ConstantPadder
from pytriton.exceptions import PyTritonRuntimeError


@given(st.lists(hnp.arrays(np.int16, hnp.array_shapes(min_dims=3, max_dims=3, min_side=0)), min_size=1, max_size=4))
def test_padding_equalises_shapes_but_for_the_rows_and_keeps_the_values(arrays):
    padded = [result["o"] for result in ConstantPadder(-7)([{"o": array} for array in arrays])]
    assert len({array.shape[1:] for array in padded}) == 1
    for before, after in zip(arrays, padded, strict=True):
        assert len(after) == len(before)
        inner = tuple(map(slice, before.shape))
        assert after[inner].tolist() == before.tolist()
        outside = after.copy()
        outside[inner] = -7
        assert (outside == -7).all()


def test_padding_is_zero_unless_given():
    padded = ConstantPadder()([{"o": np.ones((1, 1))}, {"o": np.ones((1, 2))}])
    assert padded[0]["o"].tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("one", "dtype", "empty"),
    [
        (np.array([[b"ab"]]), "S3", b""),
        (np.array([["ab"]]), "<U3", ""),
        (np.array([[b"ab"]], object), "O", b""),
    ],
)
def test_strings_are_padded_with_empty_ones_and_to_the_widest(one, dtype, empty):
    first = one[0, 0]
    wider = np.array([[first + first[:1], first]], one.dtype if one.dtype == object else None)
    padded = ConstantPadder(5)([{"o": one}, {"o": wider}])
    assert [result["o"].tolist() for result in padded] == [[[first, empty]], wider.tolist()]
    assert {result["o"].dtype for result in padded} == {np.dtype(dtype)}


def test_missing_names_stay_missing_and_results_stay_as_they_were():
    results = [{"o": np.ones((1, 1)), "p": np.ones((1, 1))}, {"o": np.ones((1, 2))}]
    padded = ConstantPadder()(results)
    assert [list(result) for result in padded] == [["o", "p"], ["o"]]
    assert padded[0]["p"] is results[0]["p"]
    assert results[0]["o"].shape == (1, 1)


@pytest.mark.parametrize("other", [np.ones((1, 1), np.int32), np.array([["x"]]), np.array([[b"x"]], object)])
def test_different_dtypes_of_one_name_are_refused(other):
    with pytest.raises(PyTritonRuntimeError, match="'o' with different dtypes"):
        ConstantPadder()([{"o": np.ones((1, 1), np.float32)}, {"o": other}])


@pytest.mark.parametrize("shapes", [((1, 1), (1, 1, 1)), ((), ()), ((1, 1), ())])
def test_different_ranks_and_arrays_without_rows_are_refused(shapes):
    with pytest.raises(PyTritonRuntimeError, match="only axes after the first can be padded"):
        ConstantPadder()([{"o": np.ones(shape)} for shape in shapes])


def test_nothing_is_padded_to_nothing():
    assert ConstantPadder()([]) == []
    assert ConstantPadder()([{}]) == [{}]


def test_the_results_may_be_given_by_their_documented_name():
    assert ConstantPadder()(batches_list=[{"a": np.zeros((1, 2))}])[0]["a"].shape == (1, 2)
