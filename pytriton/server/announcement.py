"""What the log says of a model that is served: where, and a command that calls it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytriton.client.auth import TOKEN_VARIABLE, TritonUrl
from pytriton.model_config import SequenceBatcher
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

__all__ = ["announcement", "example_command"]

MOST_VALUES = 64  # written out in a command
BINARY_ONLY = {"FP16", "BF16"}  # the server takes and gives them in no JSON
EMPTY_TEXT_BYTES = 4


def announcement(url: str, config: TritonModelConfig, header: str | None) -> str:
    """Where a model is served, as lines for the log.

    Args:
        url: For HTTP or gRPC.
        header: Of the access token, if inference needs it.
    """
    path = f"/v2/models/{config.model_name}"
    title = f"Infer function available as model: `{path}`"
    if not url.startswith("http"):
        return f"{title}\n  Inference:      `{url}`, by gRPC alone"
    curl = "curl"
    if url.startswith("http+unix:"):
        socket = TritonUrl.from_url(url).socket
        title += f", at the socket `{socket}`"
        curl, url = f"curl --unix-socket {shlex.quote(socket)}", "http://localhost"
    lines = [
        title,
        f"  Status:         `GET  {url}{path}/ready`",
        f"  Model config:   `GET  {url}{path}/config`",
        f"  Inference:      `POST {url}{path}/{'generate_stream' if config.decoupled else 'infer'}`",
    ]
    command = example_command(url + path, config, header, curl)
    return "\n".join([*lines, f"  Try it:         {command}"] if command else lines)


def example_command(model_url: str, config: TritonModelConfig, header: str | None, curl: str = "curl") -> str | None:
    """A line for a shell that calls a model once, with zeros or texts of the smallest shapes that it declares.

    Args:
        model_url: ``http://.../v2/models/NAME``.
        header: As for :func:`announcement`; the shell takes its value from ``PYTRITON_ACCESS_TOKEN``.
        curl: The program, with its options.

    Returns:
        None for a decoupled model whose inputs do not fit into a line, for which there is no binary form.
    """
    required = [spec for spec in config.inputs or () if not spec.optional]
    inputs = required or config.inputs or []
    token = f' -H "{header}: ${TOKEN_VARIABLE}"' if header else ""
    is_long = sum(math.prod(_shape(spec, config)) for spec in inputs) > MOST_VALUES
    takes_binary = is_long or _has_binary_only(inputs)
    gives_binary = _has_binary_only(config.outputs or [])
    if config.decoupled:
        if takes_binary or gives_binary:
            return None
        values = {spec.name: _values(spec, config) for spec in inputs}
        return f"{curl} -N {model_url}/generate_stream{token} -d {_quoted(values)}"
    request: dict[str, Any] = {"inputs": [_tensor(spec, config, takes_binary) for spec in inputs]}
    parameters: dict[str, Any] = {"binary_data_output": True} if gives_binary else {}
    if isinstance(config.batcher, SequenceBatcher):
        parameters |= {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
    if parameters:
        request["parameters"] = parameters
    command = f"{curl} {model_url}/infer{token}" + " --output -" * gives_binary
    if not takes_binary:
        return f"{command} -d {_quoted(request)}"
    length_bytes = len(json.dumps(request))
    return (
        f"(printf %s {_quoted(request)}; head -c {sum(_size_bytes(spec, config) for spec in inputs)} /dev/zero) | "
        f"{command} -H 'Inference-Header-Content-Length: {length_bytes}' --data-binary @-"
    )


def _tensor(spec: TensorSpec, config: TritonModelConfig, is_binary: bool) -> dict[str, Any]:
    tensor = {"name": spec.name, "datatype": triton_name(spec.dtype), "shape": _shape(spec, config)}
    if is_binary:
        return {**tensor, "parameters": {"binary_data_size": _size_bytes(spec, config)}}
    return {**tensor, "data": _values(spec, config)}


def _has_binary_only(tensors: Sequence[TensorSpec]) -> bool:
    return any(triton_name(spec.dtype) in BINARY_ONLY for spec in tensors)


def _shape(spec: TensorSpec, config: TritonModelConfig) -> list[int]:
    return [1] * config.batching + [max(size, 1) for size in spec.shape or (1,)]


def _values(spec: TensorSpec, config: TritonModelConfig) -> list[Any]:
    count = math.prod(_shape(spec, config))
    return (["text"] if triton_name(spec.dtype) == "BYTES" else [np.zeros((), spec.dtype).item()]) * count


def _size_bytes(spec: TensorSpec, config: TritonModelConfig) -> int:
    item = EMPTY_TEXT_BYTES if triton_name(spec.dtype) == "BYTES" else np.dtype(spec.dtype).itemsize
    return math.prod(_shape(spec, config)) * item


def _quoted(value: Any) -> str:
    return shlex.quote(json.dumps(value))
