"""Python values as arrays and back, by the schemas of :mod:`pytriton.signature.schema`.

The worker of a typed function and the clients use the same functions. An array here has the shape ``(rows, *shape)``;
a value is what one row holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from pytriton.model_config.dtypes import from_triton_name
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.signature.arrays import array_of
from pytriton.signature.json_texts import size_of
from pytriton.signature.json_values import image_file, is_image, to_json
from pytriton.signature.problems import NAMES, Path, Problem, Problems, ValueMismatchError, expectation, shown
from pytriton.signature.schema import OBJECT, RESULT, Schema, Signature
from pytriton.signature.validation import Definitions, checks, problems

__all__ = ["SignatureCodec", "decode_rows", "decoded_texts", "encode_rows", "encoded_texts", "rows_of", "with_texts"]

MOST_TREE_BYTES = 2**30  # of the Python objects that a JSON text becomes
COUNTED_BYTES = 2**20  # a smaller text cannot become so many
MOST_SHAPES = 10  # in a message
NUMPY_OF = {"integer": np.int64, "number": np.float64, "boolean": np.bool_}
EXACT: dict[str, set[type]] = {"integer": {int}, "number": {float, int}, "boolean": {bool}, "string": {str}}


def decode_rows(schema: Schema, column: NDArray[Any], path: Path = ()) -> list[Any]:
    """The values of an array's rows.

    Args:
        column: Shape ``(rows, *shape)``; BYTES as an object array of ``bytes``.

    Returns:
        One value per row; a :class:`ValueMismatchError` in the place of one that is no JSON, or no UTF-8. Arrays are
        views. Nothing else is checked; see :func:`problems`.
    """
    if "shape" in schema:
        return [
            column[index, ...].reshape(()) if not schema["shape"] else column[index] for index in range(len(column))
        ]
    if schema.get("encoding") == "json":
        return [_from_json(text, path) for text in column.reshape(-1).tolist()]
    if schema["type"] == "array":
        rows = column.tolist()
        return [_texts(row, path) for row in rows] if _is_text(schema["items"]) else rows
    values = column.reshape(-1).tolist()
    return [_text(value, path) for value in values] if _is_text(schema) else values


def encode_rows(
    schema: Schema, values: Sequence[Any], definitions: Definitions, path: Path = (), *, check: bool = True
) -> NDArray[Any]:
    """An array of which each row holds a value.

    Args:
        values: At least one; NumPy's scalars, enumerations' members and objects such as dataclasses are understood.
        check: Whether ranges, lengths and members of enumerations are checked; types are in any case.

    Returns:
        Shape ``(len(values), *shape)``; BYTES as an object array of ``bytes``.

    Raises:
        ValueMismatchError: A value does not fit, or arrays or lists differ in shape.
    """
    if "shape" in schema:
        return _stacked([array_of(schema, _listed(schema, value), path) for value in values], path)
    if schema.get("encoding") == "json":
        return _column([_json_text(schema, value, definitions, path, check) for value in values])
    if schema["type"] == "array":
        return _stacked([_list(schema, value, definitions, path, check) for value in values], path)
    return _scalars(schema, values, definitions, path, check)[:, np.newaxis]


def decoded_texts(array: NDArray[Any], name: str) -> NDArray[Any]:
    """An array of ``bytes`` with ``str`` in their place; others are not copied.

    Args:
        name: Of the input or output, for the error.

    Raises:
        ValueMismatchError: It has bytes that are not UTF-8.
    """
    if array.dtype != object:
        return array
    texts = np.empty(array.shape, object)
    try:
        texts.reshape(-1)[:] = [data.decode() for data in array.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        raise ValueMismatchError([Problem((name,), "text in UTF-8", shown(error.object))]) from error
    return texts


def encoded_texts(array: NDArray[Any]) -> NDArray[Any]:
    """An array whose texts, if it has such, are objects of class ``bytes``, in UTF-8; others are not copied."""
    if array.dtype.kind not in "OUT":
        return array
    if array.dtype.kind == "O" and not any(isinstance(each, str) for each in array.flat):
        return array
    texts = np.empty(array.shape, object)
    texts.reshape(-1)[:] = [each.encode() if isinstance(each, str) else each for each in array.reshape(-1).tolist()]
    return texts


def rows_of(inputs: Mapping[str, Schema], arrays: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """The values of each row by input.

    Raises:
        ValueMismatchError: A text is not UTF-8.
    """
    columns = [decode_rows(inputs[name], array, (name,)) for name, array in arrays.items()]
    for each in (value for column in columns for value in column):
        if isinstance(each, ValueMismatchError):
            raise each
    return [dict(zip(arrays, row, strict=True)) for row in zip(*columns, strict=True)]


def with_texts(value: Any) -> Any:
    """A value, or those of an object, with ``str`` in place of the ``bytes`` of arrays."""
    if isinstance(value, Mapping):
        return {name: with_texts(each) for name, each in value.items()}
    return decoded_texts(value, "") if isinstance(value, np.ndarray) else value


# From arrays.


def _is_text(schema: Schema) -> bool:
    return schema.get("type") == "string" and "contentEncoding" not in schema


def _text(data: bytes, path: Path) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ValueMismatchError([Problem(path, "text in UTF-8", shown(data))])


def _texts(row: list[bytes], path: Path) -> Any:
    texts = [_text(data, (*path, index)) for index, data in enumerate(row)]
    return next((text for text in texts if isinstance(text, ValueMismatchError)), texts)


def _from_json(data: bytes, path: Path) -> Any:
    if len(data) > COUNTED_BYTES and size_of(data).tree_bytes > MOST_TREE_BYTES:
        expected = f"JSON that takes at most {MOST_TREE_BYTES} bytes of memory"
        return ValueMismatchError([Problem(path, expected, f"a text of {len(data)} that takes more")])
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        return ValueMismatchError([Problem(path, "JSON", f"{shown(data)} ({error!s:.100})")])


# To arrays.


def _listed(schema: Schema, value: Any) -> Any:
    """A value for :func:`array_of`; Python programs, other than JSON, may give one text in place of a list of it."""
    is_text = schema["dtype"] == "BYTES" and isinstance(value, (str, bytes))
    return [value] if is_text and schema["shape"] in ([1], [-1]) else value


def _column(items: Sequence[Any]) -> NDArray[Any]:
    column = np.empty((len(items), 1), object)
    column[:, 0] = items
    return column


def _stacked(arrays: list[NDArray[Any]], path: Path) -> NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0][np.newaxis]
    try:
        return np.stack(arrays)
    except ValueError as error:
        shapes = ", ".join(sorted({str(array.shape) for array in arrays})[:MOST_SHAPES])
        raise ValueMismatchError([Problem(path, "the same shape in all rows of a request", shapes)]) from error


def _scalars(schema: Schema, values: Sequence[Any], definitions: Definitions, path: Path, check: bool) -> NDArray[Any]:
    """Shape ``(len(values),)``."""
    kind = schema["type"]
    is_text = kind == "string"
    exact = {bytes} if "contentEncoding" in schema else EXACT[kind]
    if not exact.issuperset(map(type, values)):
        values = [_plain(schema, value) for value in values]
        check = True
    if check and (checks(schema) or not exact.issuperset(map(type, values))):
        found = Problems(each for value in values for each in problems(schema, value, definitions, path))
        if found:
            raise found.error()
    if is_text:
        array = np.empty(len(values), object)
        array[:] = [value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass") for value in values]
        return array
    try:
        return np.array(values, from_triton_name(schema["dtype"]) if "dtype" in schema else NUMPY_OF[kind])
    except (OverflowError, ValueError, TypeError) as error:
        wanted = f"{NAMES[kind]} of {schema.get('dtype', '64 bits')}"
        raise ValueMismatchError(Problem(path, wanted, shown(value)) for value in values) from error


def _plain(schema: Schema, value: Any) -> Any:
    """A value converted to the class of its schema, if it is another form of one; else the value itself."""
    if value is None and schema.get("nullable"):
        return math.nan
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if "contentEncoding" in schema:
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        return image_file(value) if is_image(value) else value
    if isinstance(value, (date, time, UUID, Decimal)):
        return to_json(value)
    if schema.get("format") == "decimal" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if schema["type"] == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _list(schema: Schema, value: Any, definitions: Definitions, path: Path, check: bool) -> NDArray[Any]:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ValueMismatchError([Problem(path, expectation(schema), shown(value))])
    values = [_plain(schema["items"], item) for item in value]
    if found := problems(schema, values, definitions, path) if check or values != value else []:
        raise ValueMismatchError(found)
    return _scalars(schema["items"], values, definitions, path, check)


def _json_text(schema: Schema, value: Any, definitions: Definitions, path: Path, check: bool) -> bytes:
    try:
        plain = to_json(value)
    except TypeError as error:
        raise ValueMismatchError([Problem(path, expectation(schema), str(error))]) from error
    if check and (found := problems(schema, plain, definitions, path, inside=True)):
        raise ValueMismatchError(found)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


# For clients.


def _holds_text(schema: Schema) -> bool:
    """Whether the tensor of a schema holds texts in UTF-8, or strings that may be such."""
    if schema.get("encoding") == "json":
        return False
    return schema.get("dtype") == "BYTES" or _is_text(schema) or _is_text(schema.get("items", {}))


def _is_text_output(schema: Schema | None) -> bool:
    return schema is not None and "encoding" not in schema and (_is_text(schema) or _is_text(schema.get("items", {})))


class SignatureCodec:
    """Converts the arguments of one model to arrays, and its outputs to results."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature

    @classmethod
    def of(cls, config: TritonModelConfig) -> SignatureCodec | None:
        """The codec of a model; None if its tensors were declared."""
        signature = Signature.of(config)
        return None if signature is None else cls(signature)

    def arrays(self, values: Mapping[str, Any], *, has_rows: bool) -> dict[str, Any]:
        """The inputs of a request; arrays, and inputs that the model does not have, stay as they are.

        Args:
            values: By name; None is left out, unless it is NaN for the model.
            has_rows: Whether each is a list of a value for each row.

        Raises:
            ValueMismatchError: Some values do not fit; it names all of them.
        """
        arrays: dict[str, Any] = {}
        found = Problems()
        for name, value in values.items():
            schema = self.signature.inputs.get(name)
            if schema is None or isinstance(value, np.ndarray):
                arrays[name] = encoded_texts(value) if schema is not None and _holds_text(schema) else value
            elif value is not None or schema.get("nullable"):
                try:
                    rows = self._rows(schema, name, value) if has_rows else self._encoded(schema, name, [value])
                    arrays[name] = rows if has_rows else rows[0]
                except ValueMismatchError as error:
                    found.add_error(error)
        if found:
            raise found.error()
        return arrays

    def result(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """The result for the outputs of one row.

        Args:
            arrays: By name, without batch axis.

        Raises:
            ValueMismatchError: An output is no JSON, or no UTF-8.
            KeyError: An output is missing.
        """
        if self.signature.result != OBJECT:
            return self._decoded(RESULT, arrays[RESULT])
        present = self.signature.present
        members = {name: self._decoded(name, arrays[name]) for name in self.signature.outputs if name in arrays}
        return {name: value for name, value in members.items() if value is not None or name in present}

    def with_texts(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs of a request, with ``str`` in place of ``bytes`` in those that hold texts in UTF-8.

        Raises:
            ValueMismatchError: An output is no UTF-8.
        """
        return {
            name: decoded_texts(array, name) if _is_text_output(self.signature.outputs.get(name)) else array
            for name, array in arrays.items()
        }

    def _rows(self, schema: Schema, name: str, values: Any) -> NDArray[Any]:
        if not isinstance(values, (list, tuple)) or not values:
            raise ValueMismatchError([Problem((name,), "a list of values, one per row", shown(values))])
        return self._encoded(schema, name, values)

    def _encoded(self, schema: Schema, name: str, values: Sequence[Any]) -> NDArray[Any]:
        array = encode_rows(schema, values, self.signature.definitions, (name,))
        return array[:, np.newaxis] if schema.get("shape") == [] else array  # which travels as one column

    def _decoded(self, name: str, array: NDArray[Any]) -> Any:
        (value,) = decode_rows(self.signature.outputs[name], array[np.newaxis], (name,))
        if isinstance(value, ValueMismatchError):
            raise value
        return value
