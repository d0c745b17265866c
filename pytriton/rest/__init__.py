"""The app: an ASGI application with JSON routes for the models of a server.

Run it in a process of its own with ``Triton(rest=True)``, mount it in an application of yours, or call it without a
network, on a server in this process::

    app = create_app(triton)

Its libraries come with the extra ``rest``: ``pip install 'pytriton[rest]'``. They are imported when the application is
made, so that a program that only names its options does without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pytriton.rest.config import RestConfig
from pytriton.rest.keys import ApiKey

if TYPE_CHECKING:
    from pytriton.rest.app import create_app

__all__ = ["ApiKey", "RestConfig", "create_app"]

EXTRA = (
    "httptools",
    "orjson",
    "pydantic",
    "python_multipart",
    "simdjson",
    "starlette",
    "swagger_ui_bundle",
    "uvicorn",
    "uvloop",
)


def __getattr__(name: str) -> Any:
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return importlib.import_module("pytriton.rest.app").create_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        raise ImportError(f"the app needs {error.name}; install it with: pip install 'pytriton[rest]'") from error
