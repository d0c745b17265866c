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

__all__ = ["read", "write"]


def write(config: dict[str, Any], path: str | PathLike[str]) -> Message:
    """Write protobuf's JSON as text, with parent directories; returns the message."""
    message = json_format.ParseDict(config, model_config_pb2.ModelConfig())
    text = text_format.MessageToString(message)
    if message.max_batch_size == 0:
        # Text leaves zeros out, and an absent size lets the server choose one instead of turning batching off.
        text += "max_batch_size: 0\n"
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return message


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
