"""Values as arrays and back, and what is said of values that do not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytriton.exceptions import ErrorCode
from pytriton.signature.annotations import Annotations
from pytriton.signature.arrays import array_of
from pytriton.signature.json_values import to_json
from pytriton.signature.problems import Problem, ValueMismatchError
from pytriton.signature.schema import Schema, Signature, is_native, tensor_of
from pytriton.signature.validation import problems
from pytriton.signature.values import SignatureCodec, decode_rows, encode_rows

TEXT = {"type": "string"}
BYTES = {"type": "string", "contentEncoding": "base64"}
INT64 = st.integers(-(2**63), 2**63 - 1)
CHARACTERS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | CHARACTERS,
    lambda inner: st.lists(inner) | st.dictionaries(CHARACTERS, inner),
    max_leaves=10,
)


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or (isinstance(one, float) and math.isnan(one + other)))


def round_trip(schema: Schema, values: list[Any]) -> list[Any]:
    array = encode_rows(schema, values, {})
    tensor = tensor_of("x", schema)
    assert array.shape[0] == len(values)
    assert len(array.shape) == 1 + len(tensor.shape)
    assert all(want in (-1, size) for want, size in zip(tensor.shape, array.shape[1:], strict=True))
    assert array.dtype == (object if np.dtype(tensor.dtype).kind in "SO" else tensor.dtype)
    return decode_rows(schema, array)


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"type": "integer"}, INT64),
        ({"type": "number"}, st.floats()),
        ({"type": "boolean"}, st.booleans()),
        (TEXT, CHARACTERS),
        (BYTES, st.binary()),
        ({"encoding": "json"}, JSON),
    ],
    ids=["integer", "number", "boolean", "text", "bytes", "json"],
)
def test_values_come_back_as_they_were(schema, values):
    @given(st.lists(values, min_size=1))
    def check(rows):
        assert all(map(same, round_trip(schema, rows), rows))

    check()


@pytest.mark.parametrize(
    ("item", "values"),
    [("integer", INT64), ("number", st.floats(allow_nan=False)), ("boolean", st.booleans()), ("string", CHARACTERS)],
)
def test_lists_come_back_as_they_were(item, values):
    @given(st.lists(values))
    def check(row):
        assert round_trip({"type": "array", "items": {"type": item}}, [row, row]) == [row, row]

    check()


@given(arrays.arrays(np.float32, arrays.array_shapes(max_dims=3), elements=st.floats(width=32)))
def test_arrays_and_nested_lists_become_the_same_array(array):
    schema = {"type": "array", "dtype": "FP32", "shape": [-1] * array.ndim}
    ((one,), (other,)) = (round_trip(schema, [value]) for value in (array, array.tolist()))
    assert one.dtype == other.dtype == np.float32
    np.testing.assert_array_equal(one, array)
    np.testing.assert_array_equal(other, array)


@given(st.integers(), st.sampled_from(["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"]))
def test_an_integer_beyond_its_type_is_refused_and_never_wrapped(value, name):
    schema = {"type": "array", "dtype": name, "shape": [1]}
    try:
        ((decoded,),) = round_trip(schema, [[value]])
    except ValueMismatchError:
        limits = np.iinfo(tensor_of("x", schema).dtype)
        assert not limits.min <= value <= limits.max
    else:
        assert decoded == value


@given(JSON, st.sampled_from(["integer", "number", "boolean", "string", "null", "object", "array"]))
def test_what_is_checked_can_be_encoded_and_what_is_not_names_its_path(value, kind):
    schema = {"type": kind} if kind not in ("object", "array") else {"type": kind, "encoding": "json"}
    if kind == "null":
        schema["encoding"] = "json"
    found = problems(schema, value, {}, ("x",))
    if found:
        assert {problem.path[0] for problem in found} == {"x"}
        with pytest.raises(ValueMismatchError):
            encode_rows(schema, [value], {}, ("x",))
    else:
        (decoded,) = round_trip(schema, [value])
        assert decoded == value


class Tone(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Point:
    x: float
    y: float = 0.0


class Pair(NamedTuple):
    left: int
    right: Point


def test_python_objects_have_a_form_in_json():
    value = {"tone": Tone.GOOD, "pair": Pair(1, Point(2.0)), "raw": b"\0", "numbers": np.arange(2), "set": {1}}
    assert to_json(value) == {
        "tone": "good",
        "pair": {"left": 1, "right": {"x": 2.0, "y": 0.0}},
        "raw": "AA==",
        "numbers": [0, 1],
        "set": [1],
    }
    with pytest.raises(TypeError, match="an instance of object, which JSON cannot express"):
        to_json(object())


@pytest.mark.parametrize(
    ("schema", "value", "plain"),
    [
        ({"type": "integer"}, np.int32(3), 3),
        ({"type": "integer"}, 3.0, 3),
        ({"type": "number"}, 3, 3.0),
        ({"type": "number"}, np.float32(0.5), 0.5),
        ({"type": "boolean"}, np.True_, True),
        ({"type": "string", "enum": ["good"]}, Tone.GOOD, "good"),
        (BYTES, bytearray(b"a"), b"a"),
        ({"type": "array", "items": {"type": "number"}}, (1, 2), [1.0, 2.0]),
        ({"type": "array", "items": {"type": "number"}}, np.array([1.0, 2.0]), [1.0, 2.0]),
        ({"type": "number", "dtype": "FP32"}, 0.5, 0.5),
    ],
)
def test_other_forms_of_a_value_are_understood(schema, value, plain):
    assert round_trip(schema, [value]) == [plain]


OBJECT = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": TEXT}},
    "required": ["n"],
    "additionalProperties": False,
    "encoding": "json",
}
IMAGE = {"type": "array", "dtype": "UINT8", "shape": [2, 3]}


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, "3", '["x"]: expected an integer, got "3"'),
        ({"type": "integer"}, True, '["x"]: expected an integer, got true'),
        ({"type": "integer"}, 2**63, '["x"]: expected an integer of 64 bits, got 9223372036854775808'),
        ({"type": "number"}, None, '["x"]: expected a number, got null'),
        (
            {"type": "number", "minimum": 0, "maximum": 1},
            2,
            '["x"]: expected a number of at least 0 and of at most 1, got 2',
        ),
        ({"type": "number", "exclusiveMinimum": 0}, 0, '["x"]: expected a number above 0, got 0'),
        ({"type": "string", "maxLength": 2}, "abc", '["x"]: expected a string of length 2 or less, got "abc"'),
        ({"type": "string", "pattern": "^a"}, "b", '["x"]: expected a string like ^a, got "b"'),
        ({"type": "string", "enum": ["a", "b"]}, "c", '["x"]: expected one of "a", "b", got "c"'),
        (BYTES, "text", '["x"]: expected bytes (base64 in JSON), got "text"'),
        ({"type": "array", "items": TEXT}, ["a", 1], '["x", 1]: expected a string, got 1'),
        ({"type": "array", "items": TEXT}, "a", '["x"]: expected a list of strings, got "a"'),
        (
            {"type": "array", "items": TEXT, "minItems": 1},
            [],
            '["x"]: expected a list of strings with 1 items or more, got a list of 0',
        ),
        (OBJECT, {"n": 0}, '["x", "n"]: expected an integer of at least 1, got 0'),
        (OBJECT, {}, '["x", "n"]: expected an integer of at least 1, got nothing'),
        (OBJECT, {"n": 1, "tags": [3]}, '["x", "tags", 0]: expected a string, got 3'),
        (OBJECT, {"n": 1, "m": 2}, '["x", "m"]: expected one of the fields "n", "tags", got another'),
        (
            OBJECT,
            {"n": "1", "tags": "a"},
            '["x", "n"]: expected an integer of at least 1, got "1"; '
            '["x", "tags"]: expected a list of strings, got "a"',
        ),
        (OBJECT, [1], '["x"]: expected an object, got a list of 1'),
        (IMAGE, [[1, 2, 3], [4, 5]], '["x", 1]: expected 3 numbers, got 2'),
        (IMAGE, [[1, 2, 3]], '["x"]: expected 2 lists, got 1'),
        (IMAGE, [[1, 2, 3], 4], '["x", 1]: expected a list of numbers, got 4'),
        (IMAGE, [[1, 2, 3], [4, 5, 256]], '["x", 1, 2]: expected an integer of UINT8, got 256'),
        (IMAGE, np.zeros((2, 4), np.uint8), '["x"]: expected an array of UINT8 and shape (2, 3), got shape (2, 4)'),
        (
            IMAGE,
            np.zeros((2, 3), np.float32),
            '["x"]: expected an array of UINT8 and shape (2, 3), got an array of float32 and shape (2, 3)',
        ),
        ({"type": "array", "dtype": "FP32", "shape": [-1, -1]}, [[1], [2, 3]], '["x", 1]: expected 1 numbers, got 2'),
        (
            {"anyOf": [{"type": "integer"}, {"type": "null"}], "encoding": "json"},
            "a",
            '["x"]: expected an integer, got "a"',
        ),
        (
            {"anyOf": [{"type": "integer"}, TEXT], "encoding": "json"},
            1.5,
            '["x"]: expected an integer or a string, got 1.5',
        ),
        (
            {"encoding": "json"},
            object(),
            '["x"]: expected a value, got an instance of object, which JSON cannot express',
        ),
        (
            {"$ref": "#/$defs/Missing", "encoding": "json"},
            object(),
            '["x"]: expected an object Missing, got an instance of object, which JSON cannot express',
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(schema, value, message):
    with pytest.raises(ValueMismatchError) as caught:
        encode_rows(schema, [value], {}, ("x",))
    assert str(caught.value) == message
    assert caught.value.code is ErrorCode.INVALID_ARG


def test_bytes_that_are_no_text_or_json_are_told_as_their_row():
    column = np.array([[b"a"], [b"\xff"]], object)
    text, wrong = decode_rows(TEXT, column, ("x",))
    assert (text, str(wrong)) == ("a", "[\"x\"]: expected text in UTF-8, got b'\\xff'")
    (wrong,) = decode_rows({"encoding": "json"}, np.array([[b"{"]], object), ("x",))
    assert str(wrong).startswith("[\"x\"]: expected JSON, got b'{'")


def test_references_are_followed_to_any_depth():
    node = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}
    schema = {"$ref": "#/$defs/Node", "encoding": "json"}
    assert problems(schema, {"next": {"next": None}}, {"Node": node}) == []
    (problem,) = problems(schema, {"next": {"next": 3}}, {"Node": node}, ("x",))
    assert problem.path == ("x", "next", "next")


def test_rows_of_different_lengths_make_no_array():
    with pytest.raises(ValueMismatchError, match="the same shape in all rows of a request"):
        encode_rows({"type": "array", "items": TEXT}, [["a"], ["a", "b"]], {})


SIGNATURE = Signature(
    {"text": TEXT, "n": {"type": "integer"}, "image": {**IMAGE, "shape": []}},
    ("text",),
    {"label": TEXT, "extra": {"encoding": "json"}},
    ("label",),
    result="object",
    description="Ünïcode.",
    examples=({"input": {"text": "a"}, "output": {"label": "b"}},),
    definitions={"Node": {"type": "object"}},
)


def test_a_signature_comes_back_from_its_json():
    assert Signature.parse(SIGNATURE.to_json()) == SIGNATURE


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "3", '{"version": 2}', '{"version": 1, "input": 3}', '{"version": "1"}', "[" * 9999]
)
def test_what_is_no_signature_is_ignored(text):
    assert Signature.parse(text) is None


def test_a_codec_leaves_arrays_alone_and_leaves_none_out():
    codec = SignatureCodec(SIGNATURE)
    array = np.array([b"a"], object)
    assert codec.arrays({"text": array, "n": None, "unknown": 3}, has_rows=False) == {"text": array, "unknown": 3}
    assert codec.arrays({"image": 3}, has_rows=False)["image"].shape == (1,)  # the server knows no tensor without one
    assert codec.arrays({"n": [1, 2]}, has_rows=True)["n"].tolist() == [[1], [2]]


def test_a_codec_names_all_values_that_do_not_fit():
    with pytest.raises(ValueMismatchError) as caught:
        SignatureCodec(SIGNATURE).arrays({"text": 1, "n": "a"}, has_rows=False)
    assert [problem.path for problem in caught.value.problems] == [("text",), ("n",)]
    with pytest.raises(ValueMismatchError, match="a list of values, one per row"):
        SignatureCodec(SIGNATURE).arrays({"text": "ab"}, has_rows=True)


def test_members_that_a_result_lacks_are_left_out():
    codec = SignatureCodec(SIGNATURE)
    outputs: Mapping[str, Any] = {"label": np.array([b"a"], object), "extra": np.array([b"null"], object)}
    assert codec.result(outputs) == {"label": "a"}
    assert codec.result({**outputs, "extra": np.array([b"1"], object)}) == {"label": "a", "extra": 1}


def test_only_scalars_lists_of_them_and_arrays_have_tensors_of_their_own():
    assert all(map(is_native, [TEXT, BYTES, IMAGE, {"type": "array", "items": TEXT}]))
    assert not any(map(is_native, [{}, OBJECT, {"type": "array", "items": OBJECT}, {"type": "array"}]))


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("INT64", [1, 2, "x"], ([2], "an integer", '"x"')),
        ("INT64", [1, 2, 3.5], ([2], "an integer", "3.5")),
        ("INT8", [1, -129], ([1], "an integer of INT8", "-129")),
        ("UINT64", [1, -1], ([1], "an integer of UINT64", "-1")),
        ("FP32", [[1, 2], [3, None]], ([1, 1], "a number", "null")),
        ("FP32", [1, {}], ([1], "a number", "an object with nothing")),
        ("BOOL", [True, 1], ([1], "true or false", "1")),
        ("BYTES", ["a", b"b", 3], ([2], "a string", "3")),
        ("FP64", "x", ([], "a number", '"x"')),
        ("INT64", [True, False], ([], "an array of INT64 and shape (any,)", "a list of 2")),
    ],
)
def test_the_first_wrong_element_of_an_array_is_named(dtype, value, expected):
    rank = np.ndim(np.array(value, object))
    with pytest.raises(ValueMismatchError) as refused:
        array_of({"dtype": dtype, "shape": [-1] * rank}, value, ("x",))
    path, noun, got = expected
    assert refused.value.problems == [Problem(("x", *path), noun, got)]


def test_an_image_that_cannot_be_read_is_told_without_an_address():
    image_module = pytest.importorskip("PIL.Image")
    kind, _ = Annotations().of_input(image_module.Image)
    with pytest.raises(ValueError, match=r"^not a readable image: cannot identify image$"):
        kind.load(b"hello")
