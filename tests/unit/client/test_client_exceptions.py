"""The tree of errors."""

import pytest

from pytriton.client import exceptions
from pytriton.client.exceptions import PyTritonClientError
from pytriton.client.warnings import NotSupportedTimeoutWarning, PyTritonWarning

ALL = [getattr(exceptions, name) for name in exceptions.__all__]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_one_root_and_keeps_its_message(kind):
    error = kind("what to do")
    assert isinstance(error, PyTritonClientError)
    assert error.message == str(error) == "what to do"


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_drawn_in_the_tree(kind):
    assert kind.__name__ in exceptions.__doc__


@pytest.mark.parametrize(
    ("name", "parents"),
    [
        ("PyTritonClientValueError", [ValueError]),
        ("PyTritonClientInvalidUrlError", [exceptions.PyTritonClientValueError]),
        ("PyTritonClientTimeoutError", [TimeoutError]),
        ("PyTritonClientConnectionError", [exceptions.PyTritonClientInferenceServerError, ConnectionError]),
        (
            "PyTritonClientInputError",
            [exceptions.PyTritonClientValueError, exceptions.PyTritonClientInferenceServerError, RuntimeError],
        ),
    ],
)
def test_errors_are_also_what_a_caller_would_catch(name, parents):
    assert all(issubclass(getattr(exceptions, name), parent) for parent in parents)


def test_connection_problems_are_not_timeouts():
    assert not issubclass(exceptions.PyTritonClientConnectionError, TimeoutError)


def test_the_older_name_of_the_url_error_is_the_same_class():
    assert exceptions.PyTritonClientUrlParseError is exceptions.PyTritonClientInvalidUrlError


def test_warnings_can_be_filtered_by_their_root():
    assert issubclass(NotSupportedTimeoutWarning, PyTritonWarning)
    assert issubclass(PyTritonWarning, UserWarning)
