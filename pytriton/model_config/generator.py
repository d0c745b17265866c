"""From our description of a model to the server's."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton.model_config.codec import write_fields
from pytriton.model_config.config_text import config_text
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

    def write(self, config_path: str | PathLike[str]) -> None:
        """Write ``config.pbtxt``, its parent directories, and the files of labels beside it.

        Raises:
            PyTritonBadParameterError: As :meth:`get_config`.
        """
        path, text = Path(config_path), config_text(self.get_config())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for spec in checked_copy(self._config).outputs or ():
            if spec.labels is not None:
                labels = "".join(f"{label}\n" for label in spec.labels)
                path.with_name(spec.label_filename).write_text(labels, encoding="utf-8")

    def to_file(self, config_path: str | PathLike[str]) -> Message:
        """As :meth:`write`; returns the ``inference.ModelConfig`` message that was written."""
        # Importing protobuf and gRPC takes 0.3 s.
        from pytriton.model_config import pbtxt

        self.write(config_path)
        return pbtxt.message_of(self.get_config())
