"""The package itself: what importing it brings in, and what it offers."""

import subprocess
import sys
from importlib import metadata

import pytest

import pytriton


def loaded_after(statement):
    """The modules that a fresh interpreter has loaded after a statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ["client", "model_config", "triton"])
def test_submodules_are_imported_when_first_used(name):
    assert getattr(pytriton, name).__name__ == f"pytriton.{name}"
    assert f"pytriton.{name}" in loaded_after(f"import pytriton; pytriton.{name}")


def test_a_star_import_gives_the_submodules():
    assert {f"pytriton.{name}" for name in pytriton.__all__} <= loaded_after("from pytriton import *")


def test_other_attributes_do_not_exist():
    with pytest.raises(AttributeError, match="module 'pytriton' has no attribute 'no_such_thing'"):
        _ = pytriton.no_such_thing


def test_the_version_is_that_of_the_installed_package():
    try:
        installed = metadata.version("pytriton")
    except metadata.PackageNotFoundError:
        installed = None
    assert getattr(pytriton, "__version__", None) == installed
