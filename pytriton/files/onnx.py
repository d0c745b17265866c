"""Checks of an ONNX file before onnxruntime opens it, without the package ``onnx``.

An ONNX file is a message of protobuf (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), and its tensors may name
other files with their data. Only files in the folder of the model, or below it, may be named.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonValidationError

__all__ = ["external_files", "inputs_of_unknown_rank", "looks_like_onnx"]

# The fields by which tensors are reached: message to number of the field to message.
FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
GRAPH = 7
INPUT, NAME, TYPE, TENSOR, SHAPE = 11, 1, 2, 1, 2  # in a graph, in an input, in a type, and in the type of a tensor
VARINT, FIXED64, TEXT, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 100_000  # before the graph
MOST_DEPTH = 64  # of messages in messages
VARINT_BYTES = 10

Bytes = Any  # bytes, or a file that is mapped


def looks_like_onnx(path: Path) -> bool:
    """Whether a file is a message with a graph, as ONNX's are."""
    if not path.is_file() or not path.stat().st_size:
        return False
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            fields = islice(_fields(data, 0, len(data)), MOST_FIELDS)
            return any(number == GRAPH and kind == TEXT for number, kind, _, _ in fields)
    except (OSError, ValueError):
        return False


def external_files(path: Path) -> list[str]:
    """Names of the files that have data of an ONNX file; they are in its folder, or below it.

    Raises:
        PyTritonValidationError: The file is damaged, or names a file outside its folder, or one that is not there.
    """
    folder = path.resolve().parent
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = sorted({*_locations(data, 0, len(data), "model", 0)})
    except ValueError as error:
        raise PyTritonValidationError(f"{path} is a damaged ONNX file ({error}); export the model again") from error
    for name in names:
        target = (folder / name).resolve()
        if not target.is_relative_to(folder):
            raise PyTritonValidationError(
                f"{path} has data in {name!r}, outside its folder; such a file is not loaded. Export the model with "
                "its data in one file, or beside it"
            )
        if not target.is_file():
            raise PyTritonValidationError(f"{path} has data in {name!r}, which is missing; put that file beside it")
    return names


def inputs_of_unknown_rank(path: Path) -> set[str]:
    """Names of inputs whose shape an ONNX file does not tell; onnxruntime does not tell them from single numbers."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {
            bytes(data[slice(*name)]).decode()
            for graph in _members(data, (0, len(data)), GRAPH)
            for each in _members(data, graph, INPUT)
            for name in _members(data, each, NAME)
            for kind in _members(data, each, TYPE)
            for tensor in _members(data, kind, TENSOR)
            if not any(_members(data, tensor, SHAPE))
        }


def _members(data: Bytes, within: tuple[int, int], wanted: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each field with a number, of those that are texts or messages."""
    return ((start, end) for number, kind, start, end in _fields(data, *within) if (number, kind) == (wanted, TEXT))


def _locations(data: Bytes, begin: int, end: int, message: str, depth: int) -> Iterator[str]:
    """The names of files that tensors of a message have their data in."""
    if depth > MOST_DEPTH:
        raise ValueError(f"more than {MOST_DEPTH} messages in one another")
    for number, kind, start, stop in _fields(data, begin, end):
        inner = FIELDS[message].get(number)
        if kind != TEXT or inner is None:
            continue
        if inner == "entry":
            entry = {field: bytes(data[first:last]) for field, _, first, last in _fields(data, start, stop)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode()
        else:
            yield from _locations(data, start, stop, inner, depth + 1)


def _fields(data: Bytes, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, kind, begin and end of each field of a message; ValueError if it is none."""
    while begin < end:
        key, begin = _varint(data, begin, end)
        number, kind = key >> 3, key & 7
        if not number:
            raise ValueError("a field has the number 0")
        if kind == VARINT:
            _, stop = _varint(data, begin, end)
        elif kind == TEXT:
            size, begin = _varint(data, begin, end)
            stop = begin + size
        elif kind in (FIXED32, FIXED64):
            stop = begin + (4 if kind == FIXED32 else 8)
        else:
            raise ValueError(f"a field has the type {kind}")
        if stop > end:
            raise ValueError("it ends within a field")
        yield number, kind, begin, stop
        begin = stop


def _varint(data: Bytes, begin: int, end: int) -> tuple[int, int]:
    value = 0
    for index in range(begin, min(end, begin + VARINT_BYTES)):
        value |= (data[index] & 0x7F) << (7 * (index - begin))
        if data[index] < 0x80:
            return value, index + 1
    raise ValueError("it ends within a number")
