"""Write a model's configuration: JSON for the server's API, and ``config.pbtxt`` for a model repository."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton.model_config.field_table import MODEL, option_of_own_batcher, with_own_batcher
from pytriton.model_config.json_codec import write_fields
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.model_config.validation import checked_copy, validate

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["ModelConfigGenerator"]

# Keys of config.pbtxt, in snake case, whose text depends on more than the JSON value.
_ENUMS = {"data_type", "format", "kind", "timeout_action"}
_MAPS = {"input_map", "inputs", "output_map", "parameters", "priority_queue_policy"}
_MAPS_BY_INTEGER = {"priority_queue_policy"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class ModelConfigGenerator:
    """Writes a model's configuration for the server.

    Args:
        backend: Name of the server's backend that runs it; default: the configuration's.
    """

    def __init__(self, config: TritonModelConfig, backend: str | None = None) -> None:
        self._config = with_own_batcher(config) if option_of_own_batcher(config) else config
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
        path.write_text("\n".join([*_text_lines(self._json(), ""), ""]), encoding="utf-8")
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
        # Importing protobuf and gRPC takes 0.3 s, as long as the server's start.
        from google.protobuf import json_format
        from tritonclient.grpc.model_config_pb2 import ModelConfig

        checked = self._checked()
        checked.write(config_path)
        message: Message = json_format.ParseDict(checked._json(), ModelConfig())
        return message

    def _checked(self) -> ModelConfigGenerator:
        config = checked_copy(self._config)
        validate(config)
        return ModelConfigGenerator(config, self._backend)

    def _json(self) -> dict[str, Any]:
        runs = {"platform": "ensemble"} if self._config.steps else {"backend": self._backend}
        return {**runs, **write_fields(MODEL, self._config)}


def _text_lines(message: Mapping[str, Any], indent: str) -> Iterator[str]:
    """The lines of protobuf's text form of a message that is given in the form of protobuf's JSON."""
    for key, value in message.items():
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
        if name in _MAPS:
            for entry_key, entry in value.items():
                yield f"{indent}{name} {{"
                yield f"{indent}  key: {int(entry_key) if name in _MAPS_BY_INTEGER else _quoted(entry_key)}"
                if isinstance(entry, Mapping):
                    yield f"{indent}  value {{"
                    yield from _text_lines(entry, f"{indent}    ")
                    yield f"{indent}  }}"
                else:
                    yield f"{indent}  value: {_literal(entry)}"
                yield f"{indent}}}"
            continue
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Mapping):
                yield f"{indent}{name} {{"
                yield from _text_lines(item, f"{indent}  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}{name}: {item if name in _ENUMS else _literal(item)}"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    """A string literal, in which control characters are octal escapes of their bytes."""
    return '"' + "".join(_ESCAPES.get(letter) or _escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else "".join(f"\\{byte:03o}" for byte in letter.encode())
