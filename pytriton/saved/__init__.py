"""Saved models: a file that another library has written, as a callable for ``bind``.

::

    from pytriton.saved import load

    triton.bind("iris", load("iris.skops", method="predict_proba"))

============ ================================================================================================
``formats``  the table of formats, and which one a file has
``contents`` what the loader of a format gets and gives, and inputs that are columns
``model``    ``load`` and ``SavedModel``: names, types, example and warm-up of what a loader has found
``results``  what libraries return, as outputs
``layouts``  where the model is in folders of MLServer and KServe
``onnx``     ONNX, by onnxruntime
``sklearn``  scikit-learn, by skops, joblib or pickle
``xgboost``  XGBoost, JSON and UBJSON
``lightgbm`` LightGBM, text
``mlflow``   folders of MLflow, by its ``pyfunc``
``torchserve`` archives of TorchServe, by their handlers
============ ================================================================================================

The libraries come with the extra of the format's name (``pip install 'pytriton[onnx]'``), and are imported when a file
of theirs is loaded. No file runs code unless it is trusted.
"""

from __future__ import annotations

from pytriton.saved.model import SavedModel, load

__all__ = ["SavedModel", "load"]
