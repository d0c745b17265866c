"""Where the model is: folders of MLServer and KServe, and ``file://``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pytriton.compat.mlserver import IMPLEMENTATIONS, SETTINGS, local_path, read_settings
from pytriton.exceptions import PyTritonValidationError
from pytriton.files.formats import WEIGHTS, Format, format_of, recognized

__all__ = ["Located", "locate", "locate_trusted"]


class Located(NamedTuple):
    """A file or folder with a model, its format, and its name if that is told elsewhere."""

    path: Path
    format: Format
    name: str = ""


def locate(given: str | os.PathLike[str]) -> Located:
    """The model in a file or folder: of a format, with settings of MLServer, or with one file as KServe has it.

    Raises:
        PyTritonValidationError: There is no model, or more than one; the message says what to do.
        OSError: It cannot be read.
    """
    path = local_path(os.fspath(given))
    settings = path if path.name == SETTINGS else path / SETTINGS
    return _of_mlserver(settings) if settings.is_file() else _model_at(path)


def locate_trusted(path: str | os.PathLike[str], trust: bool) -> Located:
    """As :func:`locate`, which also raises PyTritonValidationError for a format that must be trusted, and is not."""
    found = locate(path)
    if found.format.runs_code and not trust:
        raise PyTritonValidationError(
            f"{found.path} has the format {found.format.title}, which can run any code when it is loaded. If you know "
            "where it comes from, allow that with trust=True (--trust); else have the model saved in a format that "
            "runs none: skops, ONNX, or the library's own"
        )
    return found


def _of_mlserver(settings: Path) -> Located:
    name, implementation, uri = read_settings(settings)
    module = IMPLEMENTATIONS.get(implementation.rpartition(".")[2])
    if module is None:
        raise PyTritonValidationError(
            f"{settings} has the implementation {implementation}, which is not served from a file; these are: "
            f"{', '.join(IMPLEMENTATIONS)}. Bind a class of yours in a program"
        )
    found = _model_at(settings.parent / local_path(uri))
    if found.format.module != module:
        raise PyTritonValidationError(
            f"{settings} has the implementation {implementation}, but {found.path} is a file of {found.format.title}"
        )
    return found._replace(name=name)


def _model_at(path: Path) -> Located:
    """A file or folder that is a model, or the only file of a folder that has a format, whatever else is there."""
    if not path.is_dir():
        return Located(path, format_of(path))
    if known := recognized(path, b""):
        return Located(path, known)
    known_files = [(each, _recognized(each)) for each in sorted(path.iterdir()) if each.is_file()]
    found = [Located(each, known) for each, known in known_files if known is not None and known.title != WEIGHTS]
    if not found:
        format_of(path)  # which says what else it is
    if len(found) != 1:
        names = ", ".join(each.path.name for each in found)
        raise PyTritonValidationError(f"{path} has several models, {names}; give the path of one")
    return found[0]


def _recognized(path: Path) -> Format | None:
    """The format of a file in a folder, which may have anything beside the model."""
    try:
        return recognized(path)
    except PyTritonValidationError:
        return None
