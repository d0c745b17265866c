"""The native proxy: our backend in the server's process, in place of Python models in stubs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError

__all__ = ["BACKEND", "LIBRARY", "PROXIES", "NativeProxyError", "uses_native"]

LOGGER = logging.getLogger("pytriton.triton")

BACKEND = "pytriton"  # the server looks for libtriton_<backend>.so in a folder of this name
LIBRARY = Path(__file__).parent.parent / "native" / f"libtriton_{BACKEND}.so"
VARIABLE = "PYTRITON_PROXY"
AUTO, NATIVE, PYTHON = PROXIES = ("auto", "native", "python")
_told = False


class NativeProxyError(PyTritonValidationError):
    """A model is to be served by the native proxy, and that cannot be: at ``bind``."""


def uses_native(proxy: str, ours: bool, library: Path = LIBRARY, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a model is served by the native proxy.

    Args:
        proxy: One of PROXIES; ``auto`` is what ``$PYTRITON_PROXY`` says, if anything, else native where possible.
        ours: Whether the server is launched by us, so that it has our backend.
        library: The backend.
        environment: Of this process.

    Raises:
        PyTritonValidationError: ``proxy`` is none of them; or, a NativeProxyError, native is impossible.
    """
    global _told
    if proxy == AUTO:
        proxy = environment.get(VARIABLE) or AUTO
        forced = ours and proxy == NATIVE
    else:
        forced = proxy == NATIVE
    if proxy not in PROXIES:
        raise PyTritonValidationError(f"proxy is {proxy!r}; choose one of {', '.join(map(repr, PROXIES))}")
    if proxy == PYTHON:
        return False
    reason = None
    if not ours:
        reason = "the server is not launched by this process, and has its own backends"
    elif not library.is_file():
        reason = f"{library} is missing: no C++ compiler was there when this package was built"
    if reason is None:
        return True
    if forced:
        raise NativeProxyError(f"the native proxy cannot be used: {reason}")
    if ours and not _told:
        _told = True
        LOGGER.info("models are served by Triton's Python backend, which is slower than the native proxy: %s", reason)
    return False
