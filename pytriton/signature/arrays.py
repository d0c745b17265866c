"""Arrays of the dtype and shape of a schema, from arrays and from nested lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.model_config.dtypes import from_triton_name, triton_name
from pytriton.signature.foreign import host_array
from pytriton.signature.problems import Path, Problem, ValueMismatchError, described, shape_text, shown
from pytriton.signature.schema import Schema

__all__ = ["array_of"]

ELEMENTS: dict[str, tuple[Any, str]] = {  # by the kind of the dtype
    "b": ((bool, np.bool_), "true or false"),
    "i": ((int, np.integer), "an integer"),
    "u": ((int, np.integer), "an integer"),
    "f": ((int, float, np.integer, np.floating), "a number"),
    "S": ((str, bytes), "a string"),
}


def array_of(schema: Schema, value: Any, path: Path) -> NDArray[Any]:
    """A value as an array of its schema's dtype and shape; not copied if it is one.

    Args:
        schema: With ``dtype`` and ``shape``.
        value: An array whose dtype can be cast without a change of its kind, or nested lists of such values.

    Raises:
        ValueMismatchError: It is something else, or of another shape.
    """
    dtype = np.dtype(from_triton_name(schema["dtype"]))
    shape: list[int] = schema["shape"]
    value = host_array(value)
    is_array = hasattr(value, "__array__")
    if not is_array and (problem := _misshaped(shape, value, path)):
        raise ValueMismatchError([problem])
    try:
        found = value if dtype.kind == "S" else _as_found(value, dtype)
        if schema.get("nullable") and found.dtype.kind == "O":
            found = _without_nulls(found)
        array = _text_array(value) if dtype.kind == "S" else _number_array(found, dtype, is_array)
    except (OverflowError, TypeError, ValueError) as error:
        problem = None if is_array else _misfit(dtype, len(shape), value, path)
        raise ValueMismatchError([problem or Problem(path, described(schema), shown(value))]) from error
    fits = array.ndim == len(shape) and all(want in (-1, size) for want, size in zip(shape, array.shape, strict=True))
    if not fits:
        raise ValueMismatchError([Problem(path, described(schema), f"shape {shape_text(array.shape)}")])
    return array


def _as_found(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    found = np.asarray(value)
    if dtype.kind == "u" and found.dtype.kind == "f" and isinstance(value, (list, tuple)):
        # NumPy makes floating-point numbers of integers below and above 2**63; objects stay what they are.
        exact = np.asarray(value, object)
        if all(type(each) is int for each in exact.flat):
            return exact.astype(np.uint64)
    return found


def _without_nulls(found: NDArray[Any]) -> NDArray[Any]:
    """An array of objects as one of numbers, with NaN in place of None; itself if it has others."""
    are_numbers = all(each is None or type(each) in (int, float) for each in found.flat)
    return found.astype(np.float64) if are_numbers else found


def _number_array(found: NDArray[Any], dtype: np.dtype[Any], is_array: bool) -> NDArray[Any]:
    if found.dtype == dtype or (is_array and np.can_cast(found.dtype, dtype, "same_kind")):
        return found.astype(dtype, copy=False)
    if found.size and found.dtype.kind not in {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]:
        raise TypeError
    with np.errstate(over="ignore"):
        array = found.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(array, found):
        raise OverflowError
    return array


def _text_array(value: Any) -> NDArray[Any]:
    found = np.asarray(value, object)
    array = np.empty(found.shape, object)
    for index in np.ndindex(found.shape):
        item = found[index]
        if not isinstance(item, (bytes, str)):
            raise TypeError
        array[index] = item.encode() if isinstance(item, str) else bytes(item)
    return array


def _misshaped(shape: Sequence[int], value: Any, path: Path) -> Problem | None:
    """The first part of nested lists that is not a list, or has a wrong length."""
    if not shape:
        return Problem(path, "a number", shown(value)) if isinstance(value, (list, tuple)) else None
    if not isinstance(value, (list, tuple)):
        return Problem(path, _of_length(shape, "a list"), shown(value))
    if shape[0] not in (-1, len(value)):
        return Problem(path, _of_length(shape, str(shape[0])), str(len(value)))
    inner = list(shape[1:])
    if len(inner) and inner[0] == -1 and value and isinstance(value[0], (list, tuple)):
        inner[0] = len(value[0])  # of any length, but of the same
    return next(filter(None, (_misshaped(inner, item, (*path, index)) for index, item in enumerate(value))), None)


def _misfit(dtype: np.dtype[Any], depth: int, value: Any, path: Path) -> Problem | None:
    """The first element of nested lists that an array of a dtype does not hold, if it is wrong by itself."""
    if depth > 1:
        inner = (_misfit(dtype, depth - 1, item, (*path, index)) for index, item in enumerate(value))
        return next(filter(None, inner), None)
    types, noun = ELEMENTS[dtype.kind]
    has_limits = dtype.kind in "iu"
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if has_limits else (0, 0)
    items: Iterable[Any] = value if depth else [value]
    for index, item in enumerate(items):  # there may be millions
        if not isinstance(item, types):
            return Problem((*path, index) if depth else path, noun, shown(item))
        if has_limits and not low <= item <= high:
            return Problem((*path, index) if depth else path, f"{noun} of {triton_name(dtype)}", shown(item))
    return None


def _of_length(shape: Sequence[int], amount: str) -> str:
    noun = "numbers" if len(shape) == 1 else "lists"
    return f"a list of {noun}" if amount == "a list" else f"{amount} {noun}"
