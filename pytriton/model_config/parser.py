"""Read a model's configuration from JSON or ``config.pbtxt``, and complete the partial ones of load requests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config.field_table import MODEL, read_own_batcher
from pytriton.model_config.json_codec import look_up, read_fields
from pytriton.model_config.tensor import TensorSpec, checked_labels
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["ModelConfigParser", "complete_config", "is_partial_config"]

# A complete configuration has at least one of these.
_ESSENTIAL = {"backend", "platform", "input", "output"}
# A model has one of these.
_SCHEDULING = {"dynamic_batching", "sequence_batching", "ensemble_scheduling"}


class ModelConfigParser:
    """Reads the configuration of any model, also of one that another program serves."""

    @classmethod
    def from_dict(cls, model_config_dict: Mapping[str, Any]) -> TritonModelConfig:
        """Read protobuf's JSON: from a generator, from ``GET /v2/models/M/config``, or from a gRPC client.

        Keys may be in snake or camel case, integers may be strings, and unknown keys are ignored. The version is not
        part of the configuration and becomes 1.

        Raises:
            KeyError: There is no ``name``.
            TypeError: The configuration is not a dict, or its ``parameters`` are neither a dict nor a list.
            PyTritonModelConfigError: Another value is not as the server writes it.
        """
        if look_up(model_config_dict, "name") is None:
            raise KeyError("name")
        parameters = look_up(model_config_dict, "parameters")
        if not isinstance(parameters, (Mapping, list, type(None))):
            raise TypeError(f"parameters must be a dict or a list of names, got {parameters!r}")
        attributes = {"max_batch_size": 0, **read_own_batcher(read_fields(MODEL, model_config_dict))}
        return TritonModelConfig(**attributes, batching=attributes["max_batch_size"] > 0)

    @classmethod
    def from_file(cls, *, config_path: str | PathLike[str]) -> TritonModelConfig:
        """Read a ``config.pbtxt``, and the files of labels that exist beside it.

        Raises:
            OSError: A file cannot be read.
            KeyError: There is no ``name``.
            PyTritonModelConfigError: The file is not a model's configuration.
        """
        # Importing protobuf and gRPC takes 0.3 s, and most clients read no file.
        from google.protobuf import json_format, text_format
        from tritonclient.grpc.model_config_pb2 import ModelConfig

        path = Path(config_path)
        try:
            message = text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig())
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise PyTritonModelConfigError(f"{path} is not a model configuration: {error}") from error
        config = cls.from_dict(json_format.MessageToDict(message, preserving_proto_field_name=True))
        return replace(config, outputs=[_with_labels(spec, path.parent) for spec in config.outputs or ()])


def is_partial_config(config: Any) -> bool:
    """Whether a configuration, as JSON text, has no backend and no tensors, and so only changes some fields.

    The server does not add the model's other fields to such a configuration when it loads the model.
    """
    fields = _snake_case_fields(config)
    return bool(fields) and not _ESSENTIAL & fields.keys()


def complete_config(partial: str, own: Mapping[str, Any]) -> str:
    """Add the model's other fields to a partial configuration.

    Args:
        partial: The partial configuration, as JSON text.
        own: The model's configuration, as a server sends it.

    Returns:
        The complete configuration, as JSON text.
    """
    fields = _snake_case_fields(partial)
    replaced = _SCHEDULING if _SCHEDULING & fields.keys() else set()
    return json.dumps({**{key: value for key, value in own.items() if key not in replaced}, **fields})


def _snake_case_fields(config: Any) -> dict[str, Any]:
    """The fields of a configuration; none if it is not a JSON object."""
    try:
        fields = json.loads(config)
    except (TypeError, ValueError, RecursionError):
        return {}
    return {_snake_case(key): value for key, value in fields.items()} if isinstance(fields, dict) else {}


def _snake_case(key: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key)


def _with_labels(spec: TensorSpec, folder: Path) -> TensorSpec:
    path = folder / spec.label_filename
    return replace(spec, labels=checked_labels(path)) if spec.label_filename and path.is_file() else spec
