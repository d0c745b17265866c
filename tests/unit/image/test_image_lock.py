"""The versions that an image installs are those that are installed here."""

import hashlib
import zipfile
from importlib.metadata import version

import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.image.lock import distributions_of, download, locked, text_of


def test_all_that_is_needed_is_locked_and_nothing_else():
    found = locked({"uvicorn[standard]"}, {"cli", "rest"})
    assert {"numpy", "tritonclient", "typer", "starlette", "uvicorn", "uvloop", "h11"} <= found.keys()
    assert not found.keys() & {"pytest", "pytriton", "nvidia-pytriton"}
    assert [*found] == sorted(found)
    assert all(version(name) == each for name, each in found.items())


def test_modules_are_found_in_their_distributions():
    assert distributions_of({"numpy", "yaml"}) == {"numpy", "PyYAML"}
    with pytest.raises(PyTritonValidationError, match="the module 'nothing_here' is not installed here"):
        distributions_of({"nothing_here"})


def test_what_is_not_installed_cannot_be_locked():
    with pytest.raises(PyTritonValidationError, match="nothing-here is not installed here"):
        locked({"nothing-here>=1"}, set())
    with pytest.raises(PyTritonValidationError, match="'a b' is no name of a distribution"):
        locked({"a b"}, set())


def test_the_lock_file_has_hashes_of_vendored_wheels():
    assert text_of({"b": "2"}, {"b": {"22", "11"}}).splitlines()[1:] == [
        "b==2 \\",
        "    --hash=sha256:11 \\",
        "    --hash=sha256:22",
    ]
    assert text_of({"a": "1"}).splitlines()[1:] == ["a==1"]


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes wheels from, with one of ``tiny``."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_wheels_are_vendored_with_their_hashes(index, tmp_path):
    (tmp_path / "requirements.lock").write_text(text_of({"tiny": "1.0"}))
    expected = hashlib.sha256((index / "tiny-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    assert download(tmp_path / "requirements.lock", tmp_path / "wheels") == {"tiny": {expected}}
    assert (tmp_path / "wheels" / "tiny-1.0-py3-none-any.whl").is_file()


def test_a_wheel_that_cannot_be_had_is_told(index, tmp_path):
    (tmp_path / "requirements.lock").write_text(text_of({"tiny": "2.0"}))
    with pytest.raises(
        PyTritonValidationError, match=r"pip cannot get the wheels of the lock file: ERROR: .*tiny==2\.0"
    ):
        download(tmp_path / "requirements.lock", tmp_path / "wheels")
