"""Models of scikit-learn: files of skops, and pickles (joblib's too), which must be trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator

from pytriton.exceptions import PyTritonValidationError
from pytriton.saved.contents import (
    FEATURES,
    MOST_COLUMNS,
    Arrays,
    Contents,
    LoadOptions,
    choose_method,
    column_schemas,
    damaged,
    matrix_of,
)
from pytriton.signature.schema import Schema

__all__ = ["read"]

OF_CLASSES = ("predict_proba", "predict_log_proba", "decision_function")
METHODS = ("predict", "transform", *OF_CLASSES, "score_samples")
TEXT = "text"
STRING: Schema = {"type": "string"}
ALIKE = "X does not have valid feature names"


def read(path: Path, options: LoadOptions) -> Contents:
    """Load an estimator or pipeline.

    Raises:
        PyTritonValidationError: The file is damaged, has types that are not trusted, or no estimator.
    """
    model = _load(path, options.trust)
    kind = f"scikit-learn {type(model).__name__}"
    if not isinstance(model, BaseEstimator):
        raise PyTritonValidationError(f"{path} has a {type(model).__name__}, which is no estimator of scikit-learn")
    warnings.filterwarnings("ignore", ALIKE, UserWarning)  # the columns are in the order of their names
    methods = [each for each in METHODS if hasattr(model, each)]
    method = choose_method(options.method, methods, kind)
    call = getattr(model, method)
    labels = _labels(model) if method in OF_CLASSES else None

    def named(result: Any) -> Any:
        if isinstance(result, list):  # of probabilities, for each output of the model
            return {f"output_{index}": each for index, each in enumerate(result)}
        if labels is None or np.ndim(result) != 2 or np.shape(result)[1] != len(labels):
            return result
        return {label: result[:, index] for index, label in enumerate(labels)}

    prepare: Callable[[Arrays], Any]
    if _takes_text(model):
        inputs, example, prepare = {TEXT: STRING}, {TEXT: "text"}, lambda arrays: _texts(arrays[TEXT])
    else:
        inputs, example = _columns(model, path, options)
        has_names = hasattr(model, "feature_names_in_") and any(_of_columns(model))
        if has_names or any(each.get("type") == "string" for each in inputs.values()):
            prepare = _table_maker()
        else:
            prepare = partial(matrix_of, names=[*inputs], dtype=np.float64)
    notes = [] if labels is None else [f"one output per class: {', '.join(labels)}"]
    return Contents(
        kind, inputs, lambda arrays: named(call(prepare(arrays))), {}, example, method, methods, notes=notes
    )


def _load(path: Path, trust: bool) -> Any:
    with path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
    if not is_zip:
        return _unpickled(path)
    try:
        from skops import io
    except ModuleNotFoundError as error:
        raise ImportError(f"{path} needs skops, which is not installed: pip install 'pytriton[sklearn]'") from error
    try:
        unknown = io.get_untrusted_types(file=path)
        if unknown and not trust:
            raise PyTritonValidationError(
                f"{path} has objects of types that skops does not know as safe: {', '.join(unknown)}. If you know "
                "where the file comes from, allow them with trust=True (--trust)"
            )
        return io.load(path, trusted=unknown)
    except PyTritonValidationError:
        raise
    except Exception as error:
        raise damaged(path, "skops", error) from error


def _unpickled(path: Path) -> Any:
    try:
        return joblib.load(path)
    except ModuleNotFoundError as error:
        raise PyTritonValidationError(
            f"{path} needs the module {error.name!r}, which is not installed here; install it, or put its folder into "
            "PYTHONPATH"
        ) from error
    except Exception as error:
        raise damaged(path, f"a pickle of scikit-learn {version('scikit-learn')}", error) from error


def _steps(model: Any) -> Iterator[Any]:
    """An estimator and what it is made of, from the outside."""
    yield model
    for _, step in getattr(model, "steps", ()):
        yield from _steps(step)


def _of_columns(model: Any) -> Iterator[Any]:
    """Those of its parts that choose columns by name."""
    return (step for step in _steps(model) if hasattr(step, "transformers_"))


def _takes_text(model: Any) -> bool:
    """Whether it begins with a vectorizer of texts."""
    *_, first = (model, *(each[1] for each in getattr(model, "steps", ())[:1]))
    return hasattr(first, "build_analyzer")


def _texts(array: Any) -> list[str]:
    return [text.decode() for text in array.reshape(-1).tolist()]


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
    known = dict(_categories(model))
    texts = [name for name, value in known.items() if isinstance(value, str)]
    count = len(columns) if columns is not None else int(model.n_features_in_)
    kinds = {**dict.fromkeys(texts, STRING), **options.inputs}
    inputs = column_schemas(columns, count, kinds, {"type": "number"}, "FP64")
    if texts and FEATURES in inputs:
        raise PyTritonValidationError(
            f"{path} has over {MOST_COLUMNS} columns, and texts among them; serve it in Python"
        )
    return inputs, {name: value for name, value in known.items() if name in inputs}


def _categories(model: Any) -> Iterator[tuple[str, Any]]:
    """Columns that encoders know the values of, and one such value: a text, or a number."""
    for part in _of_columns(model):
        for _, transformer, columns in part.transformers_:
            for step in _steps(transformer):
                known: Sequence[Any] = getattr(step, "categories_", ())
                if not isinstance(columns, (list, tuple, np.ndarray)) or len(known) != len(columns):
                    continue
                for name, values in zip(columns, known, strict=True):
                    if isinstance(name, str) and len(values) and isinstance(values[0], (str, int, float, np.number)):
                        yield name, values[0] if isinstance(values[0], str) else float(values[0])


def _labels(model: Any) -> list[str] | None:
    classes = getattr(model, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or not 2 <= len(classes) <= MOST_COLUMNS:
        return None
    return [str(each) for each in classes.tolist()]


def _table_maker() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ImportError("the model chooses columns by name, which needs pandas: pip install pandas") from error

    def table(arrays: Arrays) -> Any:
        columns: Mapping[str, Any] = {
            name: _texts(array) if array.dtype == object else array[:, 0] for name, array in arrays.items()
        }
        return pandas.DataFrame(columns)

    return table
