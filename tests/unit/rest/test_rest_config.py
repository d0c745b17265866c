"""Options of the app."""

import subprocess
import sys

import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.rest import RestConfig
from pytriton.rest.config import checked


def test_options_come_from_the_environment_with_their_types():
    variables = {
        "PORT": "9000",
        "TIMEOUT_S": "2.5",
        "ACCESS_LOG": "true",
        "CORS": "https://a.example, https://b.example",
        "ACCESS_TOKEN": "secret",
        "CERTIFICATE": "/chain.pem",
        "SHOW_ERRORS": "false",
    }
    config = RestConfig.from_env({f"PYTRITON_REST_{name}": value for name, value in variables.items()})
    assert (config.port, config.timeout_s, config.access_log, config.access_token) == (9000, 2.5, True, "secret")
    assert config.cors == ["https://a.example", "https://b.example"]
    assert (config.certificate, config.show_errors) == ("/chain.pem", False)
    assert RestConfig.from_env({}) == RestConfig()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PORT", "0", "an integer from 1 to 65535"),
        ("PORT", "x", "an integer"),
        ("TIMEOUT_S", "soon", "a positive number"),
        ("ACCESS_LOG", "maybe", "a boolean"),
    ],
)
def test_a_variable_that_cannot_be_understood_is_named(name, value, expected):
    with pytest.raises(PyTritonBadParameterError, match=f"^PYTRITON_REST_{name}: expected {expected}.*, got '{value}'"):
        RestConfig.from_env({f"PYTRITON_REST_{name}": value})


def test_the_token_is_no_part_of_the_repr():
    assert "secret" not in repr(RestConfig(access_token="secret"))


def test_there_is_an_app_where_it_is_asked_for_or_has_a_port_in_the_environment(monkeypatch):
    monkeypatch.delenv("PYTRITON_REST_PORT", raising=False)
    assert checked(None) is None
    assert checked(True) == RestConfig(port=8080)
    monkeypatch.setenv("PYTRITON_REST_PORT", "9001")
    assert checked(None) == checked(True) == RestConfig(port=9001)
    assert checked(False) is None
    assert checked(RestConfig(port=9002)) == RestConfig(port=9002)


def test_libraries_of_the_app_are_imported_only_where_it_runs():
    imports = "import sys, pytriton.triton, pytriton.rest.launched_app"
    program = f"{imports}; print({{'starlette', 'uvicorn', 'orjson'}} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr("pytriton.rest.config.find_spec", lambda name: None if name == "uvloop" else object())
    with pytest.raises(ImportError, match=r"the app needs uvloop; install it with: pip install 'pytriton\[rest\]'"):
        checked(True)
