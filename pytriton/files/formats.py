"""The formats of saved models: one table, and which of its rows a file belongs to.

The content decides, never the name of the file alone: a renamed pickle is still a pickle.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.networks import has_network, is_safetensors
from pytriton.files.onnx import looks_like_onnx
from pytriton.files.pickles import is_pickle
from pytriton.files.unsupported import advice_for
from pytriton.files.zips import ZIP, has_file

__all__ = ["FORMATS", "MANIFEST", "WEIGHTS", "Format", "format_of", "recognized"]

MANIFEST = "MAR-INF/MANIFEST.json"  # of an archive of TorchServe
WEIGHTS = "safetensors"  # the format of files that have no network

TRANSFORMERS = ("transformers", "torch", "PIL")
SENTENCES = ("sentence_transformers", *TRANSFORMERS)


@dataclass(frozen=True)
class Format:
    """A format of saved models.

    Attributes:
        title: Its name in messages.
        suffixes: Of the files that usually have it; empty for folders.
        module: Of :mod:`pytriton.saved`, with a function ``read``.
        extra: Of this distribution, which installs what the module imports.
        packages: What it imports, to tell a missing library from another failure.
        runs_code: Whether reading such a file may run any code, so that it must be trusted.
        recognizes: Whether a path, and the first bytes of a file, have this format.
        has_tables: Whether the models take tables, of which they compute many rows fast.
    """

    title: str
    suffixes: tuple[str, ...]
    module: str
    extra: str
    packages: tuple[str, ...]
    runs_code: bool
    recognizes: Callable[[Path, bytes], bool]
    has_tables: bool = False


def _has(pattern: str) -> Callable[[Path, bytes], bool]:
    return lambda path, head: head.startswith(ZIP) and has_file(path, pattern)


def _has_network(file: str) -> Callable[[Path, bytes], bool]:
    return lambda path, _: (path / file).is_file() and has_network(path)


def _is_xgboost(path: Path, head: bytes) -> bool:
    return re.match(rb'\s*\{(?:\s*"|L\x00{7}\x07|[iU]\x07)(?:learner\b|version"?\s*:?\s*\[)', head) is not None


FORMATS = (
    Format(
        "MLflow", (), "mlflow", "mlflow", ("mlflow", "pandas"), True, lambda path, _: (path / "MLmodel").is_file(), True
    ),
    Format(
        "skops",
        (".skops",),
        "sklearn",
        "sklearn",
        ("joblib", "pandas", "skops", "sklearn"),
        False,
        _has("schema.json"),
        True,
    ),
    Format(
        "pickle",
        (".joblib", ".pkl", ".pickle"),
        "sklearn",
        "sklearn",
        ("joblib", "pandas", "sklearn"),
        True,
        is_pickle,
        True,
    ),
    Format("TorchServe", (".mar",), "torchserve", "", (), True, _has(MANIFEST)),
    Format("torch.export", (".pt2",), "torch", "torch", ("torch",), True, _has(r"[^/]+/models/[^/]+\.json")),
    Format("TorchScript", (".pt", ".pth"), "torch", "torch", ("torch",), True, _has(r"[^/]+/constants\.pkl")),
    Format(WEIGHTS, (".safetensors",), "torch", "torch", ("torch", "safetensors"), False, is_safetensors),
    Format("Sentence Transformers", (), "huggingface", "hf", SENTENCES, False, _has_network("modules.json")),
    Format("Hugging Face", (), "huggingface", "hf", TRANSFORMERS, False, _has_network("config.json")),
    Format(
        "CatBoost", (".cbm",), "catboost", "catboost", ("catboost",), False, lambda _, head: head[:4] == b"CBM1", True
    ),
    Format(
        "LightGBM", (".txt",), "lightgbm", "lightgbm", ("lightgbm",), False, lambda _, head: head[:5] == b"tree\n", True
    ),
    Format("XGBoost", (".json", ".ubj"), "xgboost", "xgboost", ("xgboost",), False, _is_xgboost, True),
    Format("GGUF", (".gguf",), "gguf", "gguf", ("llama_cpp", "jinja2"), False, lambda _, head: head[:4] == b"GGUF"),
    Format("ONNX", (".onnx",), "onnx", "onnx", ("onnxruntime",), False, lambda path, _: looks_like_onnx(path)),
)


def format_of(path: Path) -> Format:
    """The format of a file or folder.

    Raises:
        PyTritonValidationError: There is no such file, or no row of the table recognizes it.
        OSError: It cannot be read.
    """
    if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
        raise PyTritonValidationError(f"there is no file {path}")
    head = _head(path)
    if not head and not path.is_dir():
        raise PyTritonValidationError(f"{path} is empty; save the model again")
    if known := recognized(path, head):
        return known
    if found := advice_for(path, head):
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
    if path.is_dir():
        return b""
    with path.open("rb") as file:
        return file.read(512)
