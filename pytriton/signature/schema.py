"""The signature of a typed function, as the configuration of its model contains it.

It is one parameter of ``config.pbtxt``, :data:`KEY`, whose text is JSON::

    {
      "version": 1,
      "passes": "values",
      "description": "How a text sounds.",
      "input": {
        "type": "object",
        "properties": {
          "text": {"type": "string", "description": "English."},
          "threshold": {"type": "number", "minimum": 0, "default": 0.5}
        },
        "required": ["text"]
      },
      "output": {
        "type": "object",
        "properties": {"label": {"enum": ["good", "bad"], "type": "string"}, "score": {"type": "number"}},
        "required": ["label", "score"]
      },
      "result": "object",
      "examples": [{"input": {"text": "what a day"}, "output": {"label": "good", "score": 0.9}}],
      "$defs": {}
    }

``input`` and ``output`` are objects of JSON Schema (2020-12) with one property for each input and output of the model.
``passes`` is ``"values"`` if the function is called with the values of one row, and ``"arrays"`` if it gets the
tensors. ``result`` is ``"value"`` if the model has one output, which is the function's result, and ``"object"`` if the
result is an object with a member for each output. ``examples`` may be missing. A reader ignores keys that it does not
know, and a text with a higher version.

A property says how the tensor of its name contains its value, without the batch axis:

==================================================  ===========================================================
property                                            tensor
==================================================  ===========================================================
``"encoding": "json"``                              BYTES ``(1,)``: JSON in UTF-8; ``$ref`` is into ``$defs``
``"dtype": "FP32", "shape": [3, -1]``               an array of that dtype and shape; -1 is any size
``"dtype": "FP32"`` alone                           one number of that dtype, ``(1,)``
``"type": "integer"``, ``"number"``, ``"boolean"``  INT64, FP64, BOOL ``(1,)``
``"type": "string"``                                BYTES ``(1,)``: UTF-8
the same, ``"contentEncoding": "base64"``           BYTES ``(1,)``: the bytes themselves; base64 is for JSON alone
the same, ``"contentMediaType": "image/*"``         BYTES ``(1,)``: an image file, such as PNG or JPEG
``"type": "array"`` of one of these                 ``(-1,)`` of the same
a floating-point one, ``"nullable": true``          null is NaN
==================================================  ===========================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.dtypes import from_triton_name, triton_name
from pytriton.model_config.tensor import Tensor, TensorSpec
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "ARRAYS",
    "KEY",
    "OBJECT",
    "RESULT",
    "VALUE",
    "VALUES",
    "Schema",
    "Signature",
    "is_native",
    "schema_in",
    "tensor_of",
    "tensor_schema",
]

KEY = "pytriton.signature"
VERSION = 1
VALUES, ARRAYS = "values", "arrays"
VALUE, OBJECT = "value", "object"
RESULT = "result"
"""The name of the one output of a function whose result is a value."""

Schema = dict[str, Any]

_SCALARS = {"integer": "INT64", "number": "FP64", "boolean": "BOOL", "string": "BYTES"}
_KINDS = {dtype: kind for kind, dtype in _SCALARS.items()}


@dataclass(frozen=True)
class Signature:
    """What a typed function takes and returns.

    Attributes:
        inputs: The schema of each input of the model.
        required: Names of those that a request must have.
        outputs: The schema of each output of the model.
        present: Names of those that a result always has; others are None in JSON where the result lacks them.
        passes: VALUES or ARRAYS.
        result: VALUE or OBJECT.
        description: The first paragraph of the docstring.
        examples: Of requests and their results, ``{"input": {...}, "output": ...}``, as JSON.
        definitions: What ``$ref`` refers to, by name.
    """

    inputs: Mapping[str, Schema]
    required: tuple[str, ...]
    outputs: Mapping[str, Schema]
    present: tuple[str, ...]
    passes: str = VALUES
    result: str = VALUE
    description: str = ""
    examples: tuple[Schema, ...] = ()
    definitions: Mapping[str, Schema] = field(default_factory=dict)

    @classmethod
    def of(cls, config: TritonModelConfig) -> Signature | None:
        """The signature of a model; None if its tensors were declared, or if a newer version wrote it."""
        text = config.backend_parameters.get(KEY)
        return None if text is None else cls.parse(text)

    @classmethod
    def of_tensors(cls, config: TritonModelConfig) -> Signature:
        """The signature of a model whose tensors were declared: each input and output is an array of one row."""
        inputs, outputs = config.inputs or (), config.outputs or ()
        return cls(
            inputs={each.name: _array(each) for each in inputs},
            required=tuple(each.name for each in inputs if not each.optional),
            outputs={each.name: _array(each) for each in outputs},
            present=tuple(each.name for each in outputs),
            passes=ARRAYS,
            result=OBJECT,
        )

    @classmethod
    def parse(cls, text: str) -> Signature | None:
        """Read JSON; None if it is not a signature of a version that is known here."""
        try:
            data = json.loads(text)
            if data["version"] > VERSION:
                return None
            inputs, outputs = data["input"]["properties"], data["output"]["properties"]
            if not all(isinstance(each, dict) for each in (*inputs.values(), *outputs.values())):
                return None
            return cls(
                inputs,
                tuple(data["input"].get("required", ())),
                outputs,
                tuple(data["output"].get("required", ())),
                data["passes"],
                data["result"],
                data.get("description", ""),
                tuple(data.get("examples", ())),
                data.get("$defs", {}),
            )
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            return None

    def to_json(self) -> str:
        """The text for the model's configuration."""
        data = {
            "version": VERSION,
            "passes": self.passes,
            "description": self.description,
            "input": _object(self.inputs, self.required),
            "output": _object(self.outputs, self.present),
            "result": self.result,
            "examples": list(self.examples),
            "$defs": dict(self.definitions),
        }
        return json.dumps({key: value for key, value in data.items() if value not in ("", [], {})}, ensure_ascii=False)


