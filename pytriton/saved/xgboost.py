"""Boosters of XGBoost, in its JSON or UBJSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from pytriton.files.probe import check_survives
from pytriton.saved.contents import FLOAT, Arrays, Contents, LoadOptions, choose_method, column_schemas, matrix_of
from pytriton.signature.schema import Schema

__all__ = ["read"]

METHODS = {"predict": "value", "margin": "margin"}
OF_CLASSES = ("multi:softmax", "binary:hinge")
KINDS: dict[str, Schema] = {"int": {"type": "integer"}, "i": {"type": "boolean"}, "c": {"type": "integer"}}


def read(path: Path, options: LoadOptions) -> Contents:
    """Load a booster.

    Raises:
        PyTritonValidationError: The file is damaged, or there is no such method.
    """
    check_survives(path, "libxgboost.so")
    booster = xgboost.Booster({"nthread": options.threads})
    booster.load_model(bytearray(path.read_bytes()))  # whatever its name ends with
    learner = json.loads(booster.save_config())["learner"]
    objective, is_linear = learner["objective"]["name"], learner["gradient_booster"]["name"] == "gblinear"
    kind = f"XGBoost {objective}"
    method = choose_method(options.method, [*METHODS], kind)
    names, types = booster.feature_names, booster.feature_types
    has_classes = bool(options.labels) and method == "predict" and objective in OF_CLASSES  # which it gives as floats
    kinds = {name: KINDS.get(each, FLOAT) for name, each in zip(names or (), types or (), strict=False)}
    inputs = column_schemas(names, booster.num_features(), kinds, FLOAT, "FP32")

    def predict(arrays: Arrays) -> Any:
        table = matrix_of(arrays, [*inputs], np.float32)
        if is_linear:  # which cannot predict in place
            matrix = xgboost.DMatrix(table, nthread=options.threads)
            return booster.predict(matrix, output_margin=method == "margin", **rounds)
        result = booster.inplace_predict(table, predict_type=METHODS[method], **rounds)
        return result.astype(np.int64) if has_classes else result

    # After early stopping, scikit-learn's classes of XGBoost use the best rounds only.
    best = booster.attr("best_iteration")
    used = 0 if best is None or is_linear else int(best) + 1
    rounds: dict[str, Any] = {"iteration_range": (0, used), "validate_features": False}
    notes = [f"{used or booster.num_boosted_rounds()} rounds"]
    if "c" in (types or ()):
        notes.append("categories are given as their numbers")
    return Contents(kind, inputs, predict, method=method, methods=[*METHODS], notes=notes)
