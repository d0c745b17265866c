"""Boosters of LightGBM, in its text format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from pytriton.files.probe import check_survives, check_trees
from pytriton.saved.contents import NUMBER, Arrays, Contents, LoadOptions, choose_method, column_schemas, matrix_of

__all__ = ["read"]

METHODS = ("predict", "raw_score", "pred_leaf", "pred_contrib")


def read(path: Path, options: LoadOptions) -> Contents:
    """Load a booster.

    Raises:
        PyTritonValidationError: The file is damaged, or there is no such method.
    """
    check_trees(path)
    check_survives(path, "lib_lightgbm.so")
    booster = lightgbm.Booster(model_file=path)
    kind = f"LightGBM {booster.params.get('objective', 'booster')}"
    method = choose_method(options.method, METHODS, kind)
    names = booster.feature_name()
    is_named = names != [f"Column_{number}" for number in range(len(names))]
    inputs = column_schemas(names if is_named else None, booster.num_feature(), {}, NUMBER, "FP64")
    arguments: dict[str, Any] = {} if method == "predict" else {method: True}

    def predict(arrays: Arrays) -> Any:
        table = matrix_of(arrays, [*inputs], np.float64)
        return booster.predict(table, num_threads=options.threads, **arguments)

    notes = [f"{booster.num_trees()} trees"]
    if booster.pandas_categorical:
        notes.append("categories are given as their numbers")
    refusals = (ValueError, lightgbm.basic.LightGBMError)
    return Contents(kind, inputs, predict, method=method, methods=METHODS, notes=notes, refusals=refusals)
