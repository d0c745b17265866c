"""Which proxy serves a model."""

import logging

import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.inprocess import capi
from pytriton.inprocess.exceptions import UnsupportedError
from pytriton.server import backends
from pytriton.server.backends import LIBRARY, NativeProxyError, build_mismatch, choose_proxy, uses_native


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "libtriton_pytriton.so"
    path.write_bytes(b"ELF")
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
    assert choose_proxy("auto", True, library, {}).reason == ""
    assert choose_proxy("python", True, library, {}).reason == "proxy='python' asks for it"
    assert (
        choose_proxy("auto", True, library, {"PYTRITON_PROXY": "python"}).reason == "PYTRITON_PROXY=python asks for it"
    )
    assert "no C++ compiler" in choose_proxy("auto", True, tmp_path / "missing.so", {}).reason
    assert "not launched by this process" in choose_proxy("auto", False, library, {}).reason


@pytest.fixture(params=["sources", "stamp"])
def stale(library, request):
    """A library of another build than what is beside it: sources, or what a wheel says of its build."""
    library.write_bytes(b"ELF pytriton-stamp:" + b"0" * 64 + b"\0 ...")
    if request.param == "sources":
        (library.parent / "frames").mkdir()
        (library.parent / "frames" / "wire.cpp").write_text("int one = 1;")
    else:
        (library.parent / "stamp.txt").write_text("1" * 64)
    return library


def test_a_library_of_another_build_gives_way_to_the_python_proxy_with_a_warning(stale, caplog, monkeypatch):
    monkeypatch.setattr(backends, "_warned", False)
    with caplog.at_level(logging.WARNING, "pytriton"):
        assert uses_native("auto", True, stale, {}) is False
    (warning,) = caplog.messages
    assert "was compiled from other sources" in warning
    assert "pip install" in warning


def test_a_missing_library_is_told_once_with_what_to_do(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(backends, "_warned", False)
    for _ in range(2):
        assert uses_native("auto", True, tmp_path / "missing.so", {}) is False
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert "slower" in warning.message
    assert "apt-get install g++" in warning.message


def test_what_was_asked_for_is_not_warned_of(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(backends, "_warned", False)
    assert uses_native("python", True, tmp_path / "missing.so", {}) is False
    assert uses_native("auto", True, tmp_path / "missing.so", {"PYTRITON_PROXY": "python"}) is False
    assert not caplog.records


def test_a_library_of_another_build_is_refused_where_it_was_asked_for(stale):
    for proxy, environment in (("native", {}), ("auto", {"PYTRITON_PROXY": "native"})):
        with pytest.raises(NativeProxyError, match="compiled from other sources"):
            choose_proxy(proxy, True, stale, environment)


def test_a_library_of_another_build_is_not_loaded_into_a_process(stale, monkeypatch):
    monkeypatch.setattr(capi, "LIBRARY", stale)
    monkeypatch.setattr(capi, "_api", None)
    with pytest.raises(UnsupportedError, match=r"compiled from other sources.*pip install"):
        capi.load()


def test_a_library_without_a_stamp_is_of_another_build(library):
    (library.parent / "stamp.txt").write_text("1" * 64)
    assert "compiled from other sources" in build_mismatch(library)


@pytest.mark.skipif(not LIBRARY.is_file(), reason="nothing was compiled here")
def test_each_compiled_library_is_of_the_sources_beside_it():
    for library in (LIBRARY, capi.REQUESTS_LIBRARY):
        assert build_mismatch(library) == ""
