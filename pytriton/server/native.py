"""The native proxy: our backend in the server's process, in place of Python models in stubs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError

__all__ = ["BACKEND", "LIBRARY", "PROXIES", "PROXY_VARIABLE", "Choice", "NativeProxyError", "choose", "uses_native"]

LOGGER = logging.getLogger("pytriton.triton")

BACKEND = "pytriton"  # the server looks for libtriton_<backend>.so in a folder of this name
LIBRARY = Path(__file__).parent.parent / "native" / f"libtriton_{BACKEND}.so"
PROXY_VARIABLE = "PYTRITON_PROXY"
AUTO, NATIVE, PYTHON = PROXIES = ("auto", "native", "python")
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
    """

    native: bool
    reason: str = ""
    asked: bool = False


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
    reason = ""
    if not ours:
        reason = "the server is not launched by this process, and has its own backends"
    elif not library.is_file():
        reason = f"{library} is missing: there was no C++ compiler, CMake or Ninja when this package was built"
    if reason and forced:
        raise NativeProxyError(f"the native proxy cannot be used: {reason}")
    return Choice(not reason, reason)


def uses_native(proxy: str, ours: bool, library: Path = LIBRARY, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a model is served by the native proxy; as :func:`choose`, and the log says once if it could not be."""
    global _told
    choice = choose(proxy, ours, library, environment)
    if ours and not choice.native and not choice.asked and not _told:
        _told = True
        LOGGER.info(
            "models are served by Triton's Python backend, which is slower than the native proxy: %s", choice.reason
        )
    return choice.native
