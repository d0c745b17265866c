"""Folders of MLflow, by its ``pyfunc``. Loading one may run any code: it names the module that loads it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.dtypes import triton_name
from pytriton.saved.contents import FEATURES, FLOAT, NUMBER, STRING, Arrays, Contents, LoadOptions
from pytriton.signature.schema import Schema, tensor_schema
from pytriton.signature.values import decoded_texts

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # which it would send from its import on
from mlflow import pyfunc
from mlflow.exceptions import MlflowException

__all__ = ["read"]

# The types of columns, and what makes a column of an array of shape (rows,).
TYPES: dict[str, tuple[Schema, Callable[[Any], Any]]] = {
    "boolean": ({"type": "boolean"}, np.asarray),
    "integer": ({"type": "integer", "dtype": "INT32"}, np.asarray),
    "long": ({"type": "integer"}, np.asarray),
    "float": (FLOAT, np.asarray),
    "double": (NUMBER, np.asarray),
    "string": (STRING, lambda texts: [text.decode() for text in texts]),
    "binary": ({"type": "string", "contentEncoding": "base64"}, list),
    "datetime": (
        {"type": "string", "format": "date-time"},
        lambda texts: pandas.to_datetime([*map(bytes.decode, texts)]),
    ),
}
OTHERS: tuple[Schema, Callable[[Any], Any]] = ({"encoding": "json"}, lambda texts: [*map(json.loads, texts)])
REFUSALS = (ValueError, MlflowException)


def read(path: Path, options: LoadOptions) -> Contents:
    """Load a model.

    Raises:
        PyTritonValidationError: The folder is damaged, needs modules that are not installed, or has no signature.
    """
    model = pyfunc.load_model(str(path))
    signature = model.metadata.signature
    flavors = [name for name in model.metadata.flavors if name != pyfunc.FLAVOR_NAME]
    kind = f"MLflow {', '.join(flavors) or 'pyfunc'}"
    if signature is None or signature.inputs is None:
        raise PyTritonValidationError(f"{path} has no signature; log the model with signature= or input_example=")
    if signature.inputs.is_tensor_spec():
        return _of_tensors(kind, model, signature.inputs.inputs)
    columns = {
        each.name or FEATURES: TYPES.get(each.type.name.lower() if hasattr(each.type, "name") else "", OTHERS)
        for each in signature.inputs.inputs
    }

    def predict(arrays: Arrays) -> Any:
        table = {name: make(arrays[name][:, 0]) for name, (_, make) in columns.items()}
        return model.predict(pandas.DataFrame(table))

    inputs = {name: schema for name, (schema, _) in columns.items()}
    return Contents(kind, inputs, predict, example=_example(model, inputs), refusals=REFUSALS)


def _of_tensors(kind: str, model: Any, specs: Any) -> Contents:
    named = {spec.name or FEATURES: spec for spec in specs}
    inputs = {
        name: tensor_schema("BYTES" if spec.type.kind in "OU" else triton_name(spec.type), spec.shape[1:])
        for name, spec in named.items()
    }

    def predict(arrays: Arrays) -> Any:
        given = {name: _fitted(decoded_texts(arrays[name], name), spec) for name, spec in named.items()}
        return model.predict(given if specs[0].name else given[FEATURES])

    return Contents(kind, inputs, predict, refusals=REFUSALS)


def _fitted(array: NDArray[Any], spec: Any) -> NDArray[Any]:
    """An array with the rank and the kind of texts that a signature asks for."""
    array = array.astype(spec.type) if spec.type.kind == "U" else array
    return array if len(spec.shape) > 1 else array.reshape(len(array))


def _example(model: Any, inputs: dict[str, Schema]) -> dict[str, Any]:
    """The first row of the model's own example, if it has a table with all columns."""
    try:
        table = model.input_example
    except Exception:  # it may be missing, though the folder names it
        return {}
    if not isinstance(table, pandas.DataFrame) or not len(table) or not {*inputs} <= {*map(str, table.columns)}:
        return {}
    row = table.iloc[0].to_dict()
    return {str(name): value for name, value in row.items() if value == value}  # without NaN
