"""Models of CatBoost, in its binary format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catboost
import numpy as np
import pandas

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.probe import check_survives
from pytriton.saved.contents import NUMBER, STRING, Contents, LoadOptions, choose_method, column_schemas, matrix_of
from pytriton.signature.values import decoded_texts

__all__ = ["read"]

METHODS = {"predict": "Class", "predict_proba": "Probability", "predict_log_proba": "LogProbability"}
RAW = "RawFormulaVal"


def read(path: Path, options: LoadOptions) -> Contents:
    """Load a model.

    Raises:
        PyTritonValidationError: It takes what is no number or text, or there is no such method.
    """
    check_survives(path, "_catboost.so")
    model = catboost.CatBoost().load_model(str(path), format="cbm")  # from bytes, ones that are cut off end the process
    kind, classes = f"CatBoost {model.get_all_params().get('loss_function', 'model')}", [*map(str, model.classes_)]
    labels = options.labels_of(classes, kind) if classes else []
    methods = {**METHODS, "raw": RAW} if classes else {"predict": RAW}
    method = choose_method(options.method, [*methods], kind)
    names, texts = model.feature_names_, [*model.get_cat_feature_indices(), *model.get_text_feature_indices()]
    is_named = bool(texts) or names != [str(number) for number in range(len(names))]
    kinds = {names[number]: STRING for number in texts}
    inputs = column_schemas(names if is_named else None, len(names), kinds, NUMBER, "FP64")
    if model.get_embedding_feature_indices() or (texts and len(inputs) < len(names)):
        raise PyTritonValidationError(f"{path} takes embeddings, or texts in over 100 columns; serve it in Python")

    def predict(arrays: dict[str, Any]) -> Any:
        columns = {name: decoded_texts(each, name)[:, 0] for name, each in arrays.items()} if texts else {}
        table = pandas.DataFrame(columns) if texts else matrix_of(arrays, [*inputs], np.float64)
        result = model.predict(table, prediction_type=methods[method], thread_count=options.threads)
        if method in ("predict_proba", "predict_log_proba"):
            return dict(zip(labels, result.T, strict=True))
        if method != "predict" or not classes:
            return result
        return np.vectorize(dict(zip(classes, labels, strict=True)).get, otypes=[object])(result.astype(str))

    notes = [f"{model.tree_count_} trees", *([f"classes {', '.join(classes)}"] if classes else [])]
    told: dict[str, Any] = {
        "is_labelled": bool(classes) and method != "raw",
        "refusals": (ValueError, catboost.CatBoostError),
    }
    return Contents(kind, inputs, predict, method=method, methods=[*methods], notes=notes, **told)
