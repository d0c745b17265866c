"""Between JSON and the arrays of one model's requests and responses. It does not know how bytes arrive.

A value of JSON is what :func:`pytriton.rest.json_arrays.parse` returns. Forms have more kinds: ``bytes``, and arrays.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pytriton.client.codec import Arrays
from pytriton.model_config.dtypes import from_triton_name
from pytriton.rest.json_arrays import (
    SPECIAL_NUMBERS,
    check_elements,
    count_lists,
    depth_exceeds,
    is_list,
    is_object,
    no_charge,
    numbers,
    plain,
    shown_json,
    special,
    to_json,
)
from pytriton.rest.models import Model
from pytriton.signature.arrays import array_of
from pytriton.signature.problems import (
    LONGEST,
    MOST_PROBLEMS,
    Path,
    Problem,
    Problems,
    ValueMismatchError,
    expectation,
    shown,
)
from pytriton.signature.schema import Schema, tensor_of
from pytriton.signature.validation import checks
from pytriton.signature.values import decode_rows, encode_rows

__all__ = ["Converter", "Group", "group_rows"]


SCALARS = ("integer", "number", "boolean", "string")


class Converter:
    """Converts the requests and responses of one model.

    Args:
        max_depth: Deepest nesting of values that travel as JSON.
    """

    def __init__(self, model: Model, max_depth: int) -> None:
        signature = model.signature
        self.model = model
        self._inputs = {name: _Input(name, schema, max_depth) for name, schema in signature.inputs.items()}
        self._outputs = {name: _writer(schema) for name, schema in signature.outputs.items()}
        self._required = frozenset(signature.required)
        self._present = frozenset(signature.present)
        self._definitions = signature.definitions
        self._record, key = model.record or ("", "")
        self._members = signature.definitions.get(key, {}).get("properties", {}).keys()

    def row(
        self, fields: Any, lists: int = -1, path: Path = (), charge_objects: Callable[[], None] = no_charge
    ) -> Arrays:
        """The inputs of a request with one row.

        Args:
            fields: An object of JSON, or a mapping; of the members of the only input if that is a record, as well.
            lists: How many lists the JSON text has, if that is known and it has nothing else than this object.
            charge_objects: Is called before lists or objects become Python's.

        Returns:
            Name to array of shape ``(1, *shape)``; absent optional inputs are not there.

        Raises:
            ValueMismatchError: Some values do not fit, are missing, or are no inputs; it names all of them.
        """
        if not is_object(fields) and not isinstance(fields, Mapping):
            raise ValueMismatchError([Problem(path, "an object", shown_json(fields))])
        arrays: Arrays = {}
        found = Problems()
        read: list[tuple[Any, tuple[int, ...], Path]] = []
        given = set(fields.keys())
        if self._is_record(given):
            known = self._inputs[self._record]
            return {self._record: known.encode(fields, self._definitions, path, charge_objects)}
        for name, known in self._inputs.items():
            value = fields[name] if name in given else None
            if value is None and (name not in given or name not in self._required):
                continue
            here = (*path, name)
            try:
                array = known.numbers(value, here)
                if array is None:
                    array = known.encode(value, self._definitions, here, charge_objects)
                else:
                    read.append((value, array.shape[1:], here))
                arrays[name] = array
            except ValueMismatchError as error:
                found.add_error(error)
        if not given <= self._inputs.keys():
            others = [name for name in fields.keys() if name not in self._inputs]  # noqa: SIM118 (simdjson has no other)
            told = [Problem((*path, name), self._one_of(name), "another name") for name in others[:MOST_PROBLEMS]]
            found.add(told, len(others) - len(told))
        if not self._required <= arrays.keys():
            for name in self.model.signature.required:
                if name not in given:
                    found.add([Problem((*path, name), expectation(self.model.signature.inputs[name]), "nothing")])
        for _, shape, _ in read:
            lists -= count_lists(shape)
        if lists and read and not found:
            found = _misplaced_lists(read)
        if found:
            raise found.error()
        return arrays

    def result(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The outputs of one row as an object for :func:`pytriton.rest.json_arrays.dumps`.

        Args:
            arrays: By name, without batch axis.

        Raises:
            ValueMismatchError: An output is no JSON, or no UTF-8.
        """
        result: dict[str, Any] = {}
        for name, write in self._outputs.items():
            array = arrays.get(name)
            if array is None:
                continue
            value = write(array, (name,))
            if (value is not None and value is not NULL) or name in self._present:
                result[name] = value
        return result

    def _is_record(self, given: Set[str]) -> bool:
        """Whether the names of an object are members of the only input, which is a record."""
        if not self._record or self._record in given:
            return False
        return bool(given & self._members) or (not given and self._record in self._required)

    def _one_of(self, name: str) -> str:
        listed = ", ".join(json.dumps(each, ensure_ascii=False) for each in self._inputs)
        near = get_close_matches(name[:LONGEST], self._inputs, 1)
        hint = f" (did you mean {json.dumps(near[0], ensure_ascii=False)}?)" if near else ""
        return f"one of the inputs {listed}{hint}" if listed else "no inputs"


