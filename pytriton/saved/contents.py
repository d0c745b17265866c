"""What the loader of a format gets and gives; the schemas of inputs, and inputs that are columns of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.dtypes import triton_name
from pytriton.signature.schema import Schema, tensor_of

__all__ = [
    "AXIS_NOTES",
    "FEATURES",
    "FLOAT",
    "MOST_COLUMNS",
    "NUMBER",
    "STRING",
    "Arrays",
    "Axes",
    "Contents",
    "LoadOptions",
    "choose_method",
    "column_schemas",
    "has_batch_axis",
    "matrix_of",
]

Arrays: TypeAlias = dict[str, NDArray[Any]]

FEATURES = "features"  # the input of a model whose columns have no names, or too many
MOST_COLUMNS = 100  # as inputs of their own
NUMBER: Schema = {"type": "number"}
FLOAT: Schema = {"type": "number", "dtype": "FP32"}
STRING: Schema = {"type": "string"}
BATCH = re.compile(r"batch|bs\b|^N$", re.IGNORECASE)
AXIS_NOTES = {True: "the first axis is the batch's", False: "no batch axis: one request per call"}


@dataclass(frozen=True)
class LoadOptions:
    """The arguments of :func:`pytriton.saved.load`, with the schemas of inputs, and the title of the file's format."""

    method: str | None = None
    trust: bool = False
    inputs: Mapping[str, Schema] = field(default_factory=dict)
    batch: bool | None = None
    labels: Sequence[str] = ()
    threads: int = 1
    module: str | None = None
    title: str = ""

    def labels_of(self, classes: Sequence[Any], kind: str) -> list[str]:
        """The label of each of a model's classes: those that were given, or else the classes themselves.

        Raises:
            PyTritonValidationError: There are not as many.
        """
        if self.labels and len(self.labels) != len(classes):
            raise PyTritonValidationError(
                f"{kind} has {len(classes)} classes, {', '.join(map(str, classes))}; give a label for each, in this "
                "order"
            )
        return [*self.labels] or [*map(str, classes)]


@dataclass(frozen=True)
class Contents:
    """What a loader has found in a file.

    Attributes:
        kind: What it is, such as ``scikit-learn LogisticRegression``.
        inputs: The schema of each input, without batch axis.
        predict: From arrays by input, with batch axis, to the result of the library: an array, or several by name.
            Inputs of one number or text per row have the shape ``(rows, 1)``. Or a model of another form, such as a
            ``ChatModel``, which is served as it is.
        outputs: Shapes of outputs, as far as the file declares them: without batch axis, -1 is any size.
        example: Values of inputs for which zero, or an empty text, is not valid.
        method: The method that ``predict`` calls; empty if the format has none.
        methods: Those that the model has.
        batching: Whether the arrays have a batch axis.
        notes: More lines for the reader of a report.
        results: The schemas of outputs that no example can find out; without an example, the model is not tried.
        marks: Parameters for the model's configuration, which tell what it is.
        is_labelled: Whether ``predict`` returns the labels of the options.
        refusals: Exceptions of ``predict`` by which the library refuses a value, such as an unknown category.
    """

    kind: str
    inputs: Mapping[str, Schema]
    predict: Callable[[Arrays], Any]
    outputs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    example: Mapping[str, Any] = field(default_factory=dict)
    method: str = ""
    methods: Sequence[str] = ()
    batching: bool = True
    notes: Sequence[str] = ()
    results: Mapping[str, Schema] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)
    is_labelled: bool = False
    refusals: tuple[type[Exception], ...] = (ValueError,)


class Axes(NamedTuple):
    """An input or output as a file declares it: its dtype as ``FP32``; an axis is a size, a name, or None for any."""

    name: str
    dtype: str
    sizes: Sequence[Any]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join('?' if size is None else str(size) for size in self.sizes)})"

    def shape(self, batching: bool) -> tuple[int, ...]:
        """Without batch axis; -1 is any size."""
        return tuple(size if isinstance(size, int) and size > 0 else -1 for size in self.sizes[batching:])

    @classmethod
    def told(cls, path: Path, name: str, options: LoadOptions) -> Axes:
        """Those of an input that the user has to tell; the first one is the batch's, unless ``batch`` is False."""
        if name not in options.inputs:
            raise PyTritonValidationError(
                f"{path} does not say which dtype and shape its input {name!r} has; tell them without the batch axis "
                f"with inputs={{{name!r}: 'dtype:shape'}} (--input {name}:dtype:shape)"
            )
        schema, first = options.inputs[name], [] if options.batch is False else [None]
        return cls(name, triton_name(tensor_of(name, schema).dtype), [*first, *schema.get("shape", ())])

    def fitted(self, array: NDArray[Any], batching: bool) -> NDArray[Any]:
        """An array in the rank that the file declares: one value per row has an axis of its own else."""
        if array.ndim == len(self.sizes):
            return array
        return array.reshape(array.shape[0] if batching else array.shape[:0])


def has_batch_axis(path: Path, inputs: Sequence[Axes]) -> bool:
    """Whether the first axis of all inputs is that of the batch.

    Raises:
        PyTritonValidationError: It is not known.
    """
    firsts = [each.sizes[0] if each.sizes else 0 for each in inputs]
    if all(isinstance(first, int) for first in firsts):
        return False
    names = {first for first in firsts if isinstance(first, str)}
    later = {size for each in inputs for size in each.sizes[1:] if isinstance(size, str)}
    elsewhere = any(map(BATCH.search, later)) and not any(map(BATCH.search, names))
    if len(names) > 1 or elsewhere or any(isinstance(first, int) for first in firsts):
        raise PyTritonValidationError(
            f"{path}: which axis is that of the batch? Its inputs are {', '.join(map(str, inputs))}. If it is the "
            "first one of all, load it with batch=True (--batch); else with batch=False (--no-batch)"
        )
    return True


def choose_method(chosen: str | None, methods: Sequence[str], kind: str) -> str:
    """The method to call: the chosen one, or the first.

    Raises:
        PyTritonValidationError: The model has no such method, or none at all.
    """
    if not methods:
        raise PyTritonValidationError(f"{kind} has no method that could be served")
    if chosen is not None and chosen not in methods:
        raise PyTritonValidationError(f"{kind} has no method {chosen!r}; it has {', '.join(methods)}")
    return chosen or methods[0]


def column_schemas(
    names: Sequence[str] | None, count: int, kinds: Mapping[str, Schema], default: Schema, dtype: str
) -> dict[str, Schema]:
    """The inputs of a table: one per column, or :data:`FEATURES` for all if they have no names.

    Args:
        kinds: The schemas of some columns, by name.
        default: That of the others.
        dtype: Of the array with all columns.
    """
    if names is not None and 0 < len({*names}) == len(names) <= MOST_COLUMNS and all(names):
        return {name: kinds.get(name, default) for name in names}
    return {FEATURES: {"type": "array", "dtype": dtype, "shape": [count]}}


def matrix_of(arrays: Arrays, names: Sequence[str], dtype: Any) -> NDArray[Any]:
    """An array of shape ``(rows, columns)`` of the columns of a table, without a copy if they are one array."""
    if len(names) == 1:
        return np.asarray(arrays[names[0]], dtype)
    return np.concatenate([arrays[name] for name in names], axis=1, dtype=dtype, casting="unsafe")
