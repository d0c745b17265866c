"""The models that a server could serve."""

from __future__ import annotations

from typing import Any

from pytriton.compat.tensorrtserver.context import Context
from pytriton.compat.tensorrtserver.messages import ModelRepositoryIndex

__all__ = ["ModelRepositoryContext"]


class ModelRepositoryContext(Context):
    """Asks a server for the models in its repositories; the arguments are those of :class:`Context`."""

    def get_model_repository_index(self) -> Any:
        """The names of all models, loaded or not.

        Returns:
            A ``ModelRepositoryIndex``, whose ``models`` have a ``name``, each its own. What servers tell of versions
            and states today has no place in it: see :class:`ServerStatusContext`.

        Raises:
            InferenceServerException: The server cannot be reached, or does not allow it.
        """
        with self._request():
            names = dict.fromkeys(entry["name"] for entry in self._call("get_model_repository_index"))
            return ModelRepositoryIndex(models=[{"name": name} for name in names])
