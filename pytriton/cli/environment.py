"""What a report of a problem should say about the machine, without its secrets."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import numpy

from pytriton import constants
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonError
from pytriton.server.installation import (
    BUNDLED_VERSION,
    Installation,
    find_installation,
    server_version,
    weaknesses_of,
)
from pytriton.server.native_backend import LIBRARY, choose_proxy
from pytriton.server.python_backend import PythonBackend

__all__ = ["PRIVACY", "distribution_version", "is_secret", "known_weaknesses", "proxy_choice", "report"]

PRIVACY = (
    "Privacy: the report shows paths, names of packages, open ports and environment variables of this machine. "
    "Variables that look like secrets are left out, but look through it before you give it to others."
)
SECRET = re.compile(
    r"token|secret|key|passw|credential|restricted|auth|cookie|session|://[^/\s]*:[^/\s]*@", re.IGNORECASE
)
GPU_TOOLS = (("nvidia-smi",), ("nvidia-smi", "topo", "-m"), ("rocm-smi",))
TOOL_TIMEOUT_S = 20
GIB = 1 << 30
LISTENING = "0A"


def is_secret(name: str, value: str) -> bool:
    """Whether an environment variable may hold what others must not know, by its name or its value."""
    return SECRET.search(name) is not None or SECRET.search(value) is not None


def report() -> str:
    """The whole report, as text. What cannot be found out is said in its place."""
    sections: dict[str, Callable[[], Iterator[str]]] = {
        "Python": _python,
        "System": _system,
        "Memory and disks": _memory,
        "Listening TCP sockets": _sockets,
        "Triton Inference Server": _server,
        "GPUs": _gpus,
        "Packages": _packages,
        "Environment": lambda: _variables(os.environ),
    }
    return "\n".join(f"{title}\n{'=' * len(title)}\n{_text(lines)}\n" for title, lines in sections.items())


def _text(lines: Callable[[], Iterator[str]]) -> str:
    found = []
    try:
        for line in lines():
            found.append(line)
    except Exception as error:  # half a report is better than none
        found.append(f"({type(error).__name__}: {error})")
    return "\n".join(found) or "(none)"


def _python() -> Iterator[str]:
    yield f"pytriton {distribution_version('pytriton')}, at {Path(__file__).parents[1]}"
    yield f"Python {sys.version}"
    yield f"executable {sys.executable}, prefix {sys.prefix}"
    yield f"NumPy {numpy.__version__}, tritonclient {distribution_version('tritonclient')}"


def distribution_version(distribution: str) -> str:
    """The version of an installed package, or what is to be said in its place."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "(not installed as a package)"


def _system() -> Iterator[str]:
    yield platform.platform()
    with suppress(OSError):
        yield platform.freedesktop_os_release().get("PRETTY_NAME", "(no name of the distribution)")
    yield f"libc {' '.join(platform.libc_ver())}, host {platform.node()}"
    yield f"{os.cpu_count()} CPUs, {len(os.sched_getaffinity(0))} of them for this process"
    container = [name for name in ("/.dockerenv", "/run/.containerenv") if Path(name).exists()]
    yield f"in a container ({', '.join(container)})" if container else "no sign of a container"
    yield f"user id {os.getuid()}, umask of files {_status().get('Umask', '(unknown)')}"


def _status() -> dict[str, str]:
    """This process, as the kernel describes it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _memory() -> Iterator[str]:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(("MemTotal", "MemAvailable", "SwapTotal", "Shmem:")):
            yield line
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError):
            yield f"limit of the control group: {Path(limit).read_text().strip()} bytes"
    for what, path in {
        "working folder": Path.cwd(),
        "PYTRITON_HOME": constants.PYTRITON_HOME,
        "temporary files": Path(tempfile.gettempdir()),
        "shared memory": Path("/dev/shm"),
    }.items():
        existing = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
        usage = shutil.disk_usage(existing)
        yield f"{what} {path}: {usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f} GiB"


def _sockets() -> Iterator[str]:
    for table, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        if not Path(table).exists():
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == LISTENING:
                address, _, port = local.partition(":")
                yield f"{_address(address, family)} port {int(port, 16)}"


def _address(text: str, family: socket.AddressFamily) -> str:
    """An address as the kernel's tables have it: 32-bit words, each in the machine's order of bytes."""
    words = [int(text[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(text), 8)]
    return socket.inet_ntop(family, b"".join(words))


def _server() -> Iterator[str]:
    installation = find_installation()
    yield f"executable {installation.executable}"
    yield proxy_choice()
    yield _python_backend(installation)
    try:
        version = server_version(installation)
        yield f"version {version}"
        yield from filter(None, [weaknesses_of(version)])
    except PyTritonError as error:
        yield str(error)
    options = {name: value for name, value in TritonConfig.from_env().to_dict().items() if value is not None}
    for name, value in options.items():
        yield f"option from the environment: {name}={'(left out)' if is_secret(name, str(value)) else value}"


def proxy_choice() -> str:
    """Which proxy serves the models that are bound here, and why."""
    try:
        choice = choose_proxy("auto", ours=True)
    except PyTritonError as error:
        return f"proxy of bound models: none, {error}"
    if choice.native:
        return f"proxy of bound models: native, {LIBRARY}"
    return f"proxy of bound models: Triton's Python backend, because {choice.reason}"


def known_weaknesses() -> str:
    """What is known against the bundled server; empty if another one, or none, is launched here."""
    with suppress(PyTritonError):
        return weaknesses_of(BUNDLED_VERSION) if find_installation().is_bundled else ""
    return ""


def _python_backend(installation: Installation) -> str:
    try:
        backend = PythonBackend.find(installation.home)
    except PyTritonError as error:
        return f"Triton's Python backend cannot be used: {error}"
    return f"Triton's Python backend can be used: stub {backend.stub}, libpython {backend.libpython}"


def _gpus() -> Iterator[str]:
    found = [command for command in GPU_TOOLS if shutil.which(command[0])]
    for command in found:
        yield f"$ {' '.join(command)}"
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
            yield (done.stdout + done.stderr).rstrip()
        except (OSError, subprocess.TimeoutExpired) as error:
            yield f"({error})"
    if not found:
        yield f"(no tool of GPUs is on the PATH: {', '.join(sorted({command[0] for command in GPU_TOOLS}))})"


def _packages() -> Iterator[str]:
    named = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    for name in sorted(filter(None, named), key=str.lower):
        yield f"{name}=={named[name]}"


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    shown = {name: value for name, value in environment.items() if not is_secret(name, value)}
    for name in sorted(shown):
        yield f"{name}={shown[name]}"
    if left_out := len(environment) - len(shown):
        yield f"({left_out} variables that may be secret are left out)"
