"""Which server is launched, and the view of it that one server process gets."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from pytriton.exceptions import PyTritonServerError
from pytriton.server import installation as installations
from pytriton.server.installation import (
    MALLOC_SETTINGS,
    Installation,
    find_installation,
    find_libpython,
    overlay,
    server_environment,
)

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
STUB = "triton_python_backend_stub"


def make_stub(folder, version=VERSION):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STUB).write_bytes(b"\x7fELF\0libc.so.6\0libpython%s.so.1.0\0...\0" % version.encode())


def make_home(folder, *stubs):
    """A server's folder; with ``stubs``, the bundled kind that has one for each of these Python versions."""
    for name in ("bin", "lib", "backends/python", "backends/onnxruntime", "caches/local"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "tritonserver").touch()
    (folder / "backends" / "python" / "libtriton_python.so").touch()
    for version in stubs:
        make_stub(folder / "python_backend_stubs" / version, version)
    if not stubs:
        make_stub(folder / "backends" / "python")
    return folder


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "server home", VERSION)


@pytest.fixture
def libpython(tmp_path, monkeypatch):
    """An interpreter whose shared library lies in a folder of its own."""
    folder = tmp_path / "interpreter"
    folder.mkdir()
    (folder / f"libpython{VERSION}.so.1.0").touch()
    known = {"LIBDIR": str(folder), "MULTIARCH": None, "Py_GIL_DISABLED": 0}
    monkeypatch.setattr(sysconfig, "get_config_var", known.__getitem__)
    return folder / f"libpython{VERSION}.so.1.0"


def test_the_server_that_the_environment_names_wins(home):
    found = find_installation({"TRITONSERVER_HOME": str(home)})
    assert found == Installation(home)
    assert found.executable == home / "bin" / "tritonserver"
    assert found.caches == home / "caches"


@pytest.mark.parametrize("environment", [{}, {"TRITONSERVER_HOME": ""}])
def test_without_a_choice_the_bundled_server_is_taken(home, monkeypatch, environment):
    monkeypatch.setattr(installations, "BUNDLED", home)
    assert find_installation(environment) == Installation(home)


def test_the_home_may_be_relative_or_below_the_users_home(home, monkeypatch):
    monkeypatch.chdir(home.parent)
    assert find_installation({"TRITONSERVER_HOME": home.name}) == Installation(home)
    monkeypatch.setenv("HOME", str(home.parent))
    assert find_installation({"TRITONSERVER_HOME": f"~/{home.name}"}) == Installation(home)


def test_a_chosen_folder_without_a_server_is_an_error_even_beside_a_bundled_one(home, tmp_path, monkeypatch):
    monkeypatch.setattr(installations, "BUNDLED", home)
    message = rf"TRITONSERVER_HOME={tmp_path} holds no server: {tmp_path}/bin/tritonserver is missing"
    with pytest.raises(PyTritonServerError, match=message):
        find_installation({"TRITONSERVER_HOME": str(tmp_path)})


def test_without_any_server_the_error_says_what_works_and_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setattr(installations, "BUNDLED", tmp_path)
    with pytest.raises(PyTritonServerError, match=r"no Triton Inference Server \(platform: Linux \w+\)") as raised:
        find_installation({})
    for part in ("Clients work without it", "install such a wheel", "set TRITONSERVER_HOME", "/opt/tritonserver"):
        assert part in str(raised.value)


def test_the_stub_is_that_of_the_version(tmp_path):
    home = make_home(tmp_path / "bundled", "3.9", "3.10", "3.11")
    assert Installation(home).stub("3.10") == home / "python_backend_stubs" / "3.10" / STUB
    with pytest.raises(PyTritonServerError, match=r"bundled serves Python 3\.9, 3\.10, 3\.11, not 3\.20: use such an"):
        Installation(home).stub("3.20")


def test_another_servers_stub_is_taken_if_it_is_for_the_version(tmp_path):
    home = make_home(tmp_path / "ngc")
    assert Installation(home).stub(VERSION) == home / "backends" / "python" / STUB
    with pytest.raises(PyTritonServerError, match=rf"ngc serves Python {VERSION}, not 3\.20"):
        Installation(home).stub("3.20")


def test_a_server_without_a_python_backend_is_named(tmp_path):
    home = make_home(tmp_path / "ngc")
    (home / "backends" / "python" / STUB).unlink()
    with pytest.raises(PyTritonServerError, match=rf"has no Python backend: .*backends/python/{STUB} is missing"):
        Installation(home).stub(VERSION)


def test_the_overlay_is_made_of_links_and_has_the_stub_beside_the_backend(home, libpython, tmp_path):
    overlay(Installation(home), tmp_path / "overlay", tmp_path / "no native proxy")
    backends = tmp_path / "overlay" / "backends"
    links = {str(path.relative_to(backends)): path.readlink() for path in backends.rglob("*") if path.is_symlink()}
    assert links == {
        "onnxruntime": home / "backends" / "onnxruntime",
        "python/libtriton_python.so": home / "backends" / "python" / "libtriton_python.so",
        f"python/{STUB}": home / "python_backend_stubs" / VERSION / STUB,
    }
    library = tmp_path / "overlay" / "lib" / f"libpython{VERSION}.so.1.0"
    assert library.resolve() == libpython


