"""From the server's description of a model to ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from pytriton.model_config.codec import look_up, read_fields
from pytriton.model_config.fields import MODEL
from pytriton.model_config.tensor import checked_labels
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

__all__ = ["ModelConfigParser"]


class ModelConfigParser:
    """Reads the configuration of any model, also one that another program serves."""

    @classmethod
    def from_dict(cls, model_config_dict: Mapping[str, Any]) -> TritonModelConfig:
        """Read protobuf's JSON: from a generator, from ``GET /v2/models/M/config``, or from a gRPC client.

        Keys may be in snake or camel case, integers may be strings, and unknown keys are ignored. The version is not
        part of it and becomes 1.

        Raises:
            KeyError: There is no ``name``.
            TypeError: The configuration is no dict, or its ``parameters`` are neither a dict nor a list.
            PyTritonModelConfigError: Anything else is not as the server writes it.
        """
        if look_up(model_config_dict, "name") is None:
            raise KeyError("name")
        parameters = look_up(model_config_dict, "parameters")
        if not isinstance(parameters, (Mapping, list, type(None))):
            raise TypeError(f"parameters must be a dict or a list of names, got {parameters!r}")
        attributes = {"max_batch_size": 0, **read_fields(MODEL, model_config_dict)}
        return TritonModelConfig(**attributes, batching=attributes["max_batch_size"] > 0)

    @classmethod
    def from_file(cls, *, config_path: str | PathLike[str]) -> TritonModelConfig:
        """Read a ``config.pbtxt``, and the files of labels beside it that are there.

        Raises:
            OSError: A file cannot be read.
            KeyError: There is no ``name``.
            PyTritonModelConfigError: The file is not a model's configuration.
        """
        # Imported here, because protobuf and gRPC cost 0.3 s, and most clients read no file.
        from pytriton.model_config import pbtxt

        config = cls.from_dict(pbtxt.read(config_path))
        outputs = [_with_labels(spec, Path(config_path).parent) for spec in config.outputs or ()]
        return replace(config, outputs=outputs)


def _with_labels(spec: TensorSpec, folder: Path) -> TensorSpec:
    path = folder / spec.label_filename
    return replace(spec, labels=checked_labels(path)) if spec.label_filename and path.is_file() else spec
