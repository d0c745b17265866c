"""Boosters of LightGBM, in its text format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.probe import check_survives, damaged
from pytriton.saved.contents import NUMBER, Arrays, Contents, LoadOptions, choose_method, column_schemas, matrix_of

__all__ = ["read"]

METHODS = ("predict", "raw_score", "pred_leaf", "pred_contrib")


def read(path: Path, options: LoadOptions) -> Contents:
    """Load a booster.

    Raises:
        PyTritonValidationError: The file is damaged, or there is no such method.
    """
    _check_trees(path)
    check_survives(path, "lib_lightgbm.so")
    try:
        booster = lightgbm.Booster(model_file=path)
    except (lightgbm.basic.LightGBMError, ValueError) as error:
        raise damaged(path, "LightGBM", error) from error
    kind = f"LightGBM {booster.params.get('objective', 'booster')}"
    method = choose_method(options.method, METHODS, kind)
    names = booster.feature_name()
    is_named = names != [f"Column_{number}" for number in range(len(names))]
    inputs = column_schemas(names if is_named else None, booster.num_feature(), {}, NUMBER, "FP64")
    columns = [*inputs]
    arguments: dict[str, Any] = {} if method == "predict" else {method: True}

    def predict(arrays: Arrays) -> Any:
        table = matrix_of(arrays, columns, np.float64)
        return booster.predict(table, num_threads=options.threads, **arguments)

    notes = [f"{booster.num_trees()} trees"]
    if booster.pandas_categorical:
        notes.append("categories are given as their numbers")
    refusals = (ValueError, lightgbm.basic.LightGBMError)
    return Contents(kind, inputs, predict, method=method, methods=METHODS, notes=notes, refusals=refusals)


def _check_trees(path: Path) -> None:
    """Check that all of a file is there: LightGBM 4.7 may end the process while it reads one that is cut off.

    Raises:
        PyTritonValidationError: Trees or parameters are missing, or have another size than the file says.
    """
    data = path.read_bytes()
    sizes = re.search(rb"^tree_sizes=([\d ]*)$", data, re.MULTILINE)
    starts = [each.start() for each in re.finditer(rb"^Tree=\d+$", data, re.MULTILINE)]
    end = data.find(b"\nend of trees\n")
    expected = [int(each) for each in sizes[1].split()] if sizes else []
    found = [after - before for before, after in zip(starts, [*starts[1:], end + 1], strict=True)] if starts else []
    if end < 0 or found != expected or b"\nend of parameters\n" not in data[end:]:
        raise PyTritonValidationError(
            f"{path} is a damaged LightGBM file: trees or parameters are missing; save the model again"
        )
