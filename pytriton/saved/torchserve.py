"""Archives of TorchServe, ``.mar``: the code of their handler answers requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytriton.compat.torchserve import load_archive
from pytriton.saved.contents import Arrays, Contents, LoadOptions
from pytriton.saved.results import ANYTHING
from pytriton.signature.schema import RESULT, Schema
from pytriton.signature.values import rows_of

__all__ = ["read"]


def read(path: Path, options: LoadOptions) -> Contents:
    """Load an archive.

    Raises:
        PyTritonValidationError: The archive is damaged, or its handler is missing, fails, or comes with TorchServe.
    """
    archive = load_archive(path)
    inputs: dict[str, Schema] = dict(options.inputs) or {"body": ANYTHING}

    def predict(arrays: Arrays) -> list[Any]:
        requests = rows_of(inputs, arrays)
        answers = archive.answer(requests)
        if not isinstance(answers, (list, tuple)) or len(answers) != len(requests):
            raise RuntimeError(f"the handler returned {answers!r:.100} for {len(requests)} requests, not one for each")
        return list(answers)

    notes = [f"handler {archive.handler}"]
    return Contents(f"TorchServe {archive.name}", inputs, predict, results={RESULT: ANYTHING}, notes=notes)
