"""Python values as arrays and back, by the schemas of :mod:`pytriton.signature.schema`.

The worker of a typed function and the clients use the same functions. An array here has the shape ``(rows, *shape)``;
a value is what one row holds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.model_config.dtypes import from_triton_name
from pytriton.signature.schema import Schema
from pytriton.signature.validation import (
    LONGEST,
    NAMES,
    Definitions,
    Path,
    Problem,
    ValueMismatchError,
    array_of,
    checks,
    expectation,
    image_file,
    is_image,
    problems,
    shown,
    to_json,
)

__all__ = ["decode_rows", "encode_rows"]

NUMPY_OF = {"integer": np.int64, "number": np.float64, "boolean": np.bool_}
EXACT: dict[str, set[type]] = {"integer": {int}, "number": {float, int}, "boolean": {bool}, "string": {str}}


def decode_rows(schema: Schema, column: NDArray[Any], path: Path = ()) -> list[Any]:
    """The values of an array's rows.

    Args:
        schema: Of a value.
        column: Shape ``(rows, *shape)``; BYTES as an object array of ``bytes``.
        path: Of the value, for messages.

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
        schema: Of each value.
        values: At least one; NumPy's scalars, enumerations' members and objects such as dataclasses are understood.
        definitions: Of the signature.
        path: Of the values, for messages.
        check: Whether ranges, lengths and members of enumerations are checked; types are in any case.

    Returns:
        Shape ``(len(values), *shape)``; BYTES as an object array of ``bytes``.

    Raises:
        ValueMismatchError: A value does not fit, or arrays or lists differ in shape.
    """
    if "shape" in schema:
        return _stacked([array_of(schema, value, path) for value in values], path)
    if schema.get("encoding") == "json":
        return _column([_json_text(schema, value, definitions, path, check) for value in values])
    if schema["type"] == "array":
        return _stacked([_list(schema, value, definitions, path, check) for value in values], path)
    return _scalars(schema, values, definitions, path, check)[:, np.newaxis]


# From arrays.


def _is_text(schema: Schema) -> bool:
    return schema.get("type") == "string" and "contentEncoding" not in schema


def _text(data: bytes, path: Path) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ValueMismatchError([Problem(path, "text in UTF-8", f"{data!r:.{LONGEST}}")])


def _texts(row: list[bytes], path: Path) -> Any:
    texts = [_text(data, (*path, index)) for index, data in enumerate(row)]
    return next((text for text in texts if isinstance(text, ValueMismatchError)), texts)


def _from_json(data: bytes, path: Path) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        return ValueMismatchError([Problem(path, "JSON", f"{data!r:.{LONGEST}} ({error})")])


# To arrays.


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
        shapes = ", ".join(sorted({str(array.shape) for array in arrays}))
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
        found = [each for value in values for each in problems(schema, value, definitions, path)]
        if found:
            raise ValueMismatchError(found)
    if is_text:
        array = np.empty(len(values), object)
        array[:] = [value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass") for value in values]
        return array
    try:
        return np.array(values, from_triton_name(schema["dtype"]) if "dtype" in schema else NUMPY_OF[kind])
    except (OverflowError, ValueError, TypeError) as error:
        wanted = f"{NAMES[kind]} of {schema.get('dtype', '64 bits')}"
        raise ValueMismatchError([Problem(path, wanted, shown(value)) for value in values]) from error


def _plain(schema: Schema, value: Any) -> Any:
    """A value of the class that its schema means, if it is another form of one; else as it is."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if "contentEncoding" in schema:
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        return image_file(value) if is_image(value) else value
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
