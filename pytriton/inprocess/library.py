"""The server as a library of this process: found, loaded once, and called.

Nothing becomes visible to other libraries of the process. The server's companions export what others do, OpenSSL for
one: were they loaded globally, as is usual for a server whose backends look for its functions, Python's own ``ssl``
would call the server's copy. So each companion is loaded for itself, by its full path, before what needs it; the
loader then takes it for the one that is asked for by name. Backends find the server's functions because they are
linked with it: Triton's own are, and ours is tied to it by ``libpytriton_inprocess.so``, which needs both.
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

from pytriton.exceptions import PyTritonServerError
from pytriton.inprocess.capi import API_VERSION, Api
from pytriton.inprocess.exceptions import UnavailableError, UnsupportedError
from pytriton.server.installation import BUNDLED, Installation, find_installation
from pytriton.server.native_backend import LIBRARY, build_mismatch

__all__ = ["installation", "load"]

TIE = LIBRARY.with_name("libpytriton_inprocess.so")
_lock = threading.Lock()
_api: Api | None = None
_kept: list[ctypes.CDLL] = []  # companions and backends, which stay loaded


def installation() -> Installation:
    """The server's files.

    Raises:
        UnavailableError: There are none here; the message says how to get them.
    """
    try:
        return find_installation()
    except PyTritonServerError as error:
        raise UnavailableError(str(error)) from error


def load() -> Api:
    """The server's functions. The first call loads them; they stay loaded to the end of the process.

    Raises:
        UnavailableError: There is no server library here, or it cannot be loaded.
        UnsupportedError: It is of a version that is not known here, or our own libraries are of another build.
    """
    global _api
    with _lock:
        if _api is None:
            _api = _load(installation())
        return _api


def _load(installation: Installation) -> Api:
    for library in (LIBRARY, LIBRARY.with_name("libpytriton_calls.so")):
        if library.is_file() and (reason := build_mismatch(library)):
            raise UnsupportedError(reason)
    folder = installation.home / "lib"
    server = next(iter(sorted(folder.glob("libtritonserver*.so"))), None)
    if server is None:
        raise UnavailableError(f"{folder} holds no libtritonserver.so; reinstall pytriton's wheel for this platform")
    try:
        _open(server, folder)
        if installation.home == BUNDLED and TIE.is_file():
            _kept.append(_open(TIE, folder))
        if (python := installation.home / "backends" / "python" / "libtriton_python.so").is_file():
            _kept.append(_open(python, folder))  # the server would not find what it needs
    except OSError as error:
        raise UnavailableError(f"the server cannot be loaded into this process: {error}") from error
    api = Api(server)
    found = api.version()
    if found[0] != API_VERSION[0] or found < API_VERSION:
        have, need = (".".join(map(str, version)) for version in (found, API_VERSION))
        raise UnsupportedError(f"{server} has version {have} of the C API; {need} or a later {need[0]}.x is needed")
    return api


def _open(library: Path, folder: Path) -> ctypes.CDLL:
    """Load a library, after those of ``folder`` that the loader misses, one by one."""
    tried = {library}
    while True:
        try:
            return ctypes.CDLL(str(library))
        except OSError as error:
            missing = str(error).partition(":")[0]  # what follows is in the language of the process's locale
            companion = folder / missing
            if "/" in missing or companion in tried or not companion.is_file():
                raise
            tried.add(companion)
            _kept.append(_open(companion, folder))
