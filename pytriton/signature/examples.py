"""Examples of requests: the tensors that they imply, and the warm-ups that they become."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.model_config import ModelConfig
from pytriton.model_config.warmup import ModelWarmup, WarmupInput
from pytriton.signature.foreign import host_array
from pytriton.signature.json_values import to_json
from pytriton.signature.schema import Schema, tensor_of

__all__ = ["Example", "as_array", "examples_in", "in_json", "schema_of", "warmed", "zero_of"]

Example = Mapping[str, Any]

LONGEST_EXAMPLE = 2048  # characters of JSON
ZEROS: dict[str, Any] = {"integer": 0, "number": 0.0, "boolean": False, "string": ""}
SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def examples_in(given: Any) -> list[Example]:
    """The examples that ``bind`` was given: one, a list of them, or None.

    Raises:
        PyTritonValidationError: One is no dict from names of inputs to values.
    """
    examples = [given] if isinstance(given, Mapping) else given or []
    if not isinstance(examples, (list, tuple)) or not all(isinstance(each, Mapping) for each in examples):
        raise PyTritonValidationError(
            f"example is {given!r:.100}; give a dict from the names of inputs to values, or a list of such"
        )
    return list(examples)


def schema_of(place: str, values: Sequence[Any], *, as_arrays: bool, has_axis: bool) -> Schema:
    """The schema of one input or output, from its values in examples.

    Args:
        place: Name of the input or output, for messages.
        values: One of each example.
        as_arrays: Whether they are arrays, whatever they look like.
        has_axis: Whether arrays have a batch axis, which is no part of the schema.

    Raises:
        PyTritonValidationError: Arrays have different dtypes or ranks, or a dtype that the server does not know.
    """
    values = [host_array(each) for each in values]
    if as_arrays or any(hasattr(each, "__array__") and np.ndim(each) for each in values):
        return _schema_of_arrays(place, [as_array(each) for each in values], has_axis)
    kinds = {type(each.item() if isinstance(each, np.generic) else each) for each in values}
    if kinds <= SCALARS.keys():
        if len(kinds) == 1:
            return {"type": SCALARS[kinds.pop()]}
        return {"type": "number"} if kinds == {int, float} else {"encoding": "json"}
    if kinds == {bytes}:
        return {"type": "string", "contentEncoding": "base64"}
    items = {type(item) for each in values if isinstance(each, (list, tuple)) for item in each}
    if kinds <= {list, tuple} and len(items) == 1 and items <= SCALARS.keys():
        return {"type": "array", "items": {"type": SCALARS[items.pop()]}}
    return {"encoding": "json"}


def _schema_of_arrays(place: str, arrays: Sequence[NDArray[Any]], has_axis: bool) -> Schema:
    try:
        dtypes = {"BYTES" if each.dtype.kind == "U" else triton_name(each.dtype) for each in arrays}
    except ValueError as error:
        raise PyTritonValidationError(f"{place} in an example: {error}") from error
    ranks = {each.ndim for each in arrays}
    if len(dtypes) > 1 or len(ranks) > 1:
        raise PyTritonValidationError(
            f"{place} has several dtypes or numbers of dimensions in the examples: "
            f"{', '.join(sorted(f'{each.dtype} {each.shape}' for each in arrays))}"
        )
    if has_axis and ranks == {0}:
        raise PyTritonValidationError(f"{place} in an example has no batch axis")
    shapes = [each.shape[1:] if has_axis else each.shape for each in arrays]
    shape = [sizes[0] if len({*sizes}) == 1 else -1 for sizes in zip(*shapes, strict=True)]
    return {"type": "array", "dtype": dtypes.pop(), "shape": [size or -1 for size in shape]}


def in_json(examples: Sequence[Example], results: Sequence[Any], *, has_axis: bool) -> list[Schema]:
    """Examples and what came of them, as a signature has them, as far as JSON has them and they are short.

    Args:
        results: Of each: an object with a member for each output, or the one output.
        has_axis: Whether arrays have a batch axis; their first row is the example.
    """

    def value_of(given: Any) -> Any:
        if has_axis and isinstance(given, Mapping):
            return {name: to_json(value)[0] for name, value in given.items()}
        return to_json(given)[0] if has_axis else to_json(given)

    told = []
    for example, result in zip(examples, results, strict=True):
        try:
            given = {name: value_of(value) for name, value in example.items() if value is not None}
            each = {"input": given, "output": value_of(result)}
            if len(json.dumps(each, allow_nan=False)) <= LONGEST_EXAMPLE:
                told.append(each)
        except (IndexError, TypeError, ValueError):
            continue
    return told


def as_array(value: Any, dtype: str | None = None) -> NDArray[Any]:
    """A value of an example as an array; texts become objects of class ``bytes``."""
    array = np.asarray(host_array(value))
    if array.dtype.kind == "U":
        texts = np.empty(array.shape, object)
        texts[...] = np.char.encode(array, "utf-8").astype(object)
        return texts
    if array.dtype.kind == "S":
        return array.astype(object)
    if dtype is not None and dtype != "BYTES" and not hasattr(value, "__array__"):
        return array.astype(tensor_of("x", {"dtype": dtype, "shape": []}).dtype)
    return array


def zero_of(schema: Schema, size: int) -> Any:
    """Zero, an empty text or an array of them as a value of a schema; None if it is of another kind.

    Args:
        size: Of axes of any size.
    """
    if "shape" not in schema:
        return ZEROS.get(schema.get("type", ""))
    shape = [size if each == -1 else each for each in schema["shape"]]
    return np.full(shape, "") if schema["dtype"] == "BYTES" else np.zeros(shape, tensor_of("x", schema).dtype)


def warmed(config: ModelConfig, requests: Sequence[Mapping[str, NDArray[Any]]]) -> ModelConfig:
    """A configuration with requests as the first warm-ups.

    Args:
        requests: The arrays of each, with batch axis if the model has one.
    """
    warmups = []
    for number, arrays in enumerate(requests, 1):
        rows = len(next(iter(arrays.values()))) if config.batching and arrays else 1
        if not arrays or rows > config.max_batch_size > 0:
            continue
        inputs = {}
        for name, array in arrays.items():
            shape = array.shape[1:] if config.batching else array.shape
            if 0 not in shape:
                inputs[name] = WarmupInput(array.dtype, shape, data=array)
        if len(inputs) == len(arrays):
            warmups.append(ModelWarmup(f"example {number}", rows, inputs))
    return replace(config, model_warmup=[*warmups, *(config.model_warmup or ())] or None) if warmups else config
