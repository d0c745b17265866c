"""The package itself: what importing it brings in, and what it offers."""

import ast
import importlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import pytriton


def loaded_after(statement):
    """The modules that a fresh interpreter has loaded after a statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ["client", "decorators", "exceptions", "model_config", "triton"])
def test_submodules_are_imported_when_first_used(name):
    assert getattr(pytriton, name).__name__ == f"pytriton.{name}"
    assert f"pytriton.{name}" in loaded_after(f"import pytriton; pytriton.{name}")


def test_a_star_import_gives_the_submodules():
    assert {f"pytriton.{name}" for name in pytriton._MODULES} <= loaded_after("from pytriton import *")


@pytest.mark.parametrize("name", pytriton.__all__)
def test_each_name_is_that_of_a_module_below_and_is_listed(name):
    value = getattr(pytriton, name)
    assert value is getattr(pytriton, name)
    assert name in dir(pytriton)
    if name in pytriton._HOME_OF:
        home = importlib.import_module(f"pytriton.{pytriton._HOME_OF[name]}")
        assert value is getattr(home, name)
        assert name in home.__all__


def test_type_checkers_are_told_the_same_names():
    tree = ast.parse(Path(pytriton.__file__).read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    told = {alias.name: node.module for node in imports for alias in node.names}
    assert sorted(told) == pytriton.__all__
    homes = {name: f"pytriton.{module}" for name, module in pytriton._HOME_OF.items()}
    assert told == homes | dict.fromkeys(pytriton._MODULES, "pytriton")


def test_importing_the_package_loads_nothing_else_of_it():
    loaded = loaded_after("import pytriton")
    assert {name for name in loaded if name.startswith(("pytriton.", "numpy"))} == {"pytriton.distribution"}


def test_importing_a_client_from_the_package_does_not_load_what_serves_models():
    loaded = loaded_after("from pytriton import ModelClient")
    assert "pytriton.client" in loaded
    assert not loaded & {"pytriton.triton", "pytriton.decorators", "pytriton.workers"}


def test_other_attributes_do_not_exist():
    with pytest.raises(AttributeError, match="module 'pytriton' has no attribute 'no_such_thing'"):
        _ = pytriton.no_such_thing


def test_the_version_is_that_of_the_installed_package():
    try:
        installed = metadata.version("pytriton")
    except metadata.PackageNotFoundError:
        installed = None
    assert getattr(pytriton, "__version__", None) == installed
