"""What callers of a server in this process give it, checked before the server sees it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pytriton.inprocess import InferenceRequest, InvalidArgumentError, InvalidTypeError, Metric, Model, Server
from pytriton.inprocess.arguments import (
    INT64,
    PATH_MAX,
    checked_model_name,
    checked_parameters,
    encode,
    integer,
    mapping,
    seconds,
)

LONG = "a/" * (PATH_MAX // 2)


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        {"config": json.dumps({"backend": "python"})},
        {"file:1/model.py": b"", "file:labels.txt": b"a"},
        {"file:" + "a" * 255: b"", "file:" + LONG[:-1]: b""},
        {f"file:{2**63 - 1}/model.py": b"", "file:007/a": b"", "file:99999999999999999999": b""},
        {"file:a/1 b/..c": b"", "other": 3},
    ],
)
def test_parameters_that_a_model_can_be_loaded_with_are_taken(parameters: Any):
    assert checked_parameters(parameters) == (parameters or {})


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "not one below the model's folder"),
        ("/a", "not one below"),
        ("a/", "not one below"),
        ("a//b", "not one below"),
        ("./a", "not one below"),
        ("1/../../a", "not one below"),
        ("a" * 256, "a name of more than 255 bytes"),
        ("1/" + "ä" * 128, "a name of more than 255 bytes"),
        (LONG + "a", f"longer than {PATH_MAX} bytes"),
        ("99999999999999999999/model.py", "a folder for a version that is not from 1"),
        ("99999999999999999999x/model.py", "a folder for a version"),
        ("-1/model.py", "a folder for a version"),
        (" 0/model.py", "a folder for a version"),
        ("a\0b", "NUL"),
    ],
)
def test_a_path_that_is_not_below_a_models_folder_is_refused(path: str, problem: str):
    with pytest.raises(InvalidArgumentError, match=problem):
        checked_parameters({f"file:{path}": b""})


@pytest.mark.parametrize("config", ["", "{", "[" * (1 << 20), '{"a":' * (1 << 16), "NULL", "{'a': 1}"])
def test_a_configuration_that_is_not_json_is_refused(config: str):
    with pytest.raises(InvalidArgumentError, match="config is not JSON"):
        checked_parameters({"config": config})


@pytest.mark.parametrize(
    "parameters", [[("config", "{}")], "config", {"config": b"{}"}, {"config": {}}, {"file:a": "text"}, {3: "a"}]
)
def test_parameters_of_the_wrong_type_are_a_type_error(parameters: Any):
    with pytest.raises(InvalidTypeError):
        checked_parameters(parameters)


def test_bytes_that_are_not_named_as_a_file_are_refused():
    with pytest.raises(InvalidArgumentError, match="name it 'file:<path>'"):
        checked_parameters({"1/model.py": b""})


@pytest.mark.parametrize("name", ["", "m" * 256, "a\0b", "\ud800"])
def test_a_model_cannot_have_every_name(name: str):
    with pytest.raises(InvalidArgumentError):
        checked_model_name(name)


@pytest.mark.parametrize("text", [3, None, b"a", ["a"]])
def test_what_is_no_text_is_a_type_error(text: Any):
    with pytest.raises(InvalidTypeError, match="give a text"):
        encode(text)
    with pytest.raises(InvalidTypeError, match="give a text"):
        Model(Server(), text)


@pytest.mark.parametrize("number", [1, np.int8(1), np.uint64(1)])
def test_integers_are_those_of_python_and_numpy(number: Any):
    found = integer("n", number, INT64)
    assert (found, type(found)) == (1, int)


@pytest.mark.parametrize("number", [True, np.bool_(True), 1.0, np.float64(1), "1", None])
def test_other_things_are_no_integers(number: Any):
    with pytest.raises(InvalidTypeError, match=r"n is .*; give an integer from -9223372036854775808 to"):
        integer("n", number, INT64)


def test_an_integer_out_of_range_is_no_type_error():
    with pytest.raises(InvalidArgumentError, match="n is 9223372036854775808; give an integer") as raised:
        integer("n", np.uint64(1 << 63), INT64)
    assert not isinstance(raised.value, TypeError)


def test_seconds_are_numbers_from_0_on():
    assert [seconds("s", each, 5) for each in (0, np.float32(0.5), None)] == [0, 0.5, 5]
    for wrong in ("1", True, None):
        with pytest.raises(InvalidTypeError, match=r"s is .*; give a number of seconds"):
            seconds("s", wrong)
    for wrong in (-1, float("nan")):
        with pytest.raises(InvalidArgumentError, match="from 0 on"):
            seconds("s", wrong)


def test_a_mapping_may_be_missing_but_is_nothing_else():
    assert mapping("m", None) == {}
    with pytest.raises(InvalidTypeError, match=r"m is .*; give a dictionary"):
        mapping("m", ["a"])


@pytest.mark.parametrize("version", [1.0, "1", None, True])
def test_a_version_that_is_no_integer_is_a_type_error(version: Any):
    with pytest.raises(InvalidTypeError, match=r"model_version is .*; give an integer from -1"):
        Model(Server(), "m", version)


def test_what_belongs_to_something_else_is_a_type_error():
    with pytest.raises(InvalidTypeError, match="give Options"):
        Server("/models")  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match="give a MetricFamily"):
        Metric("requests")  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match="give an InferenceRequest"):
        Model(Server(), "m").infer("request")  # type: ignore[arg-type]
    model = Model(Server(), "m")
    with pytest.raises(InvalidTypeError, match="give a Model"):
        model.infer(InferenceRequest("m"))  # type: ignore[arg-type]
