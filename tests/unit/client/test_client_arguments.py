"""Checks of parameters, headers, timeouts and names."""

import math

import numpy as np
import pytest

from pytriton.client.arguments import check_headers, check_model, check_parameters, check_timeout
from pytriton.client.exceptions import PyTritonClientValueError


def test_parameters_keep_their_types():
    parameters = {"text": "ž", "flag": True, "number": -(2**63)}
    assert check_parameters(parameters) == parameters
    assert check_parameters(parameters) is not parameters


def test_header_values_become_text():
    assert check_headers({"X-A": 1, "b": True, "c": "x y"}) == {"X-A": "1", "b": "True", "c": "x y"}


@pytest.mark.parametrize("check", [check_parameters, check_headers])
def test_none_means_empty(check):
    assert check(None) == {}


@pytest.mark.parametrize("check", [check_parameters, check_headers])
@pytest.mark.parametrize("items", [[("a", 1)], "a", {1: "a"}, {"a": 1.5}, {"a": None}, {"a": b"x"}, {"a": np.int64(1)}])
def test_other_types_are_refused(check, items):
    with pytest.raises(PyTritonClientValueError, match=r"parameters|headers"):
        check(items)


@pytest.mark.parametrize("parameters", [{"priority": 1}, {"triton_enable": True}, {"big": 2**63}])
def test_parameters_that_cannot_travel_are_refused(parameters):
    with pytest.raises(PyTritonClientValueError, match="parameter"):
        check_parameters(parameters)


@pytest.mark.parametrize(
    "headers", [{"a b": "x"}, {"": "x"}, {"a:": "x"}, {"a": "x\r\nb: y"}, {"a": "x\n"}, {"a": "ž"}]
)
def test_headers_that_cannot_travel_are_refused(headers):
    with pytest.raises(PyTritonClientValueError, match="header"):
        check_headers(headers)


@pytest.mark.parametrize(("given", "seconds"), [(None, 60.0), (1, 1.0), (0.25, 0.25), (math.inf, math.inf)])
def test_timeouts_are_seconds_with_a_default(given, seconds):
    assert check_timeout("t", given, 60.0) == seconds


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan, "soon", [1]])
def test_timeout_that_is_no_positive_number_is_refused(timeout_s):
    with pytest.raises(PyTritonClientValueError, match="t must be a number of seconds above 0"):
        check_timeout("t", timeout_s, 60.0)


@pytest.mark.parametrize(("name", "version"), [("", None), (None, None), (b"m", None), ("m", 1), ("m", "")])
def test_model_names_and_versions_are_text(name, version):
    with pytest.raises(PyTritonClientValueError, match="must be a"):
        check_model(name, version)
