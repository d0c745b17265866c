"""The tree of errors, less the clients'."""

import pickle

import pytest

from pytriton import exceptions
from pytriton.exceptions import ErrorCode, PyTritonBadParameterError, PyTritonError, PyTritonRequestError

BUILTINS = {
    "PyTritonError": Exception,
    "PyTritonValidationError": ValueError,
    "PyTritonInvalidOperationError": PyTritonError,
    "PyTritonBadParameterError": ValueError,
    "PyTritonModelConfigError": ValueError,
    "PyTritonServerError": RuntimeError,
    "PyTritonModelControlError": exceptions.PyTritonServerError,
    "PyTritonWorkerError": RuntimeError,
    "PyTritonUnrecoverableError": PyTritonError,
    "PyTritonRequestError": PyTritonError,
    "PyTritonRuntimeError": RuntimeError,
}


def test_all_errors_are_listed_and_drawn():
    assert {*exceptions.__all__} == {*BUILTINS, "ErrorCode"}
    assert all(name in exceptions.__doc__ for name in BUILTINS)


@pytest.mark.parametrize(("name", "builtin"), BUILTINS.items())
def test_an_error_has_one_root_and_the_builtin_that_one_would_catch(name, builtin):
    kind = getattr(exceptions, name)
    assert issubclass(kind, PyTritonError)
    assert issubclass(kind, builtin)
    assert kind.__doc__


@pytest.mark.parametrize("name", BUILTINS)
def test_the_message_is_kept_also_in_another_process(name):
    error = getattr(exceptions, name)("why, and what to do")
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert str(each) == each.message == "why, and what to do"
    assert str(getattr(exceptions, name)()) == ""


@pytest.mark.parametrize("code", [ErrorCode.NOT_FOUND, "NOT_FOUND"])
def test_a_request_error_keeps_its_code_also_in_another_process(code):
    error = pickle.loads(pickle.dumps(PyTritonRequestError("no such voice", code)))
    assert (error.message, error.code) == ("no such voice", ErrorCode.NOT_FOUND)


@pytest.mark.parametrize("code", ["not found", 404, None])
def test_a_request_error_with_another_code_is_refused(code):
    with pytest.raises(PyTritonBadParameterError, match="INVALID_ARG"):
        PyTritonRequestError("no such voice", code)