def _misplaced_lists(read: Iterable[tuple[Any, tuple[int, ...], Path]]) -> Problems:
    found = Problems()
    for value, shape, path in read:
        try:
            check_elements(value, shape, path)
        except ValueMismatchError as error:
            found.add_error(error)
    return found


# Inputs.


class _Input:
    """One input: reads values of JSON."""

    def __init__(self, name: str, schema: Schema, max_depth: int) -> None:
        self._schema = schema
        self._max_depth = max_depth
        self._has_json = schema.get("encoding") == "json"
        tensor = tensor_of(name, schema)
        self._dtype = np.dtype(tensor.dtype)
        self._shape = list(tensor.shape)
        is_number = self._dtype.kind in "fiu"
        is_array = "shape" in schema or schema.get("type") == "array"
        self._is_plain = is_number and is_array and bool(self._shape) and not self._has_json and not checks(schema)
        self._is_scalar = not is_array and not self._has_json and schema.get("type") in SCALARS
        self._read = _reader(schema)

    def numbers(self, value: Any, path: Path) -> NDArray[Any] | None:
        """Lists of numbers as an array with one row; None if it is something else."""
        if not self._is_plain or isinstance(value, list) or not is_list(value):
            return None
        array = numbers(value, self._dtype, self._shape, path)
        return None if array is None else array[np.newaxis]

    def encode(
        self, value: Any, definitions: Mapping[str, Schema], path: Path, charge_objects: Callable[[], None]
    ) -> NDArray[Any]:
        """Any value as an array with one row; raises ValueMismatchError."""
        if is_list(value) or is_object(value):
            if self._is_scalar:
                raise ValueMismatchError([Problem(path, expectation(self._schema), shown_json(value))])
            charge_objects()
        value = plain(value)
        if self._has_json and depth_exceeds(value, self._max_depth):
            raise ValueMismatchError([Problem(path, f"at most {self._max_depth} levels of nesting", "more")])
        if self._read is not None:
            value = self._read(value, path)
        array = encode_rows(self._schema, [value], definitions, path)
        return array[:, np.newaxis] if self._schema.get("shape") == [] else array


def _reader(schema: Schema) -> Callable[[Any, Path], Any] | None:
    """What makes of a value of JSON one that :func:`encode_rows` takes; None for what is such already."""
    if schema.get("encoding") == "json":
        return None
    if "shape" in schema:
        return _array_reader(schema)
    if schema["type"] == "array":
        read = _reader(schema["items"])
        return read and (
            lambda value, path: (
                [read(item, (*path, index)) for index, item in enumerate(value)] if isinstance(value, list) else value
            )
        )
    if "contentEncoding" in schema:
        return _bytes
    return _number if schema["type"] == "number" else None


def _number(value: Any, path: Path) -> Any:
    return SPECIAL_NUMBERS.get(value, value) if isinstance(value, str) else value


