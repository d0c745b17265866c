"""What libraries return, as outputs: arrays, tables of pandas, sparse matrices, lists of scores by label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.signature.examples import schema_of
from pytriton.signature.schema import RESULT, Schema, tensor_schema
from pytriton.signature.values import encode_rows, encoded_texts

__all__ = ["ANYTHING", "SCORES", "encoder_of", "has_nan", "outputs_of", "schema_of_output", "with_labels"]

SCORES: Schema = {"type": "object", "additionalProperties": {"type": "number"}, "encoding": "json"}
ANYTHING: Schema = {"encoding": "json"}


def outputs_of(result: Any) -> dict[str, Any]:
    """The outputs in a result by name; a single one without a name is :data:`RESULT`."""
    if isinstance(result, Mapping):
        return {str(name): _dense(value) for name, value in result.items()}
    if hasattr(result, "columns") and hasattr(result, "to_numpy"):  # a table of pandas
        return {str(name): result[name].to_numpy() for name in result.columns}
    return {RESULT: _dense(result)}


def with_labels(outputs: dict[str, Any], labels: Sequence[str], are_probabilities: bool) -> dict[str, Any]:
    """Outputs with names of classes: texts in place of numbers of classes, and the score of each class under its name.

    Args:
        labels: In the order of the model's classes.
        are_probabilities: Whether one number per row is the probability of the second of two classes.

    Raises:
        PyTritonValidationError: There are no such outputs, or the number of a class is none of theirs.
    """
    named: dict[str, Any] = {}
    for name, value in outputs.items():
        array = np.asarray(value)
        is_one = array.ndim > 0 and array.size == len(array)
        if is_one and array.dtype.kind == "f" and are_probabilities and len(labels) == 2:
            array = np.stack([1 - array.reshape(-1), array.reshape(-1)], axis=1)
        if array.ndim == 2 and array.shape[1] == len(labels) and array.dtype.kind == "f":
            rows = [dict(zip(labels, row, strict=True)) for row in array.tolist()]
            named |= dict(zip(labels, array.T, strict=True)) if len(outputs) == 1 else {name: rows}
        else:
            is_class = is_one and array.dtype.kind in "iu"
            if is_class and not np.all((array >= 0) & (array < len(labels))):
                raise PyTritonValidationError(
                    f"output {name!r} has the class {array.max() if array.min() >= 0 else array.min()}, for which "
                    f"there is no label: {len(labels)} labels are those of the classes 0 to {len(labels) - 1}"
                )
            named[name] = np.array(labels, object)[array.reshape(-1)] if is_class else value
    if all(named.get(name) is value for name, value in outputs.items()):
        raise PyTritonValidationError(
            f"no output has numbers of classes, or scores of {len(labels)} of them; give a label for each class"
        )
    return named


def has_nan(value: Any) -> bool:
    """Whether a value, of one output, has a number that is none."""
    is_scores = isinstance(value, list) and all(isinstance(each, Mapping) for each in value)
    array = np.asarray([[*each.values()] for each in value] if is_scores else value)
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def schema_of_output(name: str, value: Any, declared: Sequence[int] | None, *, is_open: bool, batching: bool) -> Schema:
    """The schema of an output, learned from its value for an example.

    Args:
        declared: Its shape, if the file has it.
        is_open: Whether inputs have axes of any size, on which those of an output that is not declared may depend.
        batching: Whether the value has a batch axis.

    Raises:
        PyTritonValidationError: The server has no type for it.
    """
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        return SCORES
    array = np.asarray(value)
    if array.dtype.kind == "O" and not all(isinstance(each, (str, bytes)) for each in array.flat):
        return ANYTHING
    found = schema_of(f"output {name!r}", [array], as_arrays=True, has_axis=batching)
    if declared is None:
        declared = [-1] * len(found["shape"]) if is_open else found["shape"]
    return tensor_schema(found["dtype"], declared if len(declared) == len(found["shape"]) else found["shape"])


def encoder_of(schema: Schema, batching: bool) -> Callable[[Any], NDArray[Any]]:
    """What makes the server's array of each value of an output."""
    if schema.get("encoding") == "json":
        return lambda value: encode_rows(schema, _rows(value), {}, check=False)
    if "shape" in schema:
        return lambda value: encoded_texts(np.asarray(value))
    return lambda value: encoded_texts(np.asarray(value)).reshape((-1, 1) if batching else 1)


def _dense(value: Any) -> Any:
    """A sparse matrix of scipy, or a column of pandas, as an array."""
    if hasattr(value, "toarray"):
        return value.toarray()
    return value.to_numpy() if hasattr(value, "to_numpy") else value


def _rows(value: Any) -> list[Any]:
    """Values for JSON, in which keys are texts."""
    rows = value if isinstance(value, list) else np.asarray(value).tolist()
    return [{str(key): item for key, item in row.items()} if isinstance(row, Mapping) else row for row in rows]
