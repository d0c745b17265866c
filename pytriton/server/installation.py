"""Where the server's binaries are, and the view of them that one server process gets.

The bundled server has the layout of any Triton installation, plus one Python-backend stub per Python version::

    bin/tritonserver   lib/*.so*   backends/python/   caches/   python_backend_stubs/<X.Y>/triton_python_backend_stub
"""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy

from pytriton.config import ENVIRONMENT_PREFIX
from pytriton.exceptions import PyTritonServerError
from pytriton.server.native import BACKEND, LIBRARY

BUNDLED = Path(__file__).parent.parent / "tritonserver"
STUB = "triton_python_backend_stub"
HOME_VARIABLE = "TRITONSERVER_HOME"

# Large tensors are freed and allocated at every request: keep their memory in the process. Costs resident memory, see
# docs/performance.md; a value in the user's environment wins.
MALLOC_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
# The proxies do no arithmetic: without this their numpy starts a thread per core.
THREAD_SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Installation:
    """A Triton Inference Server on disk."""

    home: Path

    @property
    def executable(self) -> Path:
        """The ``tritonserver`` binary."""
        return self.home / "bin" / "tritonserver"

    @property
    def caches(self) -> Path:
        """The folder of response-cache plug-ins."""
        return self.home / "caches"

    def stub(self, version: str) -> Path:
        """The Python backend's stub for a Python version such as ``3.11``.

        Raises:
            PyTritonServerError: There is none, or it is for another version.
        """
        bundled = self.home / "python_backend_stubs"
        stub = bundled / version / STUB if bundled.is_dir() else self.home / "backends" / "python" / STUB
        if version in linked_versions(stub):
            return stub
        linked = {found for path in (stub, *bundled.glob(f"*/{STUB}")) for found in linked_versions(path)}
        if not linked:
            raise PyTritonServerError(f"the server at {self.home} has no Python backend: {stub} is missing")
        have = ", ".join(sorted(linked, key=lambda text: (len(text), text)))
        raise PyTritonServerError(
            f"the server at {self.home} serves Python {have}, not {version}: use such an interpreter"
        )


def find_installation(environment: Mapping[str, str] = os.environ) -> Installation:
    """The server to launch: the one ``$TRITONSERVER_HOME`` names, else the bundled one.

    Raises:
        PyTritonServerError: There is none; the message says how to get one.
    """
    chosen = environment.get(HOME_VARIABLE)
    installation = Installation(Path(chosen).expanduser().absolute() if chosen else BUNDLED)
    if installation.executable.is_file():
        return installation
    if chosen:
        raise PyTritonServerError(f"{HOME_VARIABLE}={chosen} holds no server: {installation.executable} is missing")
    raise PyTritonServerError(
        "this installation of pytriton has no Triton Inference Server "
        f"(platform: {platform.system()} {platform.machine()}): the wheels for Linux x86_64 and aarch64 contain one. "
        f"Clients work without it. To serve, install such a wheel, or set {HOME_VARIABLE} to a folder with "
        "bin/tritonserver, lib, backends and caches, for example /opt/tritonserver in Triton's container"
    )


def overlay(installation: Installation, folder: Path, native: Path = LIBRARY) -> None:
    """Make what depends on this interpreter, in a folder of the workspace, by links alone.

    ``backends/`` is the installation's with the stub for this Python, and the native proxy if it was built; ``lib/``
    gives that stub our libpython under the name that it was linked against.

    Raises:
        PyTritonServerError: No stub or no libpython for this interpreter.
    """
    stub = installation.stub(f"{sys.version_info[0]}.{sys.version_info[1]}")
    backends, libraries = folder / "backends", folder / "lib"
    python = backends / "python"
    python.mkdir(parents=True)
    libraries.mkdir()
    source = installation.home / "backends"
    for backend in source.iterdir():
        if backend.name != "python":
            (backends / backend.name).symlink_to(backend)
    if native.is_file():
        (backends / BACKEND).mkdir()
        (backends / BACKEND / native.name).symlink_to(native)
    for file in (source / "python").iterdir():
        if file.name != STUB:
            (python / file.name).symlink_to(file)
    (python / STUB).symlink_to(stub)
    libpython = find_libpython()
    for name in linked_libpython(stub):
        (libraries / name).symlink_to(libpython)
    make_environment(folder / "python")


def make_environment(folder: Path) -> None:
    """Make a virtual environment of this interpreter with its numpy, for the stubs.

    A stub embeds the interpreter and finds the standard library and packages as ``python3`` on its PATH would. Most
    stubs heed no ``PYTHON*`` variables, so a ``python3`` is what they get.
    """
    executable = Path(os.path.realpath(sys.executable))
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "numpy.pth").write_text(f"{Path(numpy.__file__).parent.parent}\n")
    (folder / "pyvenv.cfg").write_text(f"home = {executable.parent}\ninclude-system-site-packages = false\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(executable)


def linked_libpython(stub: Path) -> list[str]:
    """File names of the libpython that a stub was linked against."""
    return sorted({name.decode() for name in re.findall(rb"libpython[\w.-]+\.so[\w.]*", stub.read_bytes())})


def linked_versions(stub: Path) -> set[str]:
    """Versions of those, such as ``3.11``; none if there is no such stub."""
    names = linked_libpython(stub) if stub.is_file() else []
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
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    name = f"libpython{version}.so.1.0"
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
        f"(Debian, Ubuntu: apt-get install libpython{version}; Fedora: dnf install python3-libs), or use an "
        "interpreter that has it, such as those of uv, conda, or pyenv with PYTHON_CONFIGURE_OPTS=--enable-shared"
    )


def server_environment(
    installation: Installation, overlay_folder: Path, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of a server process and of the stubs that it starts.

    Args:
        installation: The server.
        overlay_folder: Made by :func:`overlay`.
        environment: To start from.
    """
    result = {**MALLOC_SETTINGS, **THREAD_SETTINGS, **environment}
    for variable in [name for name in result if name.startswith(ENVIRONMENT_PREFIX)]:
        del result[variable]  # the server does not read them, and some hold access tokens
    libraries = [
        str(overlay_folder / "lib"),
        str(installation.home / "lib"),
        str(find_libpython().parent),
        environment.get("LD_LIBRARY_PATH", ""),
    ]
    result["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    result["PATH"] = os.pathsep.join([str(overlay_folder / "python" / "bin"), environment.get("PATH") or os.defpath])
    result["PYTHONDONTWRITEBYTECODE"] = "1"
    for variable in ("PYTHONHOME", "PYTHONPATH"):
        result.pop(variable, None)
    return result
