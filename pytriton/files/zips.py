"""Zip files that would fill the disk, or write outside of their folder."""

from __future__ import annotations

import re
import stat
import zipfile
from pathlib import Path, PurePosixPath

from pytriton.exceptions import PyTritonValidationError

__all__ = ["ZIP", "extract", "has_file", "zip_names"]

ZIP = b"PK\x03\x04"

MOST_EXPANSION = 100  # what compresses better is no model
LEAST_EXPANDED_BYTES = 2**26


def zip_names(path: Path) -> list[str]:
    """Names of the files in a zip file.

    Raises:
        PyTritonValidationError: It is damaged, or would expand to far more bytes than it has.
    """
    return [each.filename for each in _entries(path)]


def has_file(path: Path, pattern: str) -> bool:
    """Whether a zip file has a file whose name is of a pattern; errors are those of :func:`zip_names`."""
    return any(re.fullmatch(pattern, name) for name in zip_names(path))


def extract(path: Path, folder: Path) -> None:
    """Write the files of a zip file into a folder.

    Raises:
        PyTritonValidationError: It is damaged, would expand to far more bytes than it has, has links, or names files
            outside of the folder. Nothing is written then, unless the damage is within a file.
    """
    for each in _entries(path):
        name = PurePosixPath(each.filename)
        if name.is_absolute() or ".." in name.parts or "\\" in each.filename or stat.S_ISLNK(each.external_attr >> 16):
            raise PyTritonValidationError(
                f"{path} has {each.filename!r}, which is a link or outside of its folder; it is not loaded"
            )
    try:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError, NotImplementedError, EOFError) as error:
        raise _damaged(path, error) from error


def _entries(path: Path) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        if min((each.header_offset for each in entries), default=0):
            raise zipfile.BadZipFile("its end is that of a zip file within it")
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _damaged(path, error) from error
    expanded = sum(each.file_size for each in entries)
    if expanded > max(MOST_EXPANSION * path.stat().st_size, LEAST_EXPANDED_BYTES):
        raise PyTritonValidationError(
            f"{path} would expand to {expanded >> 20} MiB, over {MOST_EXPANSION} times its size; it is not loaded"
        )
    return entries


def _damaged(path: Path, error: Exception) -> PyTritonValidationError:
    return PyTritonValidationError(f"{path} is a damaged zip file ({error}); save the model again")
