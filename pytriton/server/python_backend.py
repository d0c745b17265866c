"""What Triton's Python backend needs to run models in this interpreter: a stub, a libpython, an environment."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy

from pytriton.exceptions import PyTritonServerError

__all__ = ["NO_PYTHON_BACKEND", "STUB", "PythonBackend", "find_libpython", "find_stub"]

STUB = "triton_python_backend_stub"
UTILITIES = "triton_python_backend_utils.py"  # the module that each model imports
ABI = Path(__file__).parent.parent / "python_proxy" / "abi.py"
# At the end of that module: without it, models would get wrong arrays under NumPy 2.
ADAPTATION = """

import sys

import c_python_backend_utils
import pytriton_abi

pytriton_abi.adapt(sys.modules[__name__], c_python_backend_utils.Tensor)
"""
NO_PYTHON_BACKEND = "unable to find backend library for backend 'python'"  # of a server that has no such backend
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True)
class PythonBackend:
    """The stub for the running interpreter, and the interpreter's shared library, which the stub is linked against."""

    stub: Path
    libpython: Path

    @classmethod
    def find(cls, home: Path) -> PythonBackend:
        """Those of a server in the folder ``home``.

        Raises:
            PyTritonServerError: There is no stub or no shared library for this interpreter.
        """
        return cls(find_stub(home, VERSION), find_libpython())

    def link(self, source: Path, folder: Path) -> None:
        """Make a backend and a virtual environment in a folder that has ``backends/`` and ``lib/``.

        Args:
            source: The backend of the installation. The one here consists of links to its files, but for the stub and
                the module that models import, which is a copy with ``ADAPTATION``.
            folder: The stub gets our libpython from its ``lib/``, under the name that it was linked against.
        """
        backend = folder / "backends" / "python"
        backend.mkdir()
        for file in source.iterdir():
            if file.name == UTILITIES:
                (backend / UTILITIES).write_text(file.read_text() + ADAPTATION)
            elif file.name != STUB:
                (backend / file.name).symlink_to(file)
        (backend / "pytriton_abi.py").symlink_to(ABI)
        (backend / STUB).symlink_to(self.stub)
        for name in linked_libpython(self.stub):
            (folder / "lib" / name).symlink_to(self.libpython)
        make_environment(folder / "python")


def find_stub(home: Path, version: str) -> Path:
    """The stub of a server in the folder ``home`` for a Python version such as ``3.11``.

    Raises:
        PyTritonServerError: There is none, or it is for another version.
    """
    bundled = home / "python_backend_stubs"
    stub = bundled / version / STUB if bundled.is_dir() else home / "backends" / "python" / STUB
    if version in linked_versions(stub):
        return stub
    linked = {found for path in (stub, *bundled.glob(f"*/{STUB}")) for found in linked_versions(path)}
    if not linked:
        raise PyTritonServerError(f"the server at {home} has no Python backend: {stub} is missing")
    have = ", ".join(sorted(linked, key=lambda text: (len(text), text)))
    raise PyTritonServerError(f"the server at {home} serves Python {have}, not {version}: use such an interpreter")


def make_environment(folder: Path) -> None:
    """Make a virtual environment of this interpreter with its numpy, for the stubs.

    A stub embeds the interpreter and finds the standard library and packages as ``python3`` on its PATH would. Most
    stubs heed no ``PYTHON*`` variables, so a ``python3`` is what they get.
    """
    executable = Path(os.path.realpath(sys.executable))
    packages = folder / "lib" / f"python{VERSION}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "numpy.pth").write_text(f"{Path(numpy.__file__).parent.parent}\n")
    (folder / "pyvenv.cfg").write_text(f"home = {executable.parent}\ninclude-system-site-packages = false\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(executable)


@cache
def linked_libpython(stub: Path) -> Sequence[str]:
    """File names of the libpython that a stub was linked against."""
    return sorted({name.decode() for name in re.findall(rb"libpython[\w.-]+\.so[\w.]*", stub.read_bytes())})


def linked_versions(stub: Path) -> set[str]:
    """Versions of those, such as ``3.11``; none if there is no such stub."""
    names = linked_libpython(stub) if stub.is_file() else ()
    # A name in the bundled server may have a hash in it: libpython3-419a3a08.13.so.1.0
    return {f"3.{match[1]}" for name in names if (match := re.match(r"libpython3(?:-\w+)?\.(\d+)\.so", name))}


def find_libpython() -> Path:
    """The shared library of this interpreter.

    Raises:
        PyTritonServerError: It was built without one, or it is not installed.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise PyTritonServerError(
            "the server's Python backend needs an interpreter with the GIL; this one is free-threaded"
        )
    name = f"libpython{VERSION}.so.1.0"
    folders = [
        sysconfig.get_config_var("LIBDIR"),
        os.path.join(sys.base_exec_prefix, "lib"),
        os.path.join(os.path.dirname(os.path.realpath(sys.executable)), "..", "lib"),
        f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    ]
    for folder in filter(None, folders):
        if os.path.isfile(os.path.join(folder, name)):
            return Path(folder, name).resolve()
    raise PyTritonServerError(
        f"{name} is missing: the server runs its Python models with it. Install the interpreter's shared library "
        f"(Debian, Ubuntu: apt-get install libpython{VERSION}; Fedora: dnf install python3-libs), or use an "
        "interpreter that has it, such as those of uv, conda, or pyenv with PYTHON_CONFIGURE_OPTS=--enable-shared"
    )
