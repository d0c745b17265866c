"""Dependencies point one way: the imports of every module are read and checked against the picture of the layers."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "pytriton"
SERVER = PACKAGE / "tritonserver"  # the server's own files

# Each layer and those that it may import. A layer is a package, or a module beside them; a longer name is one module
# of a layer, and all that may be imported of it.
LAYERS = {
    "exceptions": [],
    "constants": [],
    "distribution": [],
    "forks": [],
    "signals": ["forks"],
    "wire": [],
    "python_proxy": ["wire"],
    "proxy": [],
    "config": ["exceptions"],
    "security": ["exceptions"],
    "utils": ["constants", "exceptions", "forks"],
    "model_config": ["constants", "exceptions"],
    "client": ["constants", "exceptions", "forks", "model_config", "signature.validation", "signature.values"],
    "compat": ["client", "exceptions", "forks", "model_config", "server.statistics"],
    "worker": ["constants", "exceptions", "forks", "model_config", "proxy", "wire"],
    "decorators": [
        "constants",
        "distribution",
        "exceptions",
        "model_config",
        "proxy.telemetry",
        "proxy.types",
        "worker.context",
    ],
    "server": ["client", "config", "constants", "exceptions", "forks", "model_config", "security", "utils"],
    "signature": ["exceptions", "model_config", "proxy.types"],
    "pool": [
        "decorators.batching",
        "decorators.signatures",
        "exceptions",
        "forks",
        "model_config",
        "proxy.telemetry",
        "signals",
        "signature",
        "wire",
        "worker",
    ],
    "workers": ["pool"],
    "model": ["exceptions", "model_config", "pool", "server"],
    "inprocess": [
        "base",
        "client",
        "exceptions",
        "forks",
        "model",
        "model_config",
        "server.capabilities",
        "server.control",
        "server.installation",
        "server.launch",
        "server.native_backend",
        "server.python_backend",
        "server.statistics",
        "utils.workspace",
        "wire",
        "worker",
    ],
    "binding": ["exceptions", "model", "model_config", "server", "utils"],
    "base": [
        "binding",
        "client",
        "constants",
        "exceptions",
        "forks",
        "model",
        "model_config",
        "pool",
        "server",
        "signals",
        "signature.functions",
        "utils",
        "worker",
    ],
    "remote": ["base", "constants", "exceptions", "model", "server", "utils"],
    "triton": [
        "base",
        "client",
        "config",
        "constants",
        "exceptions",
        "model",
        "model_config",
        "remote",
        "security",
        "server",
        "utils",
        "worker",
    ],
    "cli": [
        "base",
        "client",
        "config",
        "constants",
        "decorators",
        "exceptions",
        "model_config",
        "security",
        "server",
        "signals",
        "triton",
    ],
    "__main__": ["cli"],
}

# Imports within functions, and why.
DOCUMENTED = {
    "pytriton": ["importlib.metadata", "importlib.metadata"],  # few ask for the version
    "pytriton.model_config.generator": ["pytriton.model_config.pbtxt"],  # protobuf costs 0.3 s, and few need it
    "pytriton.model_config.parser": ["pytriton.model_config.pbtxt"],
}

# tritonclient brings "google" and "grpc", and the first one for Python 3.10.
DEPENDENCIES = {"async_timeout", "cloudpickle", "google", "grpc", "httptools", "numpy"}
DEPENDENCIES |= {"tenacity", "tritonclient", "wrapt"}
# Of the extra "cli"; matplotlib is imported when a picture is asked for.
COMMAND_LINE = {"rich", "typer", "watchfiles"}
PUBLIC = [
    "pytriton",
    "pytriton.client",
    "pytriton.decorators",
    "pytriton.inprocess",
    "pytriton.model_config",
    "pytriton.triton",
    "pytriton.workers",
]
COPIED = "python_proxy", "wire"
IN_THE_BACKEND = {f"pytriton.python_proxy.{name}" for name in ("codec", "concurrent", "model", "pending", "serial")}
NETWORK = {"aiohttp", "grpc", "google.protobuf", "tritonclient.grpc", "tritonclient.http", "gevent", "geventhttpclient"}


class Import(NamedTuple):
    """One imported module; ``nested`` within a function, ``typing`` for type checkers alone."""

    name: str
    nested: bool
    typing: bool


class Imports(ast.NodeVisitor):
    """Collects the imports of a module.

    Args:
        module: Its name; for a package, that of its ``__init__``.
        modules: Names of all modules: ``from a import b`` imports the module ``a.b`` if there is one.
    """

    def __init__(self, module: str, modules: set[str]) -> None:
        self.found: list[Import] = []
        self._package = module.rpartition(".")[0].split(".")
        self._modules = modules
        self._nested = self._typing = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self._package[: len(self._package) + 1 - node.level] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            whole = f"{module}.{alias.name}"
            self._add(whole if whole in self._modules else module)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before, self._nested = self._nested, True
        self.generic_visit(node)
        self._nested = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            return self.generic_visit(node)
        before, self._typing = self._typing, True
        for statement in node.body:
            self.visit(statement)
        self._typing = before
        for statement in node.orelse:
            self.visit(statement)
        return None

    def _add(self, name: str) -> None:
        self.found.append(Import(name, self._nested, self._typing))


def module_name(path: Path) -> str:
    return ".".join(["pytriton", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def imports_in(source: str, path: Path, modules: set[str]) -> list[Import]:
    visitor = Imports(".".join(["pytriton", *path.relative_to(PACKAGE).with_suffix("").parts]), modules)
    visitor.visit(ast.parse(source))
    return visitor.found


PATHS = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py")) if SERVER not in path.parents}
MODULES = {name: imports_in(path.read_text(), path, {*PATHS}) for name, path in PATHS.items()}


def ours(module: str) -> Iterator[Import]:
    """The imports of a module from this package, less those for type checkers."""
    return (found for found in MODULES[module] if found.name.split(".")[0] == "pytriton" and not found.typing)


def theirs(module: str) -> set[str]:
    """Third-party packages that a module imports."""
    roots = {found.name.split(".")[0] for found in MODULES[module] if not found.typing}
    return roots - {"pytriton", "__future__"} - sys.stdlib_module_names


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def may_import(module: str, name: str) -> bool:
    layer, target = layer_of(module), name.removeprefix("pytriton.")
    return layer_of(name) == layer or any(f"{target}.".startswith(f"{allowed}.") for allowed in LAYERS[layer])


def test_the_reader_of_imports_finds_every_kind():
    source = """
