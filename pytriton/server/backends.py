"""The server's backends that bound models use: our own in C++, the native proxy, and Triton's Python backend."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy

from pytriton.exceptions import PyTritonServerError, PyTritonValidationError
from pytriton.logs import get_logger

__all__ = [
    "BACKEND",
    "LIBRARY",
    "NO_PYTHON_BACKEND",
    "PROXIES",
    "PROXY_VARIABLE",
    "STUB",
    "NativeProxyError",
    "ProxyChoice",
    "PythonBackend",
    "build_mismatch",
    "choose_proxy",
    "find_libpython",
    "find_stub",
    "uses_native",
]

LOGGER = get_logger("pytriton.triton")

BACKEND = "pytriton"  # the server looks for libtriton_<backend>.so in a folder of this name
LIBRARY = Path(__file__).parent.parent / "native" / f"libtriton_{BACKEND}.so"
PROXY_VARIABLE = "PYTRITON_PROXY"
AUTO, NATIVE, PYTHON = PROXIES = ("auto", "native", "python")
_STAMP = re.compile(rb"pytriton-stamp:([0-9a-f]{64})")

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
_warned = False


# The native proxy, and which proxy serves a model


class NativeProxyError(PyTritonValidationError):
    """``bind`` was asked for the native proxy, which cannot be used."""


@dataclass(frozen=True)
class ProxyChoice:
    """Which proxy serves a model.

    Attributes:
        native: Whether it is the native proxy.
        reason: Why it is not; empty if it is.
        asked: Whether the user asked for the Python proxy.
    """

    native: bool
    reason: str = ""
    asked: bool = False


def choose_proxy(
    proxy: str, ours: bool, library: Path = LIBRARY, environment: Mapping[str, str] = os.environ
) -> ProxyChoice:
    """Choose the proxy of a model.

    Args:
        proxy: One of PROXIES; ``auto`` is what ``$PYTRITON_PROXY`` says, if anything, else native where possible.
        ours: Whether this process launches the server, so that the server has our backend.

    Raises:
        PyTritonValidationError: ``proxy`` is none of PROXIES.
        NativeProxyError: The native proxy was asked for and cannot be used.
    """
    setting = f"proxy={proxy!r}"
    forced = proxy == NATIVE
    if proxy == AUTO:
        proxy = environment.get(PROXY_VARIABLE) or AUTO
        setting = f"{PROXY_VARIABLE}={proxy}"
        forced = ours and proxy == NATIVE
    if proxy not in PROXIES:
        raise PyTritonValidationError(f"proxy is {proxy!r}; choose one of {', '.join(map(repr, PROXIES))}")
    if proxy == PYTHON:
        return ProxyChoice(False, f"{setting} asks for it", asked=True)
    reason = ""
    if not ours:
        reason = "the server is not launched by this process, and has its own backends"
    elif not library.is_file():
        reason = (
            f"{library} is missing: there was no C++ compiler, CMake or Ninja when this package was built; install it "
            "again where there is a compiler (apt-get install g++), or from a wheel"
        )
    else:
        reason = build_mismatch(library)
    if reason and forced:
        raise NativeProxyError(f"the native proxy cannot be used: {reason}")
    return ProxyChoice(not reason, reason)


@cache
def build_mismatch(library: Path) -> str:
    """Why a compiled library does not belong to this package's Python, and what to do; empty if it does.

    The library holds a hash of the sources that it was compiled from. It has to be the hash of the sources beside it,
    as in an editable installation, or else the one in ``stamp.txt``, as in a wheel.
    """
    expected = _sources_hash(library.parent) or _built_hash(library.parent)
    if not expected:
        return ""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = [match[1].decode() for match in _STAMP.finditer(content)]
    if found == [expected]:
        return ""
    return (
        f"{library} was compiled from other sources than this package's; install it again, in a checkout with "
        "pip install -e ."
    )


def _sources_hash(folder: Path) -> str:
    """As CMakeLists.txt computes it; empty where there are no sources."""
    names = sorted(
        path.relative_to(folder).as_posix()
        for pattern in ("CMakeLists.txt", "*.map", "*/*.cpp", "*/*.h")
        for path in folder.glob(pattern)
    )
    listed = [f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n" for name in names]
    return hashlib.sha256("".join(listed).encode()).hexdigest() if names else ""


def _built_hash(folder: Path) -> str:
    stamp = folder / "stamp.txt"
    return stamp.read_text() if stamp.is_file() else ""


def uses_native(proxy: str, ours: bool, library: Path = LIBRARY, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the native proxy serves a model; as :func:`choose_proxy`. The log says once if it could not be used."""
    global _warned
    choice = choose_proxy(proxy, ours, library, environment)
    if ours and not choice.native and not choice.asked and not _warned:
        _warned = True
        LOGGER.warning(
            "models are served by Triton's Python backend, which is slower than the native proxy: %s", choice.reason
        )
    return choice.native


# What Triton's Python backend needs to run models in this interpreter


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
