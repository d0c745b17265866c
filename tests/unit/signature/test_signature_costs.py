"""What a value of a request may cost while it is compared with the schema of its input."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest

from pytriton.signature import values
from pytriton.signature.annotations import Annotations
from pytriton.signature.problems import ValueMismatchError
from pytriton.signature.validation import problems
from pytriton.signature.values import decode_rows

OPTIONS = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"type": "null"}]}
DEFINITIONS = {
    name: {
        "type": "object",
        "properties": {"child": OPTIONS, "children": {"items": OPTIONS}, name: {"type": "integer"}},
    }
    for name in "AB"
}


def nested(depth: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(depth):
        value = {"child": value}
    return value


@pytest.mark.parametrize("depth", [5, 64])
@pytest.mark.parametrize("schema", [OPTIONS, OPTIONS["anyOf"][0]])
def test_records_that_hold_each_other_are_compared_once_with_each_option(depth, schema):
    assert problems(schema, nested(depth, None), DEFINITIONS) == []
    assert problems(schema, nested(depth, {"A": 1}), DEFINITIONS) == []
    assert problems(schema, nested(depth, {"B": 1}), DEFINITIONS) == []
    (wrong,) = problems(schema, nested(depth, {"A": "a", "B": "b"}), DEFINITIONS)
    assert "an object A or an object B" in wrong.expected


def test_many_records_are_compared_without_a_memory_of_each():
    value = {"children": [{"A": 1, "B": "b"}, {"A": "a", "B": 1}] * 20_000}
    assert problems(OPTIONS, value, DEFINITIONS) == []


def test_a_value_of_too_many_levels_is_a_problem():
    (wrong,) = problems(OPTIONS, nested(100_000, None), DEFINITIONS)
    assert wrong.expected == "a value that is nested less deeply"


@pytest.mark.parametrize(
    ("step", "value", "fits"),
    [(3, 10**400, False), (3, 3 * 10**400, True), (0.5, 10**400, False), (0.5, 1.5, True), (3, float("inf"), False)],
)
def test_a_number_of_any_size_is_compared_with_a_step(step, value, fits):
    assert (problems({"type": "number", "multipleOf": step}, value, {}) == []) == fits


def test_json_that_takes_too_much_as_objects_is_not_made(monkeypatch):
    monkeypatch.setattr(values, "MOST_TREE_BYTES", 10 * 2**20)
    for item in (b"[]", b"{}", b'"ab"', b'{"a":1}'):
        text = b"[%b]" % b",".join([item] * 400_000)
        (found,) = decode_rows({"encoding": "json"}, np.array([[text]], object), ("x",))
        assert isinstance(found, ValueMismatchError)
        assert "memory" in str(found)
    text = b'["%b"]' % (b"a" * 2 * 2**20)
    assert decode_rows({"encoding": "json"}, np.array([[text]], object)) == [["a" * 2 * 2**20]]


pillow = pytest.importorskip("PIL.Image")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("width", "height"), [(10_000, 10_000), (2**31 - 1, 2**31 - 1), (1, 2**30)])
def test_an_image_of_too_many_pixels_is_refused_before_they_are_made(width, height):
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    content = zlib.compress(bytes(1000))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", content) + chunk(b"IEND", b"")

    kind, _ = Annotations().of_input(pillow.Image)
    with pytest.raises(ValueError, match=r"not a readable image: .*pixels"):
        kind.load(data)