import os, numpy.linalg
from typing import TYPE_CHECKING
from .frames import ALIGN
from . import arena
from ..constants import PORT
from pytriton import model_config as other
if TYPE_CHECKING:
    import grpc
else:
    import wrapt
async def function():
    class Inner:
        from pytriton.client import sync
try:
    import google.protobuf
finally:
    pass
"""
    found = imports_in(source, PACKAGE / "wire" / "made_up.py", {*PATHS})
    assert found == [
        Import("os", False, False),
        Import("numpy.linalg", False, False),
        Import("typing", False, False),
        Import("pytriton.wire.frames", False, False),
        Import("pytriton.wire.arena", False, False),
        Import("pytriton.constants", False, False),
        Import("pytriton.model_config", False, False),
        Import("grpc", False, True),
        Import("wrapt", False, False),
        Import("pytriton.client.sync", True, False),
        Import("google.protobuf", False, False),
    ]


def test_a_package_imports_relative_to_itself():
    found = imports_in("from .tensor import Tensor", PACKAGE / "model_config" / "__init__.py", {*PATHS})
    assert [each.name for each in found] == ["pytriton.model_config.tensor"]


def test_the_rules_tell_layers_and_single_modules_apart():
    assert may_import("pytriton.client.url", "pytriton.constants")
    assert may_import("pytriton.client.url", "pytriton.client.auth")
    assert not may_import("pytriton.client.url", "pytriton.server.launch")
    assert not may_import("pytriton.model_config.tensor", "pytriton.model")
    assert may_import("pytriton.decorators.batching", "pytriton.worker.context")
    assert not may_import("pytriton.decorators.batching", "pytriton.worker.instance")


def test_the_layers_have_an_order():
    TopologicalSorter({name: {each.split(".")[0] for each in below} for name, below in LAYERS.items()}).prepare()


def test_every_module_belongs_to_a_layer():
    assert {layer_of(module) for module in MODULES} == {"", *LAYERS}


@pytest.mark.parametrize("module", [module for module in MODULES if module != "pytriton"])
def test_a_module_imports_only_what_lies_below(module):
    assert [found.name for found in ours(module) if not may_import(module, found.name)] == []


def test_the_package_itself_imports_nothing_but_the_check_of_its_own_files():
    assert [found.name for found in ours("pytriton")] == ["pytriton.distribution"]
    assert theirs("pytriton") | theirs("pytriton.distribution") == set()


def test_no_modules_import_each_other_in_a_circle():
    try:
        TopologicalSorter({module: {found.name for found in ours(module)} for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {error.args[1]}")


@pytest.mark.parametrize("module", MODULES)
def test_a_function_imports_nothing_but_where_it_is_documented(module):
    assert [found.name for found in MODULES[module] if found.nested] == DOCUMENTED.get(module, [])


@pytest.mark.parametrize("module", [module for module in MODULES if layer_of(module) in COPIED])
def test_the_proxy_needs_the_standard_library_and_numpy_alone(module):
    """Its files are copied into the model repository, where the server's Python backend imports them."""
    backend = {"triton_python_backend_utils"} if module in IN_THE_BACKEND else set()
    assert theirs(module) <= {"numpy"} | backend


def test_the_guard_needs_the_standard_library_alone():
    assert MODULES["pytriton.server.guard"]
    assert [*ours("pytriton.server.guard")] == []
    assert theirs("pytriton.server.guard") == set()


@pytest.mark.parametrize("module", [module for module in MODULES if layer_of(module) != "python_proxy"])
def test_third_parties_are_dependencies_of_the_distribution(module):
    assert theirs(module) <= DEPENDENCIES | (COMMAND_LINE if layer_of(module) == "cli" else set())


def test_the_command_says_what_to_install_without_its_extra():
    assert theirs("pytriton.cli") | theirs("pytriton.__main__") == set()


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_package_lists_what_it_offers(name):
    package = importlib.import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)  # their order is ruff's
    assert all(hasattr(package, offered) for offered in package.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_package_lists_every_class_and_function_that_it_defines(name):
    statements = ast.parse(PATHS[name].read_text()).body
    defined = {node.name for node in statements if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {each for each in defined if not each.startswith("_")} <= {*importlib.import_module(name).__all__}


def loaded_after(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after a statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", PUBLIC)
def test_importing_loads_no_library_of_the_network(module):
    loaded = loaded_after(f"import {module}")
    assert NETWORK & (loaded | {name.split(".")[0] for name in loaded}) == set()


@pytest.mark.parametrize("module", ["pytriton", "pytriton.decorators", "pytriton.model_config"])
def test_importing_what_callables_need_loads_no_client_at_all(module):
    assert not any(name.startswith(("tritonclient", "pytriton.client")) for name in loaded_after(f"import {module}"))


def test_importing_the_package_alone_loads_nothing_else():
    loaded = loaded_after("import pytriton")
    assert "numpy" not in loaded
    assert [name for name in loaded if name.startswith("pytriton.")] == ["pytriton.distribution"]
