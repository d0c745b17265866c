"""The text form of a model's configuration, as a file of a model repository.

Imports protobuf and, through tritonclient, gRPC: 0.3 s. Nothing imports this module before a file is at hand.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from google.protobuf.message import Message
from tritonclient.grpc import model_config_pb2

from pytriton.exceptions import PyTritonModelConfigError

__all__ = ["message_of", "read"]


def message_of(config: dict[str, Any]) -> Message:
    """The message of protobuf's JSON."""
    return json_format.ParseDict(config, model_config_pb2.ModelConfig())


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """Protobuf's JSON of a text file, without keys at their default.

    Raises:
        OSError: The file cannot be read.
        PyTritonModelConfigError: The text is not a model's configuration.
    """
    try:
        message = text_format.Parse(Path(path).read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise PyTritonModelConfigError(f"{path} is not a model configuration: {error}") from error
    config: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return config
