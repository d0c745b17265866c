"""Split a batch into groups that can be computed together, and merge their results; pad results of unequal shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.decorators.function_kinds import call_each, then
from pytriton.decorators.inputs_and_outputs import (
    InferenceResult,
    InferenceResults,
    batched_inputs,
    batched_outputs,
    convert_output,
    requests_in,
    tensors,
)
from pytriton.decorators.signatures import Decorator, Wrapped, decorator
from pytriton.exceptions import PyTritonRuntimeError, PyTritonValidationError
from pytriton.proxy.types import RequestBatch

__all__ = ["ConstantPadder", "group_by_keys", "group_by_values"]

Arrays = dict[str, NDArray[Any]]


@decorator
def group_by_keys(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function once per set of inputs that occurs among the requests.

    The function gets the list of the requests that have those inputs, and returns a list with one result for each.
    Groups are called in the sorted order of their input names; results come back in the order of the requests.

    Raises:
        PyTritonRuntimeError: There is no list of requests, or the groups' generators yield different numbers of times.
        PyTritonValidationError: The list is empty, or a result is not a list with one element per request.
    """
    requests = requests_in(args, "group_by_keys")
    groups = _positions_by_names(requests)
    if len(groups) == 1:
        return wrapped(*args, **kwargs)

    def merge(results: list[Any]) -> list[Any]:
        merged: list[Any] = [None] * len(requests)
        for positions, responses in zip(groups, results, strict=True):
            if not isinstance(responses, list) or len(responses) != len(positions):
                raise PyTritonValidationError(
                    f"a callable got {len(positions)} requests and returned {_described(responses)}; return a list "
                    "with one result per request"
                )
            for position, response in zip(positions, responses, strict=True):
                merged[position] = response
        return merged

    calls = [(([requests[position] for position in positions], *args[1:]), kwargs) for positions in groups]
    return then(call_each(wrapped, calls), merge)


def group_by_values(*keys: str, pad_fn: Callable[[InferenceResults], InferenceResults] | None = None) -> Decorator:
    """Call the function once per combination of values of some inputs.

    Goes below ``@batch``. The function gets the rows that have equal values in all of ``keys``; groups are called in
    the sorted order of their values, in the order of ``keys``. It returns a dict, list or tuple of arrays with one row
    per row it was called with, or with one row for all of them; the rows of all groups are merged in the original
    order, into a dict. NaN equals no other value.

    Args:
        keys: Names of inputs of shape ``(rows, ...)``. Absent ones (optional inputs) are skipped; without any, all rows
            are one group.
        pad_fn: From the results of all groups to as many results whose arrays have equal shapes but for the rows, for
            example :class:`ConstantPadder`. None if they have equal shapes anyway.

    Raises:
        PyTritonRuntimeError: At the call: there are no keyword arrays, they differ in rows, or the groups' generators
            yield different numbers of times.
        PyTritonValidationError: At the call: an output has the wrong number of rows, or the outputs of the groups
            differ in names or shapes.
    """

    @decorator
    def grouped(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs, rows = batched_inputs(kwargs, "group_by_values")
        groups = _rows_by_values([inputs[key] for key in keys if key in inputs], rows)

        def checked(results: Sequence[Any]) -> InferenceResults:
            if len(results) != len(groups):
                raise PyTritonValidationError(f"pad_fn got {len(groups)} results and returned {len(results)}; pad each")
            return [
                batched_outputs(_for_each_row(result, len(members), wrapped, instance), len(members), wrapped, instance)
                for result, members in zip(results, groups, strict=True)
            ]

        def merge(results: list[Any]) -> InferenceResult:
            named = checked(results)
            return _merged(named if pad_fn is None else checked(pad_fn(named)), groups)

        if len(groups) == 1:
            return then(call_each(wrapped, [(args, kwargs)]), merge)  # no rows to pick, so nothing to copy
        calls = [(args, kwargs | {name: array[members] for name, array in inputs.items()}) for members in groups]
        return then(call_each(wrapped, calls), merge)

    return grouped


class ConstantPadder:
    """Pads arrays at the end of each axis but the first, up to the longest of their name.

    Args:
        pad_value: Fills numeric arrays. Text and bytes are filled with empty ones.
    """

    def __init__(self, pad_value: float = 0) -> None:
        self.pad_value = pad_value

    def __call__(self, batches_list: InferenceResults) -> InferenceResults:
        """Pad the arrays of several results.

        Args:
            batches_list: Name to array of shape ``(rows, ...)``. A name may be absent from some of them, and stays
                absent.

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


def _positions_by_names(requests: Sequence[Any]) -> list[list[int]]:
    """Positions of the requests that have the same inputs, in sorted order of the input names."""
    if isinstance(requests, RequestBatch) and requests.columns() is not None:
        return [list(range(len(requests)))]
    groups: dict[tuple[str, ...], list[int]] = {}
    for position, request in enumerate(requests):
        groups.setdefault(tuple(sorted(tensors(request))), []).append(position)
    return [groups[names] for names in sorted(groups)]


def _rows_by_values(arrays: Sequence[NDArray[Any]], rows: int) -> list[list[int]]:
    """Indices of the rows that are equal in all arrays, in sorted order of the values; one empty group without rows."""
    columns = [array.reshape(rows, math.prod(array.shape[1:])).tolist() for array in arrays]
    groups: dict[tuple[tuple[Any, ...], ...], list[int]] = {}
    for row in range(rows):
        groups.setdefault(tuple(tuple(column[row]) for column in columns), []).append(row)
    return [groups[values] for values in sorted(groups)] or [[]]


def _for_each_row(result: Any, rows: int, wrapped: Wrapped, instance: Any) -> InferenceResult:
    """The outputs of a group; those of one row are that row for each row of the group."""
    named = convert_output(result, wrapped, instance)
    return {
        name: np.repeat(array, rows, axis=0) if isinstance(array, np.ndarray) and array.shape[:1] == (1,) else array
        for name, array in named.items()
    }


def _merged(results: Sequence[InferenceResult], groups: Sequence[Sequence[int]]) -> InferenceResult:
    """Join the results of all groups, row by row in the original order."""
    for result in results:
        if result.keys() != results[0].keys():
            raise PyTritonValidationError(
                f"groups returned different outputs: {list(results[0])} and {list(result)}; return the same for each"
            )
    if len(groups) == 1:
        return results[0]
    original_order = np.argsort(np.concatenate(groups))
    return {name: _joined(name, [result[name] for result in results])[original_order] for name in results[0]}


def _joined(name: str, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    try:
        return np.concatenate(arrays)
    except (TypeError, ValueError) as error:
        raise PyTritonValidationError(
            f"output {name!r} of the groups has shapes {[array.shape for array in arrays]}, which cannot be joined; "
            "give @group_by_values a pad_fn, for example ConstantPadder()"
        ) from error


def _described(responses: Any) -> str:
    kind = type(responses).__name__
    return f"a {kind} of {len(responses)}" if isinstance(responses, list) else f"a {kind}"


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
