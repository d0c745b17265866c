"""The native proxy: our backend in the server's process, in place of Python models in stubs."""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError

__all__ = [
    "BACKEND",
    "LIBRARY",
    "PROXIES",
    "PROXY_VARIABLE",
    "Choice",
    "NativeProxyError",
    "choose",
    "mismatch",
    "uses_native",
]

LOGGER = logging.getLogger("pytriton.triton")

BACKEND = "pytriton"  # the server looks for libtriton_<backend>.so in a folder of this name
LIBRARY = Path(__file__).parent.parent / "native" / f"libtriton_{BACKEND}.so"
PROXY_VARIABLE = "PYTRITON_PROXY"
AUTO, NATIVE, PYTHON = PROXIES = ("auto", "native", "python")
_STAMP = re.compile(rb"pytriton-stamp:([0-9a-f]{64})")
_told = False


class NativeProxyError(PyTritonValidationError):
    """A model is to be served by the native proxy, and that cannot be: at ``bind``."""


@dataclass(frozen=True)
class Choice:
    """Which proxy serves a model.

    Attributes:
        native: Whether it is the native one.
        reason: Why not; empty if it is.
        asked: Whether the Python proxy was asked for.
        stale: Whether the native one is of another build than this package.
    """

    native: bool
    reason: str = ""
    asked: bool = False
    stale: bool = False


def choose(proxy: str, ours: bool, library: Path = LIBRARY, environment: Mapping[str, str] = os.environ) -> Choice:
    """Choose the proxy of a model.

    Args:
        proxy: One of PROXIES; ``auto`` is what ``$PYTRITON_PROXY`` says, if anything, else native where possible.
        ours: Whether the server is launched by us, so that it has our backend.
        library: The backend.
        environment: Of this process.

    Raises:
        PyTritonValidationError: ``proxy`` is none of them; or, a NativeProxyError, native is impossible.
    """
    wish = f"proxy={proxy!r}"
    forced = proxy == NATIVE
    if proxy == AUTO:
        proxy = environment.get(PROXY_VARIABLE) or AUTO
        wish = f"{PROXY_VARIABLE}={proxy}"
        forced = ours and proxy == NATIVE
    if proxy not in PROXIES:
        raise PyTritonValidationError(f"proxy is {proxy!r}; choose one of {', '.join(map(repr, PROXIES))}")
    if proxy == PYTHON:
        return Choice(False, f"{wish} asks for it", asked=True)
    reason, stale = "", False
    if not ours:
        reason = "the server is not launched by this process, and has its own backends"
    elif not library.is_file():
        reason = f"{library} is missing: there was no C++ compiler, CMake or Ninja when this package was built"
    elif reason := mismatch(library):
        stale = True
    if reason and forced:
        raise NativeProxyError(f"the native proxy cannot be used: {reason}")
    return Choice(not reason, reason, stale=stale)


@cache
def mismatch(library: Path) -> str:
    """Why a compiled library does not belong to this package's Python, and what to do; empty if it does.

    Both sides of the frames, and of the structures that ctypes passes, are written by hand: they must be of one build.
    The library holds a hash of the sources that it was compiled from. It has to be that of the sources beside it, as in
    an editable installation, or else that of the build, which a wheel has in ``stamp.txt``.
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
        name for name in os.listdir(folder) if name.endswith((".cpp", ".h", ".map")) or name == "CMakeLists.txt"
    )
    listed = [f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n" for name in names]
    return hashlib.sha256("".join(listed).encode()).hexdigest() if names else ""


def _built_hash(folder: Path) -> str:
    stamp = folder / "stamp.txt"
    return stamp.read_text() if stamp.is_file() else ""


def uses_native(proxy: str, ours: bool, library: Path = LIBRARY, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a model is served by the native proxy; as :func:`choose`, and the log says once if it could not be."""
    global _told
    choice = choose(proxy, ours, library, environment)
    if ours and not choice.native and not choice.asked and not _told:
        _told = True
        LOGGER.log(
            logging.WARNING if choice.stale else logging.INFO,
            "models are served by Triton's Python backend, which is slower than the native proxy: %s",
            choice.reason,
        )
    return choice.native
