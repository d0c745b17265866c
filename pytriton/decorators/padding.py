"""Make arrays of different shapes equal, so that they can be joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.decorators.outputs import InferenceResult, InferenceResults
from pytriton.exceptions import PyTritonRuntimeError

__all__ = ["ConstantPadder"]


class ConstantPadder:
    """Pads arrays at the end of each axis but the first, up to the longest of their name.

    Args:
        pad_value: What numeric arrays are filled with. Text and bytes are filled with empty ones.
    """

    def __init__(self, pad_value: float = 0) -> None:
        self.pad_value = pad_value

    def __call__(self, batches_list: InferenceResults) -> InferenceResults:
        """Pad the arrays of several results.

        Args:
            batches_list: Name to array of shape ``(rows, ...)``. A name may be missing in some of them, and stays
                missing.

        Returns:
            As many new dicts. Arrays of one name have the same shape but for the rows, and the same dtype. Arrays that
            need no padding are not copied.

        Raises:
            PyTritonRuntimeError: Arrays of one name differ in dtype (lengths of strings may differ) or in rank.
        """
        padded: InferenceResults = [dict(result) for result in batches_list]
        for name in dict.fromkeys(name for result in batches_list for name in result):
            holders: list[InferenceResult] = [result for result in padded if name in result]
            arrays = [result[name] for result in holders]
            dtype, shape = _common_dtype(name, arrays), _common_shape(name, arrays)
            for result, array in zip(holders, arrays, strict=True):
                result[name] = self._padded(array, dtype, shape)
        return padded

    def _padded(self, array: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if array.shape[1:] == shape and array.dtype == dtype:
            return array
        fill: Any = {"U": "", "S": b"", "O": b""}.get(dtype.kind, self.pad_value)
        padded = np.full((len(array), *shape), fill, dtype)
        padded[tuple(slice(size) for size in array.shape)] = array
        return padded


def _common_dtype(name: str, arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    dtypes = {array.dtype for array in arrays}
    kinds = {dtype.kind for dtype in dtypes}
    if len(dtypes) > 1 and kinds not in ({"S"}, {"U"}):
        raise PyTritonRuntimeError(
            f"results have {name!r} with different dtypes {sorted(map(str, dtypes))}; return the same for each group"
        )
    return max(dtypes, key=lambda dtype: dtype.itemsize)


def _common_shape(name: str, arrays: Sequence[NDArray[Any]]) -> tuple[int, ...]:
    ranks = {array.ndim for array in arrays}
    if len(ranks) > 1 or 0 in ranks:
        raise PyTritonRuntimeError(
            f"results have {name!r} with shapes {[array.shape for array in arrays]}; only axes after the first can be "
            "padded, and their number must be the same for each group"
        )
    return tuple(map(max, zip(*(array.shape[1:] for array in arrays), strict=True)))
