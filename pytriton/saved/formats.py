"""The formats of saved models: one table, and which of its rows a file belongs to.

The content decides, never the name of the file alone: a renamed pickle is still a pickle.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.onnx import looks_like_onnx
from pytriton.files.zips import zip_names

__all__ = ["FORMATS", "MANIFEST", "Format", "format_of", "recognized"]

HEAD_BYTES = 512
MANIFEST = "MAR-INF/MANIFEST.json"  # of archives of TorchServe
ZIP = b"PK\x03\x04"
COMPRESSED = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00")
PICKLE_SUFFIXES = (".joblib", ".pickle", ".pkl", ".sav", ".gz", ".z", ".bz2", ".xz", ".lzma")


@dataclass(frozen=True)
class Format:
    """A format of saved models.

    Attributes:
        title: Its name in messages.
        suffixes: Of the files that usually have it; empty for folders.
        module: Of this package, with a function ``read``.
        extra: Of this distribution, which installs what the module imports.
        packages: What it imports, to tell a missing library from another failure.
        runs_code: Whether reading such a file may run any code, so that it must be trusted.
        recognizes: Whether a path, and the first bytes of a file, have this format.
    """

    title: str
    suffixes: tuple[str, ...]
    module: str
    extra: str
    packages: tuple[str, ...]
    runs_code: bool
    recognizes: Callable[[Path, bytes], bool]


def _is_skops(path: Path, head: bytes) -> bool:
    return head.startswith(ZIP) and "schema.json" in zip_names(path)


def _is_mar(path: Path, head: bytes) -> bool:
    return head.startswith(ZIP) and MANIFEST in zip_names(path)


def _is_pickle(path: Path, head: bytes) -> bool:
    if re.match(rb"\x80[\x02-\x05]", head):
        return True
    return path.suffix.lower() in PICKLE_SUFFIXES and head.startswith(COMPRESSED)  # as joblib compresses


def _is_xgboost(path: Path, head: bytes) -> bool:
    return re.match(rb'\s*\{(?:\s*"|L\x00{7}\x07|[iU]\x07)(?:learner|version)\b', head) is not None


FORMATS = (
    Format("MLflow", (), "mlflow", "mlflow", ("mlflow", "pandas"), True, lambda path, _: (path / "MLmodel").is_file()),
    Format("skops", (".skops",), "sklearn", "sklearn", ("skops", "sklearn"), False, _is_skops),
    Format("pickle", (".joblib", ".pkl", ".pickle"), "sklearn", "sklearn", ("joblib", "sklearn"), True, _is_pickle),
    Format("TorchServe", (".mar",), "torchserve", "", (), True, _is_mar),
    Format("LightGBM", (".txt",), "lightgbm", "lightgbm", ("lightgbm",), False, lambda _, head: head[:5] == b"tree\n"),
    Format("XGBoost", (".json", ".ubj"), "xgboost", "xgboost", ("xgboost",), False, _is_xgboost),
    Format("ONNX", (".onnx",), "onnx", "onnx", ("onnxruntime",), False, lambda path, _: looks_like_onnx(path)),
)

FOLDERS = {
    "config.pbtxt": "a model of Triton's repository; pass the folder above it as model_repository to Triton()",
    "config.json": "a folder of Hugging Face; docs/i_have.md has a program that serves one",
    "saved_model.pb": "a SavedModel of TensorFlow; convert it to ONNX with tf2onnx",
}
HEADS = {
    b"binf": "XGBoost's old binary format; load it with XGBoost and save it as .ubj",
    b"\x89HDF": "HDF5; if it is a model of Keras, export it with model.export(..., format='onnx')",
    b"GGUF": "GGUF; serve it with a program that yields its tokens, see docs/llm.md",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself; run git lfs pull",
}


def format_of(path: Path) -> Format:
    """The format of a file or folder.

    Raises:
        PyTritonValidationError: There is no such file, or no row of the table recognizes it.
        OSError: It cannot be read.
    """
    if not path.exists():
        raise PyTritonValidationError(f"there is no file {path}")
    head = b"" if path.is_dir() else _head(path)
    if not head and not path.is_dir():
        raise PyTritonValidationError(f"{path} is empty; save the model again")
    if known := recognized(path, head):
        return known
    if path.is_dir():
        found = next((what for name, what in FOLDERS.items() if (path / name).is_file()), None)
        raise PyTritonValidationError(f"{path} is {found or 'a folder without a file MLmodel; name the model file'}")
    if found := next((what for start, what in HEADS.items() if head.startswith(start)), None):
        raise PyTritonValidationError(f"{path} is {found}")
    suffix = path.suffix.lower()
    if named := next((each for each in FORMATS if suffix in each.suffixes), None):
        raise PyTritonValidationError(f"{path} is no {named.title} file: it is damaged or renamed; save it again")
    listed = ", ".join(f"{each.title} ({' '.join(each.suffixes) or 'a folder'})" for each in FORMATS)
    raise PyTritonValidationError(f"the format of {path} is unknown; known are {listed}")


def recognized(path: Path, head: bytes | None = None) -> Format | None:
    """The format of a file or folder, if it has one.

    Args:
        head: Its first bytes; None reads them.

    Raises:
        PyTritonValidationError: It is a damaged zip file.
        OSError: It cannot be read.
    """
    head = _head(path) if head is None else head
    return next((each for each in FORMATS if each.recognizes(path, head)), None)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)
