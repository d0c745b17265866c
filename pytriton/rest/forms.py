"""Inputs that come as parts of a form, as parameters of the URL, or as a whole body: texts and bytes, not JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray
from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header

from pytriton.model_config.dtypes import from_triton_name
from pytriton.rest.bodies import OCTETS, is_npy, read_npy
from pytriton.rest.costs import SMALL_BYTES, Charges
from pytriton.rest.errors import RestError
from pytriton.rest.json_arrays import InvalidJsonError, parse, plain
from pytriton.signature.json_texts import size_of
from pytriton.signature.problems import Path, Problem, Problems, ValueMismatchError
from pytriton.signature.schema import Schema, tensor_of

__all__ = ["Part", "fields_of", "parse_form", "parse_query", "raw_array"]

MOST_PARTS = 1000
MOST_HEADERS = 32  # of a part
MOST_HEADER_BYTES = 8192


class Part(NamedTuple):
    """A part of a form.

    Attributes:
        content: Its bytes.
        media_type: As declared; empty if it is not.
        is_text: Whether it is a parameter of the URL, which has no bytes.
    """

    content: bytes
    media_type: str = ""
    is_text: bool = False


def parse_form(content_type: bytes, body: bytes) -> dict[str, list[Part]]:
    """The parts of a form by name.

    Args:
        content_type: The header of the request.

    Raises:
        RestError: It is no form.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise RestError(400, "INVALID_REQUEST", "the content type of a form has a boundary, this one has none")
    form = _Form()
    try:
        parser = MultipartParser(boundary, form.callbacks())
        parser.write(body)
        parser.finalize()
    except (MultipartParseError, ValueError) as error:
        raise RestError(400, "INVALID_REQUEST", f"the body is no multipart form: {error}") from error
    if not form.ended:
        raise RestError(400, "INVALID_REQUEST", "the body is no multipart form: its end is missing")
    return form.parts


class _Form:
    """Collects the parts of a form."""

    def __init__(self) -> None:
        self.parts: dict[str, list[Part]] = {}
        self.ended = False
        self._count = 0
        self._begin_part()

    def callbacks(self) -> Any:
        """For the parser."""
        return {
            "on_part_begin": self._begin_part,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_header_field": lambda data, start, end: self._add(self._field, data[start:end]),
            "on_header_value": lambda data, start, end: self._add(self._value, data[start:end]),
            "on_header_end": self._end_header,
            "on_end": self._end,
        }

    def _begin_part(self) -> None:
        self._content = bytearray()  # as it may come in pieces of some bytes
        self._headers: dict[bytes, bytes] = {}
        self._field = bytearray()
        self._value = bytearray()

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._content += memoryview(data)[start:end]

    def _add(self, buffer: bytearray, data: bytes) -> None:
        buffer += data
        if len(buffer) > MOST_HEADER_BYTES:
            raise ValueError("a header of a part is too long")

    def _end_header(self) -> None:
        if len(self._headers) >= MOST_HEADERS:
            raise ValueError(f"a part has more than {MOST_HEADERS} headers")
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _end_part(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name")
        if name is None:
            raise ValueError("a part has no name")
        self._count += 1
        if self._count > MOST_PARTS:
            raise ValueError(f"it has more than {MOST_PARTS} parts")
        kind, _ = parse_options_header(self._headers.get(b"content-type", b""))
        part = Part(bytes(self._content), kind.decode("latin-1").lower())
        self.parts.setdefault(name.decode("utf-8", "replace"), []).append(part)

    def _end(self) -> None:
        self.ended = True


def parse_query(query: bytes) -> dict[str, list[Part]]:
    """The parameters of a URL by name; raises RestError if there are too many."""
    parts: dict[str, list[Part]] = {}
    try:
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_PARTS)
    except ValueError as error:
        raise RestError(400, "INVALID_REQUEST", f"the URL's parameters cannot be read: {error}") from error
    for name, value in fields:
        parts.setdefault(name, []).append(Part(value.encode("utf-8", "surrogatepass"), is_text=True))
    return parts


