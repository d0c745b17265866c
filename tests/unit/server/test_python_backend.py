"""What Triton's Python backend takes in this interpreter: found, or said to be missing."""

import os
import sysconfig

import pytest

from pytriton.exceptions import PyTritonServerError
from pytriton.server.backends import STUB, VERSION, PythonBackend, find_libpython, find_stub
from pytriton.server.installation import BUNDLED
from tests.unit.installations import make_home


def test_stub_and_library_are_those_of_this_interpreter(home, libpython):
    assert PythonBackend.find(home) == PythonBackend(home / "python_backend_stubs" / VERSION / STUB, libpython)


def test_the_stub_is_that_of_the_version(tmp_path):
    home = make_home(tmp_path / "bundled", "3.9", "3.10", "3.11")
    assert find_stub(home, "3.10") == home / "python_backend_stubs" / "3.10" / STUB
    with pytest.raises(PyTritonServerError, match=r"bundled serves Python 3\.9, 3\.10, 3\.11, not 3\.20: use such an"):
        find_stub(home, "3.20")


def test_another_servers_stub_is_taken_if_it_is_for_the_version(tmp_path):
    home = make_home(tmp_path / "ngc")
    assert find_stub(home, VERSION) == home / "backends" / "python" / STUB
    with pytest.raises(PyTritonServerError, match=rf"ngc serves Python {VERSION}, not 3\.20"):
        find_stub(home, "3.20")


def test_a_server_without_a_python_backend_is_named(tmp_path):
    home = make_home(tmp_path / "ngc")
    (home / "backends" / "python" / STUB).unlink()
    with pytest.raises(PyTritonServerError, match=rf"has no Python backend: .*backends/python/{STUB} is missing"):
        find_stub(home, VERSION)


def test_every_bundled_stub_is_for_the_version_of_its_folder():
    stubs = BUNDLED / "python_backend_stubs"
    if not stubs.is_dir():
        pytest.skip("this installation has no server")
    for folder in stubs.iterdir():
        assert find_stub(BUNDLED, folder.name) == folder / STUB


def test_the_interpreters_library_is_found(libpython):
    assert find_libpython() == libpython


def test_a_link_to_the_library_is_followed(libpython, tmp_path):
    """The server's environment names its folder, which must not be one of other libraries."""
    libpython.rename(tmp_path / "real.so")
    libpython.symlink_to(tmp_path / "real.so")
    assert find_libpython() == tmp_path / "real.so"


def test_the_running_interpreters_library_is_found():
    library = sysconfig.get_config_var("LDLIBRARY")
    if not library.endswith(".so"):
        pytest.skip("this interpreter was built without a shared library")
    assert find_libpython().name.startswith(f"libpython{VERSION}.so")


def test_an_interpreter_without_a_shared_library_is_told_how_to_get_one(libpython, monkeypatch):
    monkeypatch.setattr(os.path, "isfile", lambda path: False)
    with pytest.raises(PyTritonServerError, match=rf"libpython{VERSION}\.so\.1\.0 is missing") as raised:
        find_libpython()
    assert f"apt-get install libpython{VERSION}" in str(raised.value)


def test_a_free_threaded_interpreter_is_refused(libpython, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.__getitem__)
    with pytest.raises(PyTritonServerError, match="free-threaded"):
        find_libpython()
