"""From our description of a model to the server's."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton.model_config.codec import write_fields
from pytriton.model_config.fields import MODEL
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
        config = checked_copy(self._config)
        validate(config)
        return {"backend": self._backend, **write_fields(MODEL, config)}

    def to_file(self, config_path: str | PathLike[str]) -> Message:
        """Write ``config.pbtxt``, its parent directories, and beside it the files of labels.

        Returns:
            The ``inference.ModelConfig`` message that was written.

        Raises:
            PyTritonBadParameterError: As :meth:`get_config`.
        """
        # Imported here, because protobuf and gRPC cost 0.3 s, and only a local model store writes files.
        from pytriton.model_config import pbtxt

        message = pbtxt.write(self.get_config(), config_path)
        for spec in checked_copy(self._config).outputs or ():
            if spec.labels is not None:
                path = Path(config_path).with_name(spec.label_filename)
                path.write_text("".join(f"{label}\n" for label in spec.labels), encoding="utf-8")
        return message
