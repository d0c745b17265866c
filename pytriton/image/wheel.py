"""The installed package as a wheel, the same bytes each time: an image has what this machine has."""

from __future__ import annotations

import base64
import hashlib
import os
import sysconfig
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError

__all__ = ["write_wheel"]

PACKAGE = Path(__file__).parents[1]
SOURCES = (".cpp", ".h", ".map", "CMakeLists.txt")  # of native, which pyproject.toml leaves out, too
DATE = (1980, 1, 1, 0, 0, 0)
LEVEL = 1  # of compression: the server has hundreds of megabytes


def write_wheel(folder: Path) -> Path:
    """Write the wheel; returns its path.

    Raises:
        PyTritonValidationError: The server's binaries are not installed here.
    """
    if not (PACKAGE / "tritonserver").is_dir():
        raise PyTritonValidationError("this installation has no server, so that an image of it could not serve")
    found = distribution("pytriton")
    stem = f"pytriton-{found.version}"
    tag = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    path = folder / f"{stem}-{tag}.whl"
    info = f"{stem}.dist-info"
    texts = {f"{info}/METADATA": found.read_text("METADATA") or ""}
    texts[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: pytriton build\nRoot-Is-Purelib: false\nTag: {tag}\n"
    texts[f"{info}/entry_points.txt"] = found.read_text("entry_points.txt") or ""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:

        def add(name: str, data: bytes, mode: int) -> None:
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")

        for file in _files(PACKAGE):
            name = file.relative_to(PACKAGE.parent).as_posix()
            add(name, file.read_bytes(), 0o755 if os.access(file, os.X_OK) else 0o644)
        for name, text in texts.items():
            add(name, text.encode(), 0o644)
        record.append(f"{info}/RECORD,,")
        add(f"{info}/RECORD", ("\n".join(record) + "\n").encode(), 0o644)
    return path


def _files(folder: Path) -> Iterator[Path]:
    """The files of the package, in the order of their names; links are followed."""
    in_native = folder.is_relative_to(PACKAGE / "native")
    for each in sorted(folder.iterdir()):
        if each.is_dir():
            if each.name != "__pycache__" and not (in_native and each.name == "vendor"):
                yield from _files(each)
        elif not (in_native and each.name.endswith(SOURCES)):
            yield each
