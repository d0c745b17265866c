"""Calls of models by callables of remote workers, as frames: pure functions. ``messages.py`` shows the conversation.

A call is a REQUEST frame, whose tensors are its inputs, and whose metadata are JSON. Its result is a RESPONSE frame; a
stream is several of them, then END; an error is an ERROR frame. All have the worker's number of the call.
"""

from __future__ import annotations

import json
from typing import Any

from numpy.typing import NDArray

from pytriton.client import exceptions
from pytriton.client.arguments import SEQUENCE, check_headers
from pytriton.client.conversations import Call
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInferenceServerError
from pytriton.client.tensors import InputTensor, OutputRequest
from pytriton.exceptions import ErrorCode
from pytriton.model_config.dtypes import triton_name
from pytriton.wire.frames import END, ERROR, REQUEST, RESPONSE, Frame
from pytriton.wire.tensors import Tensor, tensor

__all__ = ["STREAM", "Message", "Outputs", "answer_of", "call_of", "error_frame", "request_frame", "result_frame"]

STREAM = "stream_infer"
INFERENCES = frozenset([STREAM, "infer"])
METADATA_CALLS = frozenset(
    ["is_server_live", "is_server_ready", "is_model_ready", "get_model_config", "get_model_repository_index"]
)
ARGUMENTS = frozenset(["model_name", "model_version", "request_id", "parameters", "priority", "timeout", *SEQUENCE])
HEADERS = frozenset(["traceparent", "tracestate"])
COMPRESSIONS = None, "gzip", "deflate"

Message = tuple[Frame, list[Tensor]]


class Outputs:
    """The outputs of an answer, as a response of a transport has them."""

    def __init__(self, names: list[str], frame: Frame) -> None:
        self._arrays = {name: frame.array(each) for name, each in zip(names, frame.tensors, strict=True)}

    def as_numpy(self, name: str) -> NDArray[Any] | None:
        """An output, of BYTES an array of ``bytes``; None if it did not come."""
        return self._arrays.get(name)


def request_frame(number: int, call: Call) -> Message:
    """The frame of a call, and its tensors."""
    inputs, outputs = call.arguments.get("inputs", ()), call.arguments.get("outputs", ())
    metadata = {
        "method": call.method,
        "timeout_s": call.timeout_s,
        "headers": _only(HEADERS, call.headers),
        "compression": call.compression,
        "arguments": _only(ARGUMENTS, call.arguments),
        "inputs": [each.name for each in inputs],
        "outputs": [each.name for each in outputs],
    }
    tensors = [tensor(index, each.array, 0) for index, each in enumerate(inputs)]
    return Frame(REQUEST, number, 1, metadata=json.dumps(metadata).encode()), tensors


def call_of(frame: Frame) -> Call:
    """The call of a received frame, which can do no more than call models.

    Raises:
        ValueError, LookupError, TypeError: It is none that a callable may make.
    """
    metadata = json.loads(frame.metadata)
    method, compression = metadata["method"], metadata["compression"]
    if method not in INFERENCES | METADATA_CALLS or compression not in COMPRESSIONS:
        raise ValueError(f"remote workers may call models, and not {method!r} with compression {compression!r}")
    arguments = _only(ARGUMENTS, metadata["arguments"])
    if method in INFERENCES:
        arrays = zip(metadata["inputs"], map(frame.array, frame.tensors), strict=True)
        arguments["inputs"] = [InputTensor(str(name), _datatype(array), array.shape, array) for name, array in arrays]
        arguments["outputs"] = [OutputRequest(str(name)) for name in metadata["outputs"]]
    headers = check_headers(_only(HEADERS, metadata["headers"]))
    return Call(method, float(metadata["timeout_s"]), arguments, headers, compression)


def _only(names: frozenset[str], given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in names}


def _datatype(array: NDArray[Any]) -> str:
    return "BYTES" if array.dtype.hasobject else triton_name(array.dtype)


def result_frame(number: int, call: Call, result: Any) -> Message:
    """The frame of what a transport returned for a call, or for one response of a stream; and its tensors."""
    metadata, arrays = {"result": result}, []
    if call.method in INFERENCES:
        found = {each.name: result.as_numpy(each.name) for each in call.arguments["outputs"]}
        arrays = [array for array in found.values() if array is not None]
        metadata = {"outputs": [name for name, array in found.items() if array is not None]}
    tensors = [tensor(index, array, 0) for index, array in enumerate(arrays)]
    return Frame(RESPONSE, number, 1, metadata=json.dumps(metadata).encode(), more=call.method == STREAM), tensors


def error_frame(number: int, error: Exception) -> Frame:
    """The frame of what a transport raised."""
    code = getattr(error, "code", None)
    metadata = {
        "kind": type(error).__name__,
        "message": error.message if isinstance(error, PyTritonClientError) else f"{type(error).__name__}: {error}",
        "code": code.value if isinstance(code, ErrorCode) else None,
        "details": getattr(error, "details", ""),
    }
    return Frame(ERROR, number, 1, metadata=json.dumps(metadata).encode())


def answer_of(frame: Frame) -> Any:
    """What a transport returns for an answer; None at the end of a stream.

    Raises:
        PyTritonClientError: It is an error.
    """
    if frame.kind == END:
        return None
    metadata = json.loads(frame.metadata)
    if frame.kind == RESPONSE:
        return Outputs(metadata["outputs"], frame) if "outputs" in metadata else metadata["result"]
    kind = getattr(exceptions, metadata["kind"]) if metadata["kind"] in exceptions.__all__ else None
    error: PyTritonClientError = (kind or PyTritonClientInferenceServerError)(metadata["message"])
    if isinstance(error, PyTritonClientInferenceServerError):
        error.code = None if metadata["code"] is None else ErrorCode(metadata["code"])
        error.details = metadata["details"]
    raise error
