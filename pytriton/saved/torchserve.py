"""Archives of TorchServe, ``.mar``: the code of their handler answers requests."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

from pytriton.compat.torchserve import Context, load_handler
from pytriton.exceptions import PyTritonValidationError
from pytriton.files.zips import extract
from pytriton.saved.contents import Arrays, Contents, LoadOptions, rows_of
from pytriton.saved.formats import MANIFEST
from pytriton.saved.results import ANYTHING
from pytriton.signature.schema import RESULT, Schema

__all__ = ["read"]

BODY = "body"


def read(path: Path, options: LoadOptions) -> Contents:
    """Load the handler of an archive into this process, and let it load its model.

    Raises:
        PyTritonValidationError: The archive is damaged, or its handler is missing, fails, or comes with TorchServe.
    """
    folder = Path(tempfile.mkdtemp(prefix="pytriton-mar-"))
    try:
        extract(path, folder)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        name, handler = manifest["model"]["modelName"], manifest["model"]["handler"]
        sys.path.insert(0, str(folder))  # for the other modules of the archive
        properties = {"model_dir": str(folder), "gpu_id": None, "batch_size": 1, "server_name": "pytriton"}
        handle = load_handler(path, folder, handler, Context(name, manifest, properties))
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        sys.path[:] = [each for each in sys.path if each != str(folder)]
        if isinstance(error, ModuleNotFoundError):
            hint = "it comes with TorchServe: pip install torchserve" if error.name == "ts" else "install it"
            raise PyTritonValidationError(f"{path} needs the module {error.name!r}; {hint}") from error
        if isinstance(error, PyTritonValidationError) or not isinstance(error, Exception):
            raise
        raise PyTritonValidationError(f"{path} cannot be loaded ({type(error).__name__}: {error!s:.200})") from error
    inputs: dict[str, Schema] = dict(options.inputs) or {BODY: ANYTHING}

    def predict(arrays: Arrays) -> list[Any]:
        requests = rows_of(inputs, arrays)
        answers = handle(requests)
        if not isinstance(answers, (list, tuple)) or len(answers) != len(requests):
            raise RuntimeError(f"the handler returned {answers!r:.100} for {len(requests)} requests, not one for each")
        return list(answers)

    weakref.finalize(predict, _remove, folder, os.getpid())
    return Contents(f"TorchServe {name}", inputs, predict, results={RESULT: ANYTHING}, notes=[f"handler {handler}"])


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # and not a worker that was forked from it
        shutil.rmtree(folder, ignore_errors=True)