def test_a_stub_beside_the_backend_is_replaced_by_that_of_the_version(home, libpython, tmp_path):
    make_stub(home / "backends" / "python", "3.8")
    overlay(Installation(home), tmp_path / "overlay", tmp_path / "no native proxy")
    link = tmp_path / "overlay" / "backends" / "python" / STUB
    assert link.readlink() == home / "python_backend_stubs" / VERSION / STUB


def test_an_overlay_that_is_not_possible_leaves_nothing(home, libpython, tmp_path):
    make_stub(home / "python_backend_stubs" / VERSION, "3.20")
    with pytest.raises(PyTritonServerError):
        overlay(Installation(home), tmp_path / "overlay", tmp_path / "no native proxy")
    assert not (tmp_path / "overlay").exists()


def test_the_stubs_python_is_this_interpreter_with_its_numpy(home, tmp_path):
    """Started as by a stub: with the PATH of the server, and without the variables of this environment."""
    overlay(Installation(home), tmp_path / "overlay", tmp_path / "no native proxy")
    environment = server_environment(Installation(home), tmp_path / "overlay", {"PYTHONPATH": "x", "PYTHONHOME": "y"})
    script = "import sys, numpy; print(sys.version); print(numpy.__file__); print('pytriton' in sys.modules)"
    done = subprocess.run(["python3", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [sys.version, np.__file__, "False"]


def test_the_stubs_library_gets_every_name_that_the_stub_may_look_for(home, libpython, tmp_path):
    names = [f"libpython{VERSION}.so.1.0", f"libpython{VERSION.replace('.', '-419a3a08.')}.so.1.0"]
    (home / "python_backend_stubs" / VERSION / STUB).write_bytes("\0".join(names).encode())
    overlay(Installation(home), tmp_path / "overlay", tmp_path / "no native proxy")
    assert sorted(os.listdir(tmp_path / "overlay" / "lib")) == sorted(names)


def test_every_bundled_stub_is_for_the_version_of_its_folder():
    stubs = installations.BUNDLED / "python_backend_stubs"
    if not stubs.is_dir():
        pytest.skip("this installation has no server")
    for folder in stubs.iterdir():
        assert Installation(installations.BUNDLED).stub(folder.name) == folder / STUB


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


def environment_of(home, environment):
    return server_environment(Installation(home), Path("/overlay"), environment)


def test_the_users_environment_reaches_the_server(home, libpython):
    assert environment_of(home, {"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == "3"


def test_libraries_are_looked_for_in_the_overlay_then_the_server_then_the_interpreter_then_the_users(home, libpython):
    paths = ["/overlay/lib", str(home / "lib"), str(libpython.parent)]
    assert environment_of(home, {})["LD_LIBRARY_PATH"] == ":".join(paths)
    assert environment_of(home, {"LD_LIBRARY_PATH": "/a:/b"})["LD_LIBRARY_PATH"] == ":".join([*paths, "/a", "/b"])


def test_our_own_configuration_does_not_reach_the_server(home, libpython):
    given = {"PYTRITON_TRITON_CONFIG_HTTP_RESTRICTED_API": "trace:key=s3cret", "PYTRITON_HOME": "/kept"}
    assert "s3cret" not in str(environment_of(home, given))
    assert environment_of(home, given)["PYTRITON_HOME"] == "/kept"


def test_the_users_allocator_and_thread_settings_win(home, libpython):
    ours = environment_of(home, {})
    assert MALLOC_SETTINGS.items() <= ours.items()
    assert ours["OMP_NUM_THREADS"] == "1"
    theirs = {"MALLOC_TRIM_THRESHOLD_": "131072", "OMP_NUM_THREADS": "4"}
    assert {**MALLOC_SETTINGS, **theirs}.items() <= environment_of(home, theirs).items()


def test_the_stubs_python_comes_first_on_the_path(home, libpython):
    assert environment_of(home, {"PATH": "/a:/b"})["PATH"] == "/overlay/python/bin:/a:/b"
    assert environment_of(home, {})["PATH"] == f"/overlay/python/bin:{os.defpath}"


def test_variables_that_mislead_an_embedded_interpreter_are_left_out(home, libpython):
    assert not {"PYTHONHOME", "PYTHONPATH"} & {*environment_of(home, {"PYTHONHOME": "/x", "PYTHONPATH": "/y"})}


def test_the_given_environment_is_left_as_it_is(home, libpython):
    given = {"PATH": "/a", "PYTHONPATH": "/y"}
    environment_of(home, given)
    assert given == {"PATH": "/a", "PYTHONPATH": "/y"}


def test_the_native_proxy_is_a_backend_if_it_was_built(home, libpython, tmp_path):
    native = tmp_path / "libtriton_pytriton.so"
    native.touch()
    overlay(Installation(home), tmp_path / "overlay", native)
    assert (tmp_path / "overlay" / "backends" / "pytriton" / native.name).resolve() == native
