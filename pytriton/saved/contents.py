"""What the loader of a format gets and gives; the schemas of inputs, and inputs that are columns of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.dtypes import triton_name
from pytriton.signature.schema import Schema

__all__ = [
    "FEATURES",
    "FLOAT",
    "MOST_COLUMNS",
    "NUMBER",
    "STRING",
    "Arrays",
    "Contents",
    "LoadOptions",
    "choose_method",
    "column_schemas",
    "matrix_of",
    "parse_input",
    "tensor_schema",
]

Arrays: TypeAlias = dict[str, NDArray[Any]]

FEATURES = "features"
"""The input of a model whose columns have no names, or too many."""
MOST_COLUMNS = 100  # as inputs of their own
NUMBER: Schema = {"type": "number"}
FLOAT: Schema = {"type": "number", "dtype": "FP32"}
STRING: Schema = {"type": "string"}
TEXTS = ("str", "string", "text")
KINDS = {"BOOL": "boolean", "BYTES": "string", "INT64": "integer", "FP64": "number"}
ONE = ((), (1,))


@dataclass(frozen=True)
class LoadOptions:
    """How a file is loaded.

    Attributes:
        method: Of the model, such as ``predict_proba``; None is the usual one.
        trust: Whether the file may run code.
        inputs: Schemas that take the place of what the file says, by name of the input.
        batch: Whether the first axis of all tensors is that of the batch; None finds out.
        threads: For one call of the model.
    """

    method: str | None = None
    trust: bool = False
    inputs: Mapping[str, Schema] = field(default_factory=dict)
    batch: bool | None = None
    threads: int = 1


@dataclass(frozen=True)
class Contents:
    """What a loader has found in a file.

    Attributes:
        kind: What it is, such as ``scikit-learn LogisticRegression``.
        inputs: The schema of each input, without batch axis.
        predict: From arrays by input, with batch axis, to the result of the library: an array, or several by name.
            Inputs of one number or text per row have the shape ``(rows, 1)``.
        outputs: Shapes of outputs, as far as the file declares them: without batch axis, -1 is any size.
        example: Values of inputs for which zero, or an empty text, is not valid.
        method: The method that ``predict`` calls; empty if the format has none.
        methods: Those that the model has.
        batching: Whether the arrays have a batch axis.
        notes: More lines for the reader of a report.
        results: The schemas of outputs, if no example of inputs is known that could find them out.
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
    refusals: tuple[type[Exception], ...] = (ValueError,)


def tensor_schema(dtype: str, shape: Sequence[int]) -> Schema:
    """The schema of a tensor; one value per row is a number or text, and not an array.

    Args:
        dtype: Its name in the inference protocol, such as ``FP32``.
        shape: Without batch axis; -1 is any size.
    """
    if tuple(shape) not in ONE:
        return {"type": "array", "dtype": dtype, "shape": [*shape]}
    if dtype in KINDS:
        return {"type": KINDS[dtype]}
    return {"type": "number" if dtype.startswith(("FP", "BF")) else "integer", "dtype": dtype}


def parse_input(text: str) -> tuple[str, Schema]:
    """Read ``name:dtype`` or ``name:dtype:shape``, as in ``city:string``, ``file:bytes`` and ``x:float32:3,-1``.

    Raises:
        PyTritonValidationError: It has another form, or the dtype is none of the server's.
    """
    found = re.fullmatch(r"(.+?):([a-z]\w*)(?::([-\d,]+))?", text)
    try:
        if found is None:
            raise ValueError
        name, dtype, sizes = found.groups()
        shape = tuple(map(int, sizes.split(","))) if sizes else ()
        if not all(size == -1 or size > 0 for size in shape):
            raise ValueError
        if dtype == "bytes" and not shape:
            return name, {"type": "string", "contentEncoding": "base64"}
        return name, tensor_schema("BYTES" if dtype in TEXTS else triton_name(np.dtype(dtype)), shape)
    except (TypeError, ValueError) as error:
        raise PyTritonValidationError(
            f"input {text!r} is not NAME:DTYPE or NAME:DTYPE:SHAPE without the batch axis, such as age:int64 or "
            "image:float32:3,-1,-1"
        ) from error


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