def value_of(schema: Schema | None, parts: list[Part], path: Path) -> Any:
    """The value of an input.

    Args:
        schema: Of the input; None if there is no such input, of which others complain.
        parts: All of its name.

    Returns:
        A value of JSON, ``bytes``, or an array.

    Raises:
        ValueMismatchError: A part is no array, or no text, or there are several where one is expected.
    """
    if schema is None:
        return None
    is_list = schema.get("type") == "array" and "shape" not in schema
    if is_list and (len(parts) > 1 or schema["items"].get("type") == "string"):
        values = [_value(schema["items"], part, (*path, index)) for index, part in enumerate(parts)]
        return values if len(parts) > 1 else _listed(schema, parts[0], values)
    if len(parts) > 1:
        raise ValueMismatchError([Problem(path, "one part", f"{len(parts)} of this name")])
    return _value(schema, parts[0], path)


def _listed(schema: Schema, part: Part, values: list[Any]) -> list[Any]:
    """A list of strings of which one part came: the list as JSON, or its only string."""
    found = _from_json(part.content)
    is_file = "contentEncoding" in schema["items"] and not part.is_text
    return found if isinstance(found, list) and not is_file else values


def _value(schema: Schema, part: Part, path: Path) -> Any:
    content = part.content
    if "contentEncoding" in schema and not part.is_text:
        return content
    if schema.get("type") == "string":
        return _text(content, path)
    if "shape" in schema:
        return _array(schema, part, path)
    found = _from_json(content)
    if found is not NO_JSON:
        return found
    if is_npy(content):
        return _npy(content, path)
    return _text(content, path)


def _array(schema: Schema, part: Part, path: Path) -> Any:
    content = part.content
    if is_npy(content):
        return _npy(content, path)
    if schema["dtype"] != "BYTES" and part.media_type == OCTETS:
        return raw_array(schema, content, path)
    found = _from_json(content)
    if found is not NO_JSON and (schema["dtype"] != "BYTES" or isinstance(found, (dict, list))):
        return found
    return content if schema["dtype"] == "BYTES" and not part.is_text else _text(content, path)


def raw_array(schema: Schema, content: bytes, path: Path) -> NDArray[Any]:
    """The values of an array as they are in memory: little-endian, in C order, with rows if there are more.

    Raises:
        ValueMismatchError: The size is not that of an array, or the shape does not follow from it.
    """
    dtype = np.dtype(from_triton_name(schema["dtype"])) if "dtype" in schema else np.dtype(tensor_of("", schema).dtype)
    shape = list(tensor_of("", schema).shape) or [1]
    size = dtype.itemsize
    for each in shape:
        size *= 1 if each == -1 else each
    if shape.count(-1) > 1:
        raise ValueMismatchError([Problem(path, "JSON or .npy, as several sizes are unknown", "raw bytes")])
    if dtype.kind == "b" and content.strip(b"\0\1"):
        raise ValueMismatchError([Problem(path, "bytes that are 0 or 1", "others")])
    if not size or not content or len(content) % size:
        raise ValueMismatchError([Problem(path, f"a multiple of {size} bytes", f"{len(content)} bytes")])
    flat = np.frombuffer(content, dtype)
    if -1 in shape or len(content) == size:
        return flat.reshape(shape)
    return flat.reshape([-1, *shape])


def _npy(content: bytes, path: Path) -> NDArray[Any]:
    try:
        return read_npy(content)
    except (ValueError, OverflowError, SyntaxError, TypeError) as error:
        raise ValueMismatchError([Problem(path, "a file of NumPy (.npy)", str(error)[:200])]) from error


NO_JSON: Any = object()


def _from_json(content: bytes) -> Any:
    try:
        return plain(parse(content))
    except InvalidJsonError:
        return NO_JSON


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueMismatchError([Problem(path, "text in UTF-8", "other bytes")]) from None


def _tree_bytes(schema: Schema, content: bytes) -> int:
    """What a part takes as Python's objects, if it is JSON and is read as that."""
    is_read_as_it_is = schema.get("type") == "string" or is_npy(content)
    return 0 if is_read_as_it_is else size_of(content).tree_bytes


def fields_of(
    inputs: Mapping[str, Schema], parts: Mapping[str, list[Part]], charges: Charges | None = None
) -> dict[str, Any]:
    """The object that a form stands for; raises ValueMismatchError with all problems."""
    fields: dict[str, Any] = {}
    found = Problems()
    for name, each in parts.items():
        for part in each:
            if charges is not None and len(part.content) >= SMALL_BYTES and name in inputs:
                charges.charge(_tree_bytes(inputs[name], part.content))
        try:
            fields[name] = value_of(inputs.get(name), each, (name,))
        except ValueMismatchError as error:
            found.add_error(error)
    if found:
        raise found.error()
    return fields