def _integer(value: Any, path: Path) -> Any:
    """An integer also where it is written as 1.0 or 1e3, which JSON does not tell apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bytes(value: Any, path: Path) -> Any:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise ValueMismatchError([Problem(path, "bytes as base64", shown(value))]) from None
    return value


def _array_reader(schema: Schema) -> Callable[[Any, Path], Any]:
    shape: list[int] = schema["shape"]
    is_single = shape in ([], [1])
    leaf = LEAVES.get(np.dtype(from_triton_name(schema["dtype"])).kind)

    def read(value: Any, path: Path) -> Any:
        if isinstance(value, np.ndarray):
            return value
        if is_single and shape and not isinstance(value, list):
            value = [value]
        if leaf is not None:
            value = _each(value, leaf, len(shape), path)
        return array_of(schema, value, path)

    return read


def _each(value: Any, leaf: Callable[[Any, Path], Any], depth: int, path: Path) -> Any:
    """Nested lists with each element converted."""
    if depth and isinstance(value, list):
        return [_each(item, leaf, depth - 1, (*path, index)) for index, item in enumerate(value)]
    return leaf(value, path)


def _element(value: Any, path: Path) -> Any:
    """An element of BYTES: text, or an object with base64."""
    if isinstance(value, dict) and [*value] == ["b64"]:
        return _bytes(value["b64"], (*path, "b64"))
    if not isinstance(value, (str, bytes, list)):
        raise ValueMismatchError([Problem(path, 'a string, or {"b64": ...}', shown(value))])
    return value


LEAVES = {"f": _number, "i": _integer, "u": _integer, "S": _element}  # by the kind of the dtype

# Outputs.

NULL = orjson.Fragment(b"null")
Writer = Callable[[NDArray[Any], Path], Any]


def _writer(schema: Schema) -> Writer:
    """What makes a value of JSON from the array of one row."""
    if schema.get("encoding") == "json":
        return _json
    if "shape" in schema:
        return _texts if schema["dtype"] == "BYTES" else _as_it_is if schema["shape"] else _scalar
    if schema["type"] == "array":
        return _strings(schema["items"]) if schema["items"]["type"] == "string" else _as_it_is
    if schema["type"] == "string":
        first = _strings(schema)
        return lambda array, path: first(array, path)[0]
    return _scalar


def _as_it_is(array: NDArray[Any], path: Path) -> Any:
    return to_json(array)


def _scalar(array: NDArray[Any], path: Path) -> Any:
    return special(array.reshape(-1).tolist()[0])


def _json(array: NDArray[Any], path: Path) -> Any:
    (text,) = array.reshape(-1).tolist()
    if text == b"null":
        return NULL
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:  # it has NaN
        (value,) = decode_rows({"encoding": "json"}, array.reshape(1, 1), path)
        if isinstance(value, ValueMismatchError):
            raise value from None
        return orjson.Fragment(json.dumps(special(value)).encode())
    return orjson.Fragment(text)


def _strings(schema: Schema) -> Writer:
    if "contentEncoding" in schema:
        return lambda array, path: [base64.b64encode(each).decode() for each in array.reshape(-1).tolist()]

    def write(array: NDArray[Any], path: Path) -> Any:
        try:
            return [each.decode() for each in array.reshape(-1).tolist()]
        except UnicodeDecodeError as error:
            raise ValueMismatchError([Problem(path, "text in UTF-8", f"{error.object!r:.60}")]) from None

    return write


def _texts(array: NDArray[Any], path: Path) -> Any:
    """BYTES as text where they are UTF-8, else as an object with base64."""
    return _each(array.tolist(), _text_or_base64, array.ndim, path)


def _text_or_base64(value: bytes, path: Path) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


# Batches.


@dataclass(slots=True)
class Group:
    """Rows that travel as one request.

    Attributes:
        rows: Their indices.
        arrays: Of shape ``(len(rows), *shape)``.
    """

    rows: Sequence[int]
    arrays: Arrays


def group_rows(rows: Sequence[Arrays], most: int) -> list[Group]:
    """Put rows that have the same inputs of the same shapes together.

    Args:
        rows: Of shape ``(1, *shape)``.
        most: Rows of a group.
    """
    alike: dict[Any, list[int]] = {}
    for index, row in enumerate(rows):
        alike.setdefault(frozenset((name, array.shape) for name, array in row.items()), []).append(index)
    groups = []
    for indices in alike.values():
        for start in range(0, len(indices), most):
            part = indices[start : start + most]
            names = rows[part[0]]
            groups.append(Group(part, {name: np.concatenate([rows[index][name] for index in part]) for name in names}))
    return groups
