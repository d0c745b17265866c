"""Where the server's binaries are, which version they are, and the files and environment that one server process gets.

The bundled server has the layout of any Triton installation, plus one Python-backend stub per Python version::

    bin/tritonserver   lib/*.so*   backends/python/   caches/   python_backend_stubs/<X.Y>/triton_python_backend_stub
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from threading import Timer

from pytriton.config import ENVIRONMENT_PREFIX
from pytriton.exceptions import PyTritonServerError
from pytriton.logs import get_logger
from pytriton.server.backends import BACKEND, LIBRARY, PROXY_VARIABLE, PythonBackend

__all__ = [
    "BUNDLED",
    "BUNDLED_VERSION",
    "EDGE",
    "HOME_VARIABLE",
    "MALLOC_SETTINGS",
    "NAMES_VARIABLE",
    "PRELOADED",
    "Installation",
    "find_installation",
    "overlay",
    "server_environment",
    "server_version",
    "warn_exposed",
    "weaknesses_of",
]

LOGGER = get_logger("pytriton.triton")

BUNDLED = Path(__file__).parent.parent / "tritonserver"
BUNDLED_VERSION = "2.51.0"
FIRST_FIXED_VERSION = (2, 62)  # release 25.10; docs/security.md lists what was published, also after it
HOME_VARIABLE = "TRITONSERVER_HOME"
PRELOADED = "libpytriton_preload.so"  # beside the native proxy
EDGE = "libpytriton_http.so"  # likewise; the preloaded library loads it from its own folder
CHECKS_VARIABLE = "PYTRITON_REQUEST_CHECKS"
NAMES_VARIABLE = "PYTRITON_TELLS_NAMES"

# Large tensors are freed and allocated at every request: keep their memory in the process. Costs resident memory, see
# docs/performance.md; a value in the user's environment wins.
MALLOC_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
# The proxies do no arithmetic: without this their numpy starts a thread per core.
THREAD_SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

VERSION_TIMEOUT_S = 60.0
VERSION_LINE = re.compile(r"\| server_version +\| (\S+)")

_warned = False


@dataclass(frozen=True)
class Installation:
    """A Triton Inference Server on disk."""

    home: Path

    @property
    def executable(self) -> Path:
        """The ``tritonserver`` binary."""
        return self.home / "bin" / "tritonserver"

    @property
    def is_bundled(self) -> bool:
        """Whether it came with this package."""
        return self.home == BUNDLED

    @property
    def caches(self) -> Path:
        """The folder of response-cache plug-ins."""
        return self.home / "caches"

    def python_backend(self, native: Path = LIBRARY) -> PythonBackend:
        """What this server's Python backend runs models with in this interpreter.

        Args:
            native: The native proxy, which may be missing.

        Raises:
            PyTritonServerError: It can run none; the message names the ways out, the native proxy among them.
        """
        try:
            return PythonBackend.find(self.home)
        except PyTritonServerError as error:
            way = (
                "have the native proxy serve the model, which needs no Python in the server: without "
                f'proxy="python" and {PROXY_VARIABLE}=python, that is so'
                if native.is_file()
                else "install pytriton where there is a C++ compiler: its native proxy needs no Python in the server"
            )
            raise PyTritonServerError(f"{error}. Or {way}") from error


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


def overlay(installation: Installation, folder: Path, native: Path = LIBRARY) -> PythonBackend | None:
    """Make the folder of backends and libraries that one server uses, for this interpreter.

    ``backends/`` has links to the installation's backends, the stub for this Python, and the native proxy if it was
    built. ``lib/`` has our libpython under the name that the stub was linked against, the library to preload, and the
    edge.

    Returns:
        The files of the Python backend; None if it cannot run in this interpreter and the native proxy can.

    Raises:
        PyTritonServerError: No stub or no libpython for this interpreter, and no native proxy either.
    """
    python = None
    try:
        python = installation.python_backend(native)
    except PyTritonServerError as error:
        if not native.is_file():
            raise
        LOGGER.debug("the server has no Python backend here: %s", error)
    backends, source = folder / "backends", installation.home / "backends"
    backends.mkdir(parents=True)
    (folder / "lib").mkdir()
    for backend in source.glob("*"):
        if backend.name != "python":
            (backends / backend.name).symlink_to(backend)
    if native.is_file():
        (backends / BACKEND).mkdir()
        (backends / BACKEND / native.name).symlink_to(native)
    for name in (PRELOADED, EDGE):
        if native.with_name(name).is_file():
            (folder / "lib" / name).symlink_to(native.with_name(name))
    if python is not None:
        python.link(source / "python", folder)
    return python


def server_environment(
    installation: Installation,
    overlay_folder: Path,
    python: PythonBackend | None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The environment of a server process and of the stubs that it starts.

    Args:
        overlay_folder: Made by :func:`overlay`.
        python: Returned by :func:`overlay`.
    """
    result = {**MALLOC_SETTINGS, **THREAD_SETTINGS, **environment}
    for variable in [name for name in result if name.startswith(ENVIRONMENT_PREFIX)]:
        del result[variable]  # the server does not read them, and some hold access tokens
    libraries = [
        str(overlay_folder / "lib"),
        str(installation.home / "lib"),
        str(python.libpython.parent) if python else "",
        environment.get("LD_LIBRARY_PATH", ""),
    ]
    result["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    if (overlay_folder / "lib" / PRELOADED).is_file():  # found there, as a path in LD_PRELOAD must not have spaces
        result["LD_PRELOAD"] = ":".join(filter(None, [PRELOADED, environment.get("LD_PRELOAD")]))
        result[CHECKS_VARIABLE] = str(int(installation.is_bundled))
    if python:
        interpreter = str(overlay_folder / "python" / "bin")
        result["PATH"] = os.pathsep.join([interpreter, environment.get("PATH") or os.defpath])
    result["PYTHONDONTWRITEBYTECODE"] = "1"
    for variable in ("PYTHONHOME", "PYTHONPATH"):
        result.pop(variable, None)
    return result


def server_version(installation: Installation) -> str:
    """Start the server without models and endpoints, and read its version from its log.

    Raises:
        PyTritonServerError: It did not start; the message has its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="pytriton-") as empty:
        command = [
            str(installation.executable),
            f"--model-repository={empty}",
            "--model-control-mode=explicit",
            *(f"--allow-{endpoint}=false" for endpoint in ("http", "grpc", "metrics")),
        ]
        libraries = os.pathsep.join(filter(None, [str(installation.home / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
        process = subprocess.Popen(command, stdout=PIPE, stderr=STDOUT, text=True, errors="replace", env=environment)
        timer = Timer(VERSION_TIMEOUT_S, process.kill)
        timer.start()
        lines = []
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    lines.append(line)
                    if match := VERSION_LINE.match(line):
                        return match[1]
            finally:
                timer.cancel()
                process.kill()
    raise PyTritonServerError(f"{installation.executable} did not start; its last lines:\n{''.join(lines[-10:])}")


def weaknesses_of(version: str) -> str:
    """One line on the known weaknesses of a server, by its version such as ``2.51.0``; empty if there are none."""
    try:
        numbers = tuple(map(int, version.split(".")[:2]))
    except ValueError:
        return ""
    if numbers >= FIRST_FIXED_VERSION:
        return ""
    return (
        f"Triton {version} has published weaknesses: a newer server (TRITONSERVER_HOME) or a proxy in front keeps "
        "strangers from them; see docs/security.md"
    )


def warn_exposed(installation: Installation) -> None:
    """Warn once per process: a bundled server with known weaknesses listens beyond this machine."""
    global _warned
    text = weaknesses_of(BUNDLED_VERSION)
    if text and installation.is_bundled and not _warned:
        _warned = True
        LOGGER.warning("%s", text)
