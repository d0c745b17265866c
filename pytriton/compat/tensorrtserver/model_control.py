"""Loading and unloading of models."""

from __future__ import annotations

import math

from pytriton.compat.tensorrtserver.context import Context

__all__ = ["ModelControlContext"]


class ModelControlContext(Context):
    """Loads and unloads models of a server that allows it; the arguments are those of :class:`Context`."""

    def load(self, model_name: str) -> None:
        """Load a model, or what is new of it, and wait until it can serve.

        Raises:
            InferenceServerException: The server could not, or does not allow it.
        """
        with self._request():
            self._call("load_model", math.inf, model_name=model_name)  # as long as the model's own start takes

    def unload(self, model_name: str) -> None:
        """Have the server unload a model, which it may finish later than this returns.

        Raises:
            InferenceServerException: The server does not allow it.
        """
        with self._request():
            self._call("unload_model", model_name=model_name)
