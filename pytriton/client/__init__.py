"""Clients of models on a Triton server.

The names below are imported from their modules when they are first used: a program needs one or two of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytriton.client.aio import AsyncioDecoupledModelClient, AsyncioModelClient
    from pytriton.client.arguments import RequestOptions
    from pytriton.client.auth import Tls
    from pytriton.client.futures import FuturesModelClient
    from pytriton.client.sync import DecoupledModelClient, ModelClient

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
    "RequestOptions",
    "Tls",
]

_MODULES = ("asyncio_utils", "auth", "client", "exceptions", "utils", "warnings")
_HOME_OF = {
    "AsyncioDecoupledModelClient": "aio",
    "AsyncioModelClient": "aio",
    "DecoupledModelClient": "sync",
    "FuturesModelClient": "futures",
    "ModelClient": "sync",
    "RequestOptions": "arguments",
    "Tls": "auth",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value  # so that this is not asked again
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *__all__})
