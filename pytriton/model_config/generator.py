"""Write a model's configuration: JSON for the server's API, and ``config.pbtxt`` for a model repository."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton.model_config.config_text import config_text
from pytriton.model_config.field_table import MODEL
from pytriton.model_config.json_codec import write_fields
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.model_config.validation import checked_copy, validate

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["ModelConfigGenerator"]


class ModelConfigGenerator:
    """Writes a model's configuration for the server.

    Args:
        config: The model.
        backend: Name of the server's backend that runs it; default: the configuration's.
    """

    def __init__(self, config: TritonModelConfig, backend: str | None = None) -> None:
        self._config = config
        self._backend = backend or config.backend

    def get_config(self) -> dict[str, Any]:
        """The configuration in the form of protobuf's JSON, as the server's model-repository API takes it.

        Raises:
            PyTritonBadParameterError: As :func:`pytriton.model_config.validation.validate`.
        """
        return self._checked()._json()

    def write(self, config_path: str | PathLike[str]) -> None:
        """Write ``config.pbtxt``, its parent directories, and the files of labels beside it.

        The configuration is not checked again; ``bind`` has done that.
        """
        path = Path(config_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config_text(self._json()), encoding="utf-8")
        for spec in self._config.outputs or ():
            if spec.labels is not None:
                labels = "".join(f"{label}\n" for label in spec.labels)
                path.with_name(spec.label_filename).write_text(labels, encoding="utf-8")

    def to_file(self, config_path: str | PathLike[str]) -> Message:
        """Check the configuration and write it as :meth:`write`.

        Returns:
            The ``inference.ModelConfig`` message that was written.

        Raises:
            PyTritonBadParameterError: As :meth:`get_config`.
        """
        # Importing protobuf and gRPC takes 0.3 s.
        from google.protobuf import json_format
        from tritonclient.grpc.model_config_pb2 import ModelConfig

        checked = self._checked()
        checked.write(config_path)
        return json_format.ParseDict(checked._json(), ModelConfig())

    def _checked(self) -> ModelConfigGenerator:
        config = checked_copy(self._config)
        validate(config)
        return ModelConfigGenerator(config, self._backend)

    def _json(self) -> dict[str, Any]:
        return {"backend": self._backend, **write_fields(MODEL, self._config)}