def _object(properties: Mapping[str, Schema], required: tuple[str, ...]) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _array(tensor: TensorSpec) -> Schema:
    return {"dtype": triton_name(tensor.dtype), "shape": [*tensor.shape]}


def is_native(schema: Schema) -> bool:
    """Whether values of a schema have a tensor of their own; others are JSON."""
    if "dtype" in schema or schema.get("type") in _SCALARS:
        return True
    return schema.get("type") == "array" and schema.get("items", {}).get("type") in _SCALARS


def tensor_of(name: str, schema: Schema, optional: bool = False) -> Tensor:
    """The tensor that carries values of a property."""
    if schema.get("encoding") == "json":
        return Tensor(name=name, shape=(1,), dtype=bytes, optional=optional)
    if "shape" in schema:
        return Tensor(
            name=name, shape=tuple(schema["shape"]), dtype=from_triton_name(schema["dtype"]), optional=optional
        )
    is_list = schema["type"] == "array"
    scalar = schema["items"] if is_list else schema
    dtype = from_triton_name(scalar.get("dtype") or _SCALARS[scalar["type"]])
    return Tensor(name=name, shape=(-1,) if is_list else (1,), dtype=dtype, optional=optional)


def tensor_schema(dtype: str, shape: Sequence[int]) -> Schema:
    """The schema of a tensor; one value per row is a number or text, and not an array.

    Args:
        dtype: Its name in the inference protocol, such as ``FP32``.
        shape: Without batch axis; -1 is any size.
    """
    if tuple(shape) not in ((), (1,)):
        return {"type": "array", "dtype": dtype, "shape": [*shape]}
    if dtype in _KINDS:
        return {"type": _KINDS[dtype]}
    return {"type": "number" if dtype.startswith(("FP", "BF")) else "integer", "dtype": dtype}


def schema_in(name: str, text: str) -> Schema:
    """The schema in ``dtype`` or ``dtype:shape``, without batch axis, as in ``string``, ``bytes`` and ``float32:3,-1``.

    Args:
        name: Of the input, for the error.

    Raises:
        PyTritonValidationError: It has another form, or the dtype is none of the server's.
    """
    dtype, separator, sizes = text.partition(":")
    try:
        shape = [int(size) for size in sizes.split(",")] if separator else []
        if not all(size == -1 or size > 0 for size in shape):
            raise ValueError(f"{sizes} is no shape")
        if dtype == "bytes" and not shape:
            return {"type": "string", "contentEncoding": "base64"}
        known = "BYTES" if dtype in ("str", "string", "text") else triton_name(dtype)
    except ValueError as error:
        raise PyTritonValidationError(
            f"input {f'{name}:{text}'!r} is not NAME:DTYPE or NAME:DTYPE:SHAPE without the batch axis, such as "
            "age:int64 or image:float32:3,-1,-1"
        ) from error
    return {"type": "array", "dtype": known, "shape": shape} if shape else tensor_schema(known, ())
