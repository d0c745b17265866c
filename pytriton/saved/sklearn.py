"""Models of scikit-learn: files of skops, and pickles (joblib's too), which must be trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from pytriton.exceptions import PyTritonValidationError
from pytriton.saved.contents import (
    FEATURES,
    MOST_COLUMNS,
    NUMBER,
    STRING,
    Arrays,
    Contents,
    LoadOptions,
    choose_method,
    column_schemas,
    matrix_of,
)
from pytriton.signature.schema import Schema
from pytriton.signature.values import decoded_texts

__all__ = ["read"]

OF_CLASSES = ("predict_proba", "predict_log_proba", "decision_function")
METHODS = ("predict", "transform", *OF_CLASSES, "score_samples")
TEXT = "text"
BOOLEAN: Schema = {"type": "boolean"}


def read(path: Path, options: LoadOptions) -> Contents:
    """Load an estimator or pipeline.

    Raises:
        PyTritonValidationError: The file is damaged, has types that are not trusted, or no estimator.
    """
    model = _load(path, options)
    kind = f"scikit-learn {type(model).__name__}"
    if not isinstance(model, BaseEstimator):
        raise PyTritonValidationError(f"{path} has a {type(model).__name__}, which is no estimator of scikit-learn")
    # Arrays have the columns in the order of the model's names. A filter for one call would not be safe with threads.
    warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
    methods = [each for each in METHODS if hasattr(model, each)]
    method = choose_method(options.method, methods, kind)
    classes = _classes(model)
    names_scores = method in OF_CLASSES and 0 < len(classes) <= MOST_COLUMNS
    names_classes = method == "predict" and len(classes) > 0 and bool(options.labels)
    labels = options.labels_of(classes.tolist(), kind) if names_scores or names_classes else []

    def predict(arrays: Arrays) -> Any:
        result = getattr(model, method)(prepare(arrays))
        if isinstance(result, list):  # of probabilities, for each output of the model
            return {f"output_{index}": each for index, each in enumerate(result)}
        if names_classes and np.ndim(result) == 1:
            return np.array(labels, object)[np.searchsorted(classes, result)]  # they are in order
        if not labels or np.ndim(result) != 2 or np.shape(result)[1] != len(labels):
            return result
        return {label: result[:, index] for index, label in enumerate(labels)}

    prepare: Callable[[Arrays], Any]
    if _takes_text(model):
        inputs, example, prepare = (
            {TEXT: STRING},
            {TEXT: "text"},
            lambda arrays: _values(arrays, TEXT)[:, 0],
        )
    else:
        inputs, example = _columns(model, path, options)
        if inputs.get(FEATURES, {}).get("dtype") == "BYTES":
            prepare = partial(_values, name=FEATURES)
        elif _chooses_columns(model) or any(each.get("type") == "string" for each in inputs.values()):
            prepare = _tables([*inputs], [*getattr(model, "feature_names_in_", inputs)])
        else:
            prepare = partial(matrix_of, names=[*inputs], dtype=np.float64)
    notes = [f"one output per class: {', '.join(labels)}"] if names_scores else []
    is_labelled = bool(labels) and (method != "decision_function" or len(labels) > 2)  # which has one number for two
    return Contents(kind, inputs, predict, {}, example, method, methods, notes=notes, is_labelled=is_labelled)


def _load(path: Path, options: LoadOptions) -> Any:
    if options.title != "skops":
        return joblib.load(path)
    from skops import io

    unknown = io.get_untrusted_types(file=path)
    if unknown and not options.trust:
        raise PyTritonValidationError(
            f"{path} has objects of types that skops does not know as safe: {', '.join(unknown)}. If you know where "
            "the file comes from, allow them with trust=True (--trust)"
        )
    return io.load(path, trusted=unknown)


def _parts(model: Any) -> Iterator[Any]:
    """An estimator and what it is made of, from the outside."""
    yield model
    listed = [part for name in ("steps", "transformer_list", "transformers_") for part in getattr(model, name, ())]
    for each in (*(part[1] for part in listed), getattr(model, "best_estimator_", None)):
        if each is not None:
            yield from _parts(each)


def _chooses_columns(model: Any) -> bool:
    """Whether a part of it finds columns by name, for which it needs a table."""
    return hasattr(model, "feature_names_in_") and any(hasattr(each, "transformers_") for each in _parts(model))


def _takes_text(model: Any) -> bool:
    """Whether it begins with a vectorizer of texts."""
    firsts = [*getattr(model, "steps", ())[:1], *getattr(model, "transformer_list", ())]
    inner = [*(each[1] for each in firsts), getattr(model, "best_estimator_", None)]
    return hasattr(model, "build_analyzer") or any(_takes_text(each) for each in inner if each is not None)


def _values(arrays: Arrays, name: str) -> NDArray[Any]:
    return decoded_texts(arrays[name], name)


def _columns(model: Any, path: Path, options: LoadOptions) -> tuple[dict[str, Schema], dict[str, Any]]:
    """The schemas of inputs, and values of some for an example."""
    fitted = getattr(model, "feature_names_in_", None)
    columns = None if fitted is None else [str(each) for each in fitted]
    if columns is None and not hasattr(model, "n_features_in_"):
        if not options.inputs:
            raise PyTritonValidationError(
                f"{path} does not say which columns {type(model).__name__} takes; tell them with inputs={{'name': "
                "'dtype'} (--input name:dtype)"
            )
        columns = [*options.inputs]
    count = len(columns) if columns is not None else int(model.n_features_in_)
    known = dict(_known_values(model, np.arange(count)))
    texts = {number for number, value in known.items() if isinstance(value, str)}
    kinds = {name: STRING for number, name in enumerate(columns or ()) if number in texts}
    kinds |= {name: BOOLEAN for number, name in enumerate(columns or ()) if isinstance(known.get(number), bool)}
    inputs = column_schemas(columns, count, {**kinds, **options.inputs}, NUMBER, "FP64")
    if columns == [*inputs]:
        return inputs, {[*inputs][number]: value for number, value in known.items()}
    if len(texts) == count:
        return {FEATURES: {"type": "array", "dtype": "BYTES", "shape": [count]}}, {FEATURES: [*known.values()]}
    if texts:
        why = f"over {MOST_COLUMNS}" if columns else "without names: fit it with a table of pandas that has them"
        raise PyTritonValidationError(
            f"{path} has columns of texts and of numbers in one array, as they are {why}. Or serve it in Python"
        )
    return {FEATURES: options.inputs.get(FEATURES, inputs[FEATURES])}, {}


def _known_values(part: Any, positions: NDArray[Any]) -> Iterator[tuple[int, Any]]:
    """The positions of columns that encoders and vectorizers take, each with a value that they know."""
    if getattr(part, "n_features_in_", len(positions)) != len(positions):
        return  # it takes what an earlier part has made of the columns
    categories: Sequence[Any] = getattr(part, "categories_", ())
    if hasattr(part, "transformers_"):
        names = [str(each) for each in getattr(part, "feature_names_in_", ())]
        for _, each, columns in part.transformers_:
            yield from _known_values(each, _positions(columns, names, positions))
    elif hasattr(part, "build_analyzer") and len(positions) == 1:
        yield int(positions[0]), "text"
    elif len(categories) == len(positions):
        for position, values in zip(positions, categories, strict=True):
            if len(values) and isinstance(values[0], (str, bool, np.bool_)):
                yield int(position), values[0] if isinstance(values[0], str) else bool(values[0])
            elif len(values) and isinstance(values[0], (int, float, np.number)):
                yield int(position), float(values[0])
    else:
        for each in [*_parts(part)][1:]:
            yield from _known_values(each, positions)


def _positions(columns: Any, names: Sequence[str], positions: NDArray[Any]) -> NDArray[Any]:
    """Those of the columns that a part of a ColumnTransformer takes: by name, by number, by a mask or by a slice."""
    try:
        if not isinstance(columns, slice) and np.asarray(columns).dtype.kind in "OU":
            columns = [names.index(each) for each in np.atleast_1d(columns)]
        return np.atleast_1d(positions[columns])
    except (IndexError, TypeError, ValueError):
        return positions[:0]


def _classes(model: Any) -> NDArray[Any]:
    """The classes of a model, in order; none if it has other outputs, or several."""
    classes = getattr(model, "classes_", None)
    return classes if isinstance(classes, np.ndarray) and classes.ndim == 1 and len(classes) > 1 else np.array([])


def _tables(inputs: Sequence[str], names: Sequence[str]) -> Callable[[Arrays], Any]:
    """What makes a table of pandas, with the columns that the model was fitted with."""
    import pandas

    if len(inputs) < len(names):  # they are one array
        return lambda arrays: pandas.DataFrame(arrays[FEATURES], columns=names)
    return lambda arrays: pandas.DataFrame({name: _values(arrays, name)[:, 0] for name in inputs})
