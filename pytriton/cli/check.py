"""``pytriton check`` and ``pytriton env``: a self-test, a report without secrets, and who can reach what."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated

import numpy
import typer

from pytriton import constants
from pytriton.cli import options
from pytriton.cli.errors import TargetError, exit_on_error
from pytriton.cli.examples import run_add_sub, run_add_sub_script
from pytriton.cli.saved import is_file
from pytriton.cli.target import Target
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonError
from pytriton.server.backends import LIBRARY, PythonBackend, choose_proxy
from pytriton.server.endpoints import table
from pytriton.server.installation import (
    BUNDLED_VERSION,
    Installation,
    find_installation,
    server_version,
    weaknesses_of,
)
from pytriton.triton import Triton

__all__ = ["check", "distribution_version", "env", "is_secret"]

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


def check(
    target: Annotated[
        str | None, typer.Argument(help="With --exposure: what **pytriton serve** would serve.", show_default=False)
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", "-w", help="Folder for the report and the logs; it must not exist."),
    ] = None,
    compress: Annotated[
        bool,
        typer.Option("--zip", help="Compress report and logs to a .zip file, beside the workspace or in this folder."),
    ] = False,
    exposure: Annotated[
        bool, typer.Option("--exposure", help="Show who could reach what of a server, and test nothing.")
    ] = False,
    app_dir: options.AppDir = Path("."),
) -> None:
    """Test the installation: report on the environment, serve a model and infer. The default command.

    The exit status is 0 if inference works over HTTP and gRPC, else 1. Environment variables that look like secrets are
    left out of the report, but look through it before you give it to others.

    With **--exposure**, it shows what each port of a server would ask for: the one that **pytriton serve TARGET** would
    launch, or one with the options in the environment.
    """
    with exit_on_error():
        if exposure:
            show_exposure(target, app_dir)
            raise typer.Exit
        if target is not None:
            raise TargetError("a target goes with --exposure")
        passed = self_test(workspace, compress)
    typer.echo("The self-test passed." if passed else "The self-test failed.")
    raise typer.Exit(not passed)


def env() -> None:
    """Show the report on the environment: Python, system, memory, sockets, server, GPUs, packages, variables."""
    typer.echo(PRIVACY, err=True)
    typer.echo(describe_environment())
    typer.echo(PRIVACY, err=True)


def self_test(workspace: Path | None, compress: bool) -> bool:
    """Write the report, run the self-test, and return whether it passed.

    Raises:
        FileExistsError: The workspace exists.
    """
    typer.echo(PRIVACY)
    with _folder(workspace) as folder:
        typer.echo("Collecting the report on the environment ...")
        text = describe_environment()
        (folder / "report.txt").write_text(text)
        typer.echo(_proxy_choice())
        for weaknesses in filter(None, [_known_weaknesses()]):
            typer.echo(weaknesses)
        passed = [test(folder) for test in (run_add_sub, run_add_sub_script)]
        archive = _compress(folder, workspace) if compress else None
    if workspace is not None:
        typer.echo(f"The report and the logs are in {workspace}.")
    if archive is not None:
        typer.echo(f"They are compressed in {archive}." if workspace else f"The report and the logs are in {archive}.")
    if workspace is None and archive is None:
        typer.echo("The report: pytriton env. To keep it with the logs: pytriton check --workspace FOLDER, or --zip.")
    if workspace is not None or archive is not None:
        typer.echo(PRIVACY)
    return all(passed)


def show_exposure(target: str | None, app_dir: Path) -> None:
    """Show what each port and socket asks for. No server is launched.

    Raises:
        TargetError: There is no such object, or it launches no server.
        PyTritonError: The options contradict each other.
    """
    if target is None or is_file(target):  # serve adds nothing for saved models
        triton: object = Triton()
    else:
        sys.path.insert(0, str(app_dir.resolve()))
        triton = Target.parse(target).load()
    if not isinstance(triton, Triton):
        raise TargetError(f"{target} launches no server; give a Triton, or a function that binds to one")
    try:
        typer.echo(table(triton.exposure()))
    finally:
        triton.stop()


@contextmanager
def _folder(workspace: Path | None) -> Iterator[Path]:
    if workspace is None:
        with tempfile.TemporaryDirectory(prefix="pytriton-check-") as folder:
            yield Path(folder)
        return
    if os.path.lexists(workspace):
        raise FileExistsError(f"{workspace} exists; give a folder that does not exist yet")
    workspace.mkdir(mode=0o700, parents=True)
    yield workspace


def _compress(folder: Path, workspace: Path | None) -> Path:
    if workspace is None:
        target = Path.cwd() / f"pytriton-check-{time.strftime('%Y%m%d-%H%M%S')}.zip"
    else:
        target = workspace.with_name(f"{workspace.name}.zip")
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{target.stem}/{file.name}")
    return target


def is_secret(name: str, value: str) -> bool:
    """Whether the name or the value of an environment variable suggests a secret."""
    return SECRET.search(name) is not None or SECRET.search(value) is not None


def describe_environment() -> str:
    """The report as text. A section that fails holds the error instead."""
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
    """The version of an installed package, or a text that says it is missing."""
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
    """The fields of ``/proc/self/status``."""
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
    for file, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        if not Path(file).exists():
            continue
        for line in Path(file).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == LISTENING:
                address, _, port = local.partition(":")
                yield f"{_address(address, family)} port {int(port, 16)}"


def _address(text: str, family: socket.AddressFamily) -> str:
    """Decode an address of ``/proc/net/tcp``: 32-bit words in the machine's byte order."""
    words = [int(text[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(text), 8)]
    return socket.inet_ntop(family, b"".join(words))


def _server() -> Iterator[str]:
    installation = find_installation()
    yield f"executable {installation.executable}"
    yield _proxy_choice()
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


def _proxy_choice() -> str:
    """Which proxy serves models bound on this machine, and why."""
    try:
        choice = choose_proxy("auto", ours=True)
    except PyTritonError as error:
        return f"proxy of bound models: none, {error}"
    if choice.native:
        return f"proxy of bound models: native, {LIBRARY}"
    return f"proxy of bound models: Triton's Python backend, because {choice.reason}"


def _known_weaknesses() -> str:
    """Published weaknesses of the bundled server; empty if this machine launches another one."""
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
