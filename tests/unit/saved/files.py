"""Saved models, each made by its own library, with what that library answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

COLUMNS = ["sepal length", "sepal width", "petal length", "petal width"]
SPECIES = np.array(["setosa", "versicolor", "virginica"])


class Saved(NamedTuple):
    """A file, how to load it, and its library's answer.

    Attributes:
        options: Of ``load``.
        values: The inputs of one row of the table, for ``call`` and JSON.
        answer: The outputs for rows of the table, by name, of shape ``(rows, ...)``.
    """

    path: Path
    options: dict[str, Any]
    values: Callable[[np.ndarray], dict[str, Any]]
    answer: Callable[[np.ndarray], dict[str, np.ndarray]]


def iris() -> tuple[np.ndarray, np.ndarray]:
    """150 rows of four numbers, and their species as 0, 1 and 2."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    return datasets.load_iris(return_X_y=True)


def table(rows: np.ndarray) -> Any:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return pandas.DataFrame(rows, columns=COLUMNS)


def record(row: np.ndarray) -> dict[str, float]:
    """A row with the names of its columns."""
    return dict(zip(COLUMNS, row.tolist(), strict=True))


def features(row: np.ndarray) -> dict[str, list[float]]:
    return {"features": row.tolist()}


def logistic_regression(*, named: bool = True) -> Any:
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    rows, species = iris()
    return linear.LogisticRegression(max_iter=500).fit(table(rows) if named else rows, SPECIES[species])


def of_skops(folder: Path) -> Saved:
    io = pytest.importorskip("skops.io", reason="skops is not installed")
    model = logistic_regression()
    io.dump(model, folder / "iris.skops")

    def answer(rows: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(SPECIES.tolist(), model.predict_proba(table(rows)).T, strict=True))

    return Saved(folder / "iris.skops", {"method": "predict_proba"}, record, answer)


def of_joblib(folder: Path) -> Saved:
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    model = logistic_regression(named=False)
    joblib.dump(model, folder / "species.joblib", compress=3)
    return Saved(folder / "species.joblib", {"trust": True}, features, lambda rows: {"result": model.predict(rows)})


def of_onnx(folder: Path) -> Saved:
    """A layer, and the number of its largest output."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    weights = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
    write_onnx(
        folder / "layer.onnx",
        "float[n, 4] x",
        "float[n, 3] scores, int64[n] best",
        "scores = MatMul(x, w)\nbest = ArgMax <axis=1, keepdims=0>(scores)",
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    session = runtime.InferenceSession(folder / "layer.onnx")

    def answer(rows: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(("scores", "best"), session.run(None, {"x": rows.astype(np.float32)}), strict=True))

    return Saved(folder / "layer.onnx", {}, lambda row: {"x": row.tolist()}, answer)


def write_onnx(path: Path, inputs: str, outputs: str, body: str, tensors: list[Any] | None = None) -> None:
    """Write a graph in ONNX's own notation, e.g. ``y = Add(x, x)``."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{header}\nmade ({inputs}) => ({outputs}) {{\n{body}\n}}")
    model.graph.initializer.extend(tensors or [])
    onnx.save(model, path)


def of_xgboost(folder: Path) -> Saved:
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    rows, species = iris()
    options = {"objective": "multi:softprob", "num_class": 3, "nthread": 1}
    booster = xgboost.train(options, xgboost.DMatrix(table(rows), label=species), num_boost_round=3)
    booster.save_model(folder / "trees.ubj")
    return Saved(
        folder / "trees.ubj", {}, record, lambda rows: {"result": booster.predict(xgboost.DMatrix(table(rows)))}
    )


def of_lightgbm(folder: Path) -> Saved:
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    rows, species = iris()
    options = {"objective": "binary", "verbosity": -1, "num_threads": 1}
    booster = lightgbm.train(options, lightgbm.Dataset(rows, species == 2), num_boost_round=3)
    booster.save_model(folder / "leaves.txt")
    return Saved(folder / "leaves.txt", {}, features, lambda rows: {"result": booster.predict(rows)})


def of_catboost(folder: Path) -> Saved:
    """A classifier with a column of texts, which are those of a category."""
    catboost = pytest.importorskip("catboost", reason="catboost is not installed")
    rows, species = iris()

    def cities(rows: np.ndarray) -> Any:
        return table(rows).assign(city=["Oslo" if row[0] > 5.5 else "Rome" for row in rows])

    options = {"iterations": 3, "thread_count": 1, "verbose": False, "allow_writing_files": False}
    model = catboost.CatBoostClassifier(**options, cat_features=["city"]).fit(cities(rows), SPECIES[species])
    model.save_model(str(folder / "oblivious.cbm"))
    return Saved(
        folder / "oblivious.cbm",
        {"method": "predict_proba"},
        lambda row: record(row) | {"city": cities(row[np.newaxis])["city"].item()},
        lambda rows: dict(zip(SPECIES.tolist(), model.predict_proba(cities(rows)).T, strict=True)),
    )


def of_mlflow(folder: Path) -> Saved:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    rows, _ = iris()
    model = logistic_regression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own
        import mlflow.sklearn
        from mlflow.models import infer_signature

        signature = infer_signature(table(rows), model.predict(table(rows)))
        mlflow.sklearn.save_model(
            model, folder / "logged", signature=signature, input_example=table(rows[:1]), pip_requirements=[]
        )
    return Saved(folder / "logged", {"trust": True}, record, lambda rows: {"result": model.predict(table(rows))})


FORMATS: dict[str, Callable[[Path], Saved]] = {
    "onnx": of_onnx,
    "skops": of_skops,
    "joblib": of_joblib,
    "xgboost": of_xgboost,
    "lightgbm": of_lightgbm,
    "catboost": of_catboost,
    "mlflow": of_mlflow,
}
