"""The native proxy, a backend in the server's process: whether it can be used, and which proxy serves a model."""

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
    "NativeProxyError",
    "ProxyChoice",
    "build_mismatch",
    "choose_proxy",
    "uses_native",
]

LOGGER = logging.getLogger("pytriton.triton")

BACKEND = "pytriton"  # the server looks for libtriton_<backend>.so in a folder of this name
LIBRARY = Path(__file__).parent.parent / "native" / f"libtriton_{BACKEND}.so"
PROXY_VARIABLE = "PYTRITON_PROXY"
AUTO, NATIVE, PYTHON = PROXIES = ("auto", "native", "python")
_STAMP = re.compile(rb"pytriton-stamp:([0-9a-f]{64})")
_warned = False


class NativeProxyError(PyTritonValidationError):
    """``bind`` was asked for the native proxy, which cannot be used."""


@dataclass(frozen=True)
class ProxyChoice:
    """Which proxy serves a model.

    Attributes:
        native: Whether it is the native proxy.
        reason: Why it is not; empty if it is.
        asked: Whether the user asked for the Python proxy.
        stale: Whether the native proxy is of another build than this package.
    """

    native: bool
    reason: str = ""
    asked: bool = False
    stale: bool = False


def choose_proxy(
    proxy: str, ours: bool, library: Path = LIBRARY, environment: Mapping[str, str] = os.environ
) -> ProxyChoice:
    """Choose the proxy of a model.

    Args:
        proxy: One of PROXIES; ``auto`` is what ``$PYTRITON_PROXY`` says, if anything, else native where possible.
        ours: Whether this process launches the server, so that the server has our backend.
        library: The native proxy.
        environment: Of this process.

    Raises:
        PyTritonValidationError: ``proxy`` is none of PROXIES.
        NativeProxyError: The native proxy was asked for and cannot be used.
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
        return ProxyChoice(False, f"{wish} asks for it", asked=True)
    reason, stale = "", False
    if not ours:
        reason = "the server is not launched by this process, and has its own backends"
    elif not library.is_file():
        reason = f"{library} is missing: there was no C++ compiler, CMake or Ninja when this package was built"
    elif reason := build_mismatch(library):
        stale = True
    if reason and forced:
        raise NativeProxyError(f"the native proxy cannot be used: {reason}")
    return ProxyChoice(not reason, reason, stale=stale)


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
        name for name in os.listdir(folder) if name.endswith((".cpp", ".h", ".map")) or name == "CMakeLists.txt"
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
        LOGGER.log(
            logging.WARNING if choice.stale else logging.INFO,
            "models are served by Triton's Python backend, which is slower than the native proxy: %s",
            choice.reason,
        )
    return choice.native
