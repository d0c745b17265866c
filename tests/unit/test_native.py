"""Which proxy serves a model."""

import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.server.native import NativeProxyError, choose, uses_native


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "libtriton_pytriton.so"
    path.touch()
    return path


@pytest.mark.parametrize(
    ("proxy", "environment", "native"),
    [
        ("auto", {}, True),
        ("auto", {"PYTRITON_PROXY": ""}, True),
        ("auto", {"PYTRITON_PROXY": "python"}, False),
        ("auto", {"PYTRITON_PROXY": "native"}, True),
        ("native", {"PYTRITON_PROXY": "python"}, True),
        ("python", {"PYTRITON_PROXY": "native"}, False),
    ],
)
def test_the_model_decides_else_the_environment_else_native(library, proxy, environment, native):
    assert uses_native(proxy, True, library, environment) is native


def test_without_the_library_auto_is_python_and_native_an_error(tmp_path):
    missing = tmp_path / "missing.so"
    assert uses_native("auto", True, missing, {}) is False
    for proxy, environment in (("native", {}), ("auto", {"PYTRITON_PROXY": "native"})):
        with pytest.raises(NativeProxyError, match="missing"):
            uses_native(proxy, True, missing, environment)


def test_a_server_of_somebody_else_gets_the_python_proxy(library):
    assert uses_native("auto", False, library, {"PYTRITON_PROXY": "native"}) is False
    with pytest.raises(NativeProxyError, match="not launched by this process"):
        uses_native("native", False, library, {})


def test_other_names_are_refused(library):
    with pytest.raises(PyTritonValidationError, match="'fast'"):
        uses_native("fast", True, library, {})


def test_the_choice_says_why_it_is_not_native(library, tmp_path):
    assert choose("auto", True, library, {}).reason == ""
    assert choose("python", True, library, {}).reason == "proxy='python' asks for it"
    assert choose("auto", True, library, {"PYTRITON_PROXY": "python"}).reason == "PYTRITON_PROXY=python asks for it"
    assert "no C++ compiler" in choose("auto", True, tmp_path / "missing.so", {}).reason
    assert "not launched by this process" in choose("auto", False, library, {}).reason
