"""Which server is launched, and the view of it that one server process gets."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytriton.exceptions import PyTritonServerError
from pytriton.server import installation as installations
from pytriton.server.backends import ABI, ADAPTATION, STUB, UTILITIES, VERSION, PythonBackend
from pytriton.server.installation import (
    BUNDLED,
    MALLOC_SETTINGS,
    Installation,
    find_installation,
    overlay,
    server_environment,
    warn_exposed,
    weaknesses_of,
)
from tests.unit.installations import make_home, make_stub


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


def test_the_overlay_has_the_stub_beside_the_backend_and_adapts_its_models(home, libpython, tmp_path):
    overlay(Installation(home), tmp_path / "overlay", tmp_path / "no native proxy")
    backends = tmp_path / "overlay" / "backends"
    links = {str(path.relative_to(backends)): path.readlink() for path in backends.rglob("*") if path.is_symlink()}
    assert links == {
        "onnxruntime": home / "backends" / "onnxruntime",
        "python/libtriton_python.so": home / "backends" / "python" / "libtriton_python.so",
        f"python/{STUB}": home / "python_backend_stubs" / VERSION / STUB,
        "python/pytriton_abi.py": ABI,
    }
    assert (backends / "python" / UTILITIES).read_text() == f"TRITON = 1\n{ADAPTATION}"
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
    python = overlay(Installation(home), tmp_path / "overlay", tmp_path / "no native proxy")
    environment = server_environment(
        Installation(home), tmp_path / "overlay", python, {"PYTHONPATH": "x", "PYTHONHOME": "y"}
    )
    script = "import sys, numpy; print(sys.version); print(numpy.__file__); print('pytriton' in sys.modules)"
    done = subprocess.run(["python3", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [sys.version, np.__file__, "False"]


def test_the_stubs_library_gets_every_name_that_the_stub_may_look_for(home, libpython, tmp_path):
    names = [f"libpython{VERSION}.so.1.0", f"libpython{VERSION.replace('.', '-419a3a08.')}.so.1.0"]
    (home / "python_backend_stubs" / VERSION / STUB).write_bytes("\0".join(names).encode())
    overlay(Installation(home), tmp_path / "overlay", tmp_path / "no native proxy")
    assert sorted(os.listdir(tmp_path / "overlay" / "lib")) == sorted(names)


def environment_of(home, environment):
    return server_environment(Installation(home), Path("/overlay"), PythonBackend.find(home), environment)


def test_the_users_environment_reaches_the_server(home, libpython):
    assert environment_of(home, {"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize(("is_bundled", "checks"), [(True, "1"), (False, "0")])
def test_requests_to_the_bundled_server_are_checked(home, tmp_path, monkeypatch, is_bundled, checks):
    monkeypatch.setattr(installations, "BUNDLED", home if is_bundled else tmp_path)
    (tmp_path / "overlay" / "lib").mkdir(parents=True)
    (tmp_path / "overlay" / "lib" / installations.PRELOADED).touch()
    environment = server_environment(Installation(home), tmp_path / "overlay", None, {})
    assert environment["LD_PRELOAD"] == installations.PRELOADED
    assert environment["PYTRITON_REQUEST_CHECKS"] == checks


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


@pytest.fixture
def native(tmp_path):
    """The native proxy, as if it had been built."""
    path = tmp_path / "libtriton_pytriton.so"
    path.touch()
    return path


@pytest.fixture
def other(tmp_path):
    """The folder of a server whose only stub is for another interpreter."""
    return make_home(tmp_path / "other", "3.20")


def test_the_native_proxy_is_a_backend_if_it_was_built(home, libpython, native, tmp_path):
    overlay(Installation(home), tmp_path / "overlay", native)
    assert (tmp_path / "overlay" / "backends" / "pytriton" / native.name).resolve() == native


def test_with_the_native_proxy_a_server_goes_without_its_python_backend(other, libpython, native, tmp_path):
    python = overlay(Installation(other), tmp_path / "overlay", native)
    assert python is None
    assert sorted(os.listdir(tmp_path / "overlay" / "backends")) == ["onnxruntime", "pytriton"]
    environment = server_environment(Installation(other), tmp_path / "overlay", python, {"PATH": "/a:/b"})
    assert environment["LD_LIBRARY_PATH"] == f"{tmp_path}/overlay/lib:{other}/lib"
    assert environment["PATH"] == "/a:/b"


def test_a_server_may_have_no_backends_of_its_own(tmp_path, native):
    overlay(Installation(tmp_path / "empty"), tmp_path / "overlay", native)
    assert os.listdir(tmp_path / "overlay" / "backends") == ["pytriton"]


def test_what_the_python_backend_lacks_is_told_with_the_native_proxy_as_the_other_way(other, libpython, native):
    with pytest.raises(PyTritonServerError, match=r"serves Python 3\.20, not .* have the native proxy serve the model"):
        Installation(other).python_backend(native)
    native.unlink()
    with pytest.raises(PyTritonServerError, match=r"serves Python 3\.20, not .* where there is a C\+\+ compiler"):
        Installation(other).python_backend(native)


@pytest.fixture
def not_warned(monkeypatch):
    monkeypatch.setattr(installations, "_warned", False)


@pytest.mark.parametrize("version", ["2.51.0", "2.61.0", "1.15.0"])
def test_old_versions_have_weaknesses_and_the_text_names_the_ways_out(version):
    text = weaknesses_of(version)
    assert version in text
    assert all(part in text for part in ("TRITONSERVER_HOME", "proxy in front", "docs/security.md"))


@pytest.mark.parametrize("version", ["2.62.0", "3.0", "2.70.0dev", "unknown"])
def test_nothing_is_known_of_others(version):
    assert weaknesses_of(version) == ""


def test_a_bundled_server_that_others_can_reach_is_warned_of_once(not_warned, caplog):
    for _ in range(2):
        warn_exposed(Installation(BUNDLED))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_another_server_is_not_warned_of(not_warned, caplog, tmp_path):
    warn_exposed(Installation(tmp_path))
    assert not caplog.records
