"""Saved models: a file that another library has written, as a callable: ``bind("iris", load("iris.skops"))``.

Each format of :data:`pytriton.files.formats.FORMATS` has a module of its own here, which loads it. The others are:

============ =================================================================================================
``contents`` what such a module gets and gives, inputs that are columns, and the axis of the batch
``model``    ``load`` and ``SavedModel``: names, types, example and warm-up of what a module has found
``results``  what libraries return, as outputs
``layouts``  where the model is in folders of MLServer and KServe
============ =================================================================================================

The libraries come with the extra of the format's name (``pip install 'pytriton[onnx]'``), and are imported when a file
of theirs is loaded. No file runs code unless it is trusted.
"""

from __future__ import annotations

from pytriton.saved.model import SavedModel, load

__all__ = ["SavedModel", "load"]
