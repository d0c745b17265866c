"""JSON and arrays, without Python lists of numbers in between."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytriton.rest import json_arrays
from pytriton.rest.json_arrays import (
    InvalidJsonError,
    check_elements,
    count_lists,
    depth_exceeds,
    dumps,
    has_member,
    numbers,
    parse,
    plain,
    special,
    to_json,
)
from pytriton.signature.problems import ValueMismatchError

DTYPES = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64]


def read(text, dtype=np.float64, shape=(-1,)):
    return numbers(parse(text.encode()), np.dtype(dtype), list(shape), ("x",))


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_finite_arrays_come_back_as_they_went(dtype, data):
    options = {"allow_nan": False, "allow_infinity": False} if np.dtype(dtype).kind == "f" else {}
    shapes = arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)
    array = data.draw(arrays.arrays(dtype, shapes, elements=arrays.from_dtype(np.dtype(dtype), **options)))
    text = dumps(to_json(array))
    assert text.count(b"[") == count_lists(array.shape)
    for shape in (array.shape, [-1] * array.ndim):
        found = numbers(parse(text), array.dtype, list(shape), ())
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype


@pytest.mark.parametrize(
    ("text", "shape", "path", "expected", "got"),
    [
        ("[1, 2]", (3,), [], "3 numbers", "2"),
        ("[[1, 2], [3]]", (2, -1), [1], "2 numbers", "1"),
        ("[[1, 2], 3]", (-1, 2), [1], "a list of numbers", "3"),
        ("[[[1], [2]], [[3], [4, 5]]]", (2, 2, 1), [1, 1], "1 numbers", "2"),
        ('[{"a": 1}]', (-1, 1), [0], "a list of numbers", "an object"),
        ("[1, 2]", (-1, -1), [0], "a list of numbers", "1"),
    ],
)
def test_the_first_list_of_another_length_is_named(text, shape, path, expected, got):
    with pytest.raises(ValueMismatchError) as caught:
        read(text, shape=shape)
    (problem,) = caught.value.problems
    assert (problem.path, problem.expected, problem.got) == (("x", *path), expected, got)


@pytest.mark.parametrize("text", ['["NaN"]', "[null]", "[true]", "[[1]]", "[{}]"])
def test_something_else_than_numbers_is_left_to_others_or_noticed_by_its_lists(text):
    found = read(text)
    if found is not None:
        assert text.count("[") != count_lists(found.shape)
        with pytest.raises(ValueMismatchError, match="a number, got a list"):
            check_elements(parse(text.encode()), found.shape, ("x",))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("[300]", np.uint8),
        ("[-1]", np.uint64),
        ("[0.5]", np.int32),
        ("[1e39]", np.float32),
        ("[18446744073709551615]", np.int64),
    ],
)
def test_a_number_that_the_dtype_lacks_is_left_to_others(text, dtype):
    assert read(text, dtype) is None


@pytest.mark.parametrize(
    ("text", "shape", "found"), [("[]", (-1,), (0,)), ("[]", (-1, 3), (0, 3)), ("[[], []]", (2, -1), (2, 0))]
)
def test_arrays_may_be_empty(text, shape, found):
    assert read(text, shape=shape).shape == found


def test_integers_of_any_length_are_exact():
    number = 10**40
    assert plain(parse(b'{"a": %d}' % number)) == {"a": number}
    assert plain(parse(b"[9223372036854775807, 18446744073709551615]")) == [2**63 - 1, 2**64 - 1]


def test_brackets_in_strings_are_no_nesting():
    text = rb'{"[\\": "' + b"[" * 5000 + rb'\"{{", "n": ' + b"9" * 30 + b"}"
    assert plain(parse(text))["n"] == int("9" * 30)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1,]",
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b'"\\ud800"',
        b'"\xff"',
        b"[" * 3000 + b"]" * 3000,
        b"1" * 5000,
        b"\xff\xfe1\x00",
    ],
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(InvalidJsonError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 3000 + b"]" * 3000,
        b'{"a":' * 100_000,
        b"[" + b"1" * 400 + b"," + b"[" * 100_000,  # a number that other readers refuse first
        rb'["\ud800]\"]\\",' + b'"]",' * 2000 + b"[" * 100_000,  # what stands in strings closes nothing
    ],
)
def test_nesting_is_limited_though_a_program_has_raised_pythons_own_limit(text):
    script = f"""
import sys
from pytriton.rest.json_arrays import InvalidJsonError, parse
sys.setrecursionlimit(10_000_000)
try:
    parse({text!r})
except InvalidJsonError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout == "it is nested too deeply\n"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_values_are_those_of_the_standard_library(value):
    assert plain(parse(json.dumps(value).encode())) == value


def test_numbers_that_json_lacks_are_strings():
    array = np.array([[math.nan, 1.5], [math.inf, -math.inf]], np.float32)
    assert dumps(to_json(array)) == b'[["NaN",1.5],["Infinity","-Infinity"]]'
    assert special({"a": [math.nan, {"b": math.inf}]}) == {"a": ["NaN", {"b": "Infinity"}]}


def test_arrays_that_are_not_contiguous_are_written_too():
    array = np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::2]
    assert dumps(to_json(array)) == b"[[0,2],[4,6],[8,10]]"
    assert dumps(to_json(np.array(7))) == b"7"


def test_the_depth_is_that_of_the_deepest_part():
    value = [{"a": [1, [2]]}, 3]
    assert depth_exceeds(value, 3)
    assert not depth_exceeds(value, 4)
    assert not depth_exceeds("text", 1)


def test_members_are_those_of_objects_alone():
    assert has_member(parse(b'{"a": 1}'), "a")
    assert not has_member(parse(b'["a"]'), "a")
    assert not has_member("a", "a")


def test_all_that_the_module_offers_exists():
    assert all(hasattr(json_arrays, name) for name in json_arrays.__all__)
