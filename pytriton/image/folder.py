"""The folder of an image: written beside its place and moved there, with a list of its files."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError
from pytriton.image.lock import distributions_of, download, locked, text_of
from pytriton.image.sources import Sources
from pytriton.image.texts import texts_of
from pytriton.image.wheel import write_wheel

__all__ = ["write_folder"]

PIECE_BYTES = 1 << 20
LIST = "files.sha256"  # in the format of sha256sum: in the folder, `sha256sum --check files.sha256`


def write_folder(sources: Sources, folder: Path, image: str, *, is_vendored: bool) -> None:
    """Write the folder of an image; one that this function has made before is replaced.

    Args:
        image: Name of the image, with a tag.
        is_vendored: Whether the wheels of all distributions are put into it, which pip gets from its index.

    Raises:
        PyTritonValidationError: There is another folder, or a changed one; or something cannot be had.
        OSError: A file cannot be read or written.
    """
    folder = folder.absolute()
    check_replaceable(folder)
    inside = [path for path in sources.files.values() if path.resolve().is_relative_to(folder.resolve())]
    if inside:
        raise PyTritonValidationError(f"{inside[0]} is in {folder}, which would be replaced; choose another folder")
    versions = locked({*distributions_of(sources.modules), *sources.requirements}, sources.extras)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as made:
        new = Path(made, "new")
        wheels = new / "wheels"
        wheels.mkdir(parents=True)
        lock = new / "requirements.lock"
        lock.write_text(text_of(versions))
        if is_vendored:
            lock.write_text(text_of(versions, download(lock, wheels)))
        wheel = write_wheel(wheels)
        for name, text in texts_of(sources.command, image, wheel.name, versions, is_vendored=is_vendored).items():
            _put(new / name, text.encode())
        for name, path in sources.files.items():
            (new / "models" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, new / "models" / name)  # it may be large
        _put(new / LIST, "".join(f"{digest}  {name}\n" for name, digest in digests(new).items()).encode())
        for each in new.rglob("*"):
            each.chmod(0o755 if each.is_dir() else 0o644)
        new.chmod(0o755)
        if folder.exists():
            folder.rename(Path(made, "old"))
        new.rename(folder)


def check_replaceable(folder: Path) -> None:
    """Check that a folder is missing, empty, or as :func:`write_folder` has left it.

    Raises:
        PyTritonValidationError: It is something else.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    listed = folder / LIST
    if not folder.is_dir() or not listed.is_file():
        raise PyTritonValidationError(f"{folder} exists, and was not made by pytriton build; choose another folder")
    lines = (line.partition("  ") for line in listed.read_text().splitlines())
    made = {name: digest for digest, _, name in lines}
    found = {name: digest for name, digest in digests(folder).items() if name != LIST}
    if changed := sorted(name for name in {*made, *found} if made.get(name) != found.get(name)):
        raise PyTritonValidationError(
            f"{folder / changed[0]} is not as pytriton build has left it; choose another folder, or remove this one"
        )


def digests(folder: Path) -> Mapping[str, str]:
    """SHA-256 of each file of a folder, by its path below it, in order."""
    files = sorted(each for each in folder.rglob("*") if not each.is_dir())
    return {each.relative_to(folder).as_posix(): _digest(each) for each in files}


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            found.update(piece)
    return found.hexdigest()


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
