"""Writes a small classifier in each format of the section ``saved`` into the current folder; needs no pytriton."""

import joblib
import mlflow.sklearn
import numpy as np
import onnx
import skops.io
from mlflow.models import infer_signature
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

rows, labels = load_iris(return_X_y=True)
model = LogisticRegression(max_iter=1000).fit(rows, labels)
skops.io.dump(model, "iris.skops")
joblib.dump(model, "iris.joblib")
mlflow.sklearn.save_model(model, "mlflow", signature=infer_signature(rows, labels))
weights = {"w": model.coef_.T, "b": model.intercept_}
graph = helper.make_graph(
    [
        helper.make_node("Gemm", ["features", *weights], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ],
    "iris",
    [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", 4])],
    [helper.make_tensor_value_info("label", TensorProto.INT64, ["rows"])],
    [numpy_helper.from_array(each.astype(np.float32), name) for name, each in weights.items()],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "iris.onnx")
