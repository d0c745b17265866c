"""Folders that look like servers."""

from __future__ import annotations

from pathlib import Path

from pytriton.server.backends import STUB, UTILITIES, VERSION


def make_stub(folder: Path, version: str = VERSION) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STUB).write_bytes(b"\x7fELF\0libc.so.6\0libpython%s.so.1.0\0...\0" % version.encode())


def make_home(folder: Path, *stubs: str) -> Path:
    """A server's folder; with ``stubs``, the bundled kind that has one for each of these Python versions."""
    for name in ("bin", "lib", "backends/python", "backends/onnxruntime", "caches/local"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "tritonserver").touch()
    (folder / "backends" / "python" / "libtriton_python.so").touch()
    (folder / "backends" / "python" / UTILITIES).write_text("TRITON = 1\n")
    for version in stubs:
        make_stub(folder / "python_backend_stubs" / version, version)
    if not stubs:
        make_stub(folder / "backends" / "python")
    return folder
