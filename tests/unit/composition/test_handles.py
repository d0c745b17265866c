"""Which callables get handles, and which are refused, before there is a server."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Optional  # noqa: F401

import pytest

from pytriton.composition.handle import ModelHandle
from pytriton.composition.injection import callees_of, with_handles
from pytriton.decorators import batch, first_value, triton_context
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.signature.functions import describe


def of_values(number: float, halve: ModelHandle) -> float:
    return halve(number)


@batch
def of_arrays(x: Any, y: Annotated[ModelHandle, "model-2"]) -> Any:
    return y(x)


@first_value("x")
@triton_context
@batch
def below_others(x: Any, triton_context: Any, halve: ModelHandle) -> Any:
    return x


class OfMethods:
    @batch
    def method(self, x: Any, halve: ModelHandle) -> Any:
        return x

    def __call__(self, x: float, halve: ModelHandle) -> float:
        return x


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (of_values, {"halve": "halve"}),
        (of_arrays, {"y": "model-2"}),
        (below_others, {"halve": "halve"}),
        (OfMethods(), {"halve": "halve"}),
        (OfMethods().method, {"halve": "halve"}),
        (functools.partial(of_values, 2.0), {"halve": "halve"}),
        (functools.partial(of_values, halve=len), {}),
        (len, {}),
        (lambda x: x, {}),
    ],
)
def test_parameters_that_are_annotated_name_models(function, expected):
    assert callees_of(function) == expected


def test_a_callable_without_handles_stays_as_it_is():
    def function(x: int) -> int:
        return x

    assert with_handles(function, "model", None) is function


def test_handles_are_no_inputs():
    assert [*describe(of_values).parameters] == ["number"]
    assert [*describe(with_handles(of_values, "model", None)).parameters] == ["number"]
    assert [*describe(of_arrays).parameters] == ["x"]


def test_a_handle_is_given_unless_the_caller_gives_another():
    given = with_handles(lambda_with_handle(), "model", None)
    assert given().name == "halve"
    assert given(halve="mine") == "mine"


def lambda_with_handle() -> Any:
    def function(halve: ModelHandle) -> Any:
        return halve

    return function


@pytest.mark.parametrize("annotation", ["Annotated[ModelHandle, 3]", 'Annotated[ModelHandle, "a", "b"]'])
def test_an_annotation_that_names_no_model_is_refused(annotation):
    def function(other: Any) -> Any:
        return other

    function.__annotations__["other"] = annotation
    with pytest.raises(PyTritonValidationError, match="'other' names no model"):
        callees_of(function)


@pytest.mark.parametrize(
    "annotation",
    ["ModelHandle | None", "Optional[ModelHandle]", 'Annotated[ModelHandle, "a"] | None', "list[ModelHandle]"],
)
def test_a_handle_that_may_be_something_else_is_refused_with_what_to_write(annotation):
    def function(number: float, other: Any = None) -> float:
        return number

    function.__annotations__["other"] = annotation
    assert [*describe(function).parameters] == ["number"]  # so that no tensor is looked for first
    with pytest.raises(PyTritonValidationError, match="Write other: ModelHandle"):
        with_handles(function, "model", None)


def test_an_annotation_that_cannot_be_resolved_says_where_to_import_it():
    def function(other: Any) -> Any:
        return other

    function.__annotations__["other"] = "Missing[ModelHandle]"
    with pytest.raises(PyTritonValidationError, match="import ModelHandle"):
        callees_of(function)


def test_a_model_that_calls_itself_is_refused():
    with pytest.raises(PyTritonValidationError, match="would wait for itself"):
        with_handles(of_values, "halve", None)


def test_a_worker_without_a_server_says_so():
    handle = with_handles(lambda_with_handle(), "model", None)()
    with pytest.raises(PyTritonInvalidOperationError, match="does not know the address"):
        handle(1.0)


def test_options_make_another_handle():
    handle = with_handles(lambda_with_handle(), "model", None)()
    urgent = handle.with_options(priority=1)
    assert (handle.options.priority, urgent.options.priority) == (0, 1)
    assert urgent.connections is handle.connections
