"""Between the server's requests and responses and the frames of one model."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Optional

import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from ..wire.frames import REQUEST, Frame, join_details
from ..wire.tensors import WHOLE_BATCH, BadRequestError, FrameError, Tensor, joined, tensor
from .abi import IMPOSSIBLE_SHAPE

Column = list[Optional["NDArray[Any]"]]


class Codec:
    """Encodes batches of requests, and decodes replies.

    Args:
        model_config: The server's description of the model.
        make_tensor: Makes one of the server's tensors from a name and a C-contiguous array.
        traced: Whether the server may trace requests with OpenTelemetry; asking it takes 1 us a request.

    Attributes:
        decoupled: Whether a request may get any number of responses; else it gets one.
    """

    def __init__(self, model_config: dict[str, Any], make_tensor: Any, traced: bool = False) -> None:
        self._inputs = [item["name"] for item in model_config["input"]]
        self._outputs = [item["name"] for item in model_config["output"]]
        self._batching = model_config.get("max_batch_size", 0) > 0
        self._ranks = [self._batching + _rank(item) for item in model_config["input"]]
        self.decoupled = model_config.get("model_transaction_policy", {}).get("decoupled", False)
        self._tensor = make_tensor
        self._traced = traced
        # A sequence batcher may add inputs of its own.
        self._has_one_input = len(self._inputs) == 1 and "sequence_batching" not in model_config

    def encode(self, requests: list[Any]) -> tuple[Frame, list[Tensor]]:
        """The frame for a batch, and its tensors: views of the requests' inputs.

        Raises:
            BadRequestError: A request cannot travel; :meth:`refused` says which, and why.
            FrameError: An input cannot.
            TypeError: An input holds objects that are no strings.
        """
        columns = self._columns(requests)
        self._check(columns)
        rows = common_rows(columns) if self._batching else None
        tensors = per_request(columns) if rows is None else whole_batch(columns, rows)
        metadata, apart = encode_details(requests, len(self._outputs), self._traced)
        return Frame(REQUEST, 0, len(requests), rows, metadata, apart=apart), tensors

    def refused(self, requests: list[Any]) -> dict[int, str]:
        """Why requests cannot travel, by their index; the others can, together."""
        reasons = {}
        for index, request in enumerate(requests):
            try:
                self.encode([request])
            except BadRequestError as error:
                reasons[index] = str(error)
        return reasons

    def decode(self, reply: Frame) -> list[Any]:
        """One response per request of the batch that a response frame answers.

        Raises:
            LookupError, ValueError: The frame makes no sense.
        """
        make = self._tensor
        outputs: list[list[Any]] = [[] for _ in range(reply.requests)]
        for item in reply.tensors:
            name, array = self._outputs[item.name], reply.array(item)
            if item.request != WHOLE_BATCH:
                outputs[item.request].append(make(name, array))
            elif len(outputs) == 1:
                outputs[0].append(make(name, array))
            else:
                first = 0
                for tensors, rows in zip(outputs, reply.rows or (), strict=True):
                    tensors.append(make(name, array[first : first + rows]))
                    first += rows
        respond = pb_utils.InferenceResponse
        responses = [respond(tensors) for tensors in outputs]
        if reply.metadata:
            try:
                for index, error in status_of(reply)["errors"].items():
                    if not 0 <= int(index) < len(responses):
                        raise FrameError(f"there is no request {index}")
                    responses[int(index)] = failure(message_of(error), str(error["code"]))
            except (AttributeError, TypeError) as error:
                raise FrameError(f"the errors of a reply make no sense: {error}") from error
        return responses

    def _columns(self, requests: list[Any]) -> list[tuple[int, Column]]:
        """The arrays of each input, one per request; None where a request lacks an optional input."""
        if self._has_one_input:
            return [(0, [tensors[0].as_numpy() if (tensors := request.inputs()) else None for request in requests])]
        found = [{tensor.name(): tensor for tensor in request.inputs()} for request in requests]
        return [
            (index, [tensors[name].as_numpy() if name in tensors else None for tensors in found])
            for index, name in enumerate(self._inputs)
        ]

    def _check(self, columns: list[tuple[int, Column]]) -> None:
        """Compare ranks: the server's own check drops the batch axis where the number of rows is 0 modulo 2**32.

        Inputs that NumPy cannot hold have another one, too; see :mod:`.abi`.
        """
        for index, column in columns:
            rank = self._ranks[index]
            for array in column:
                if array is not None and array.ndim != rank:
                    shape = "an impossible shape" if array.shape == IMPOSSIBLE_SHAPE else f"shape {list(array.shape)}"
                    axes = "axes, the first of them the batch's" if self._batching else "axes"
                    raise BadRequestError(f"input {self._inputs[index]!r} has {shape}, expected {rank} {axes}")


def _rank(item: dict[str, Any]) -> int:
    """Axes of a request's input, less the batch's; the server reshapes inputs before it hands them over."""
    return len(item["reshape"].get("shape", ()) if "reshape" in item else item["dims"])


def common_rows(columns: list[tuple[int, Column]]) -> list[int] | None:
    """Rows of each request if the batch can travel as one array per input, else None.

    It can when all requests have the same inputs, with equal trailing shapes, and all inputs of a request equally many
    rows.
    """
    rows: list[int] | None = None
    for _, column in columns:
        first = column[0]
        if first is None:
            if any(array is not None for array in column):
                return None
            continue
        trailing = first.shape[1:]
        counts = []
        for array in column:
            if array is None or array.shape[1:] != trailing:
                return None
            counts.append(array.shape[0])
        if rows is None:
            rows = counts
        elif rows != counts:
            return None
    return rows


def whole_batch(columns: list[tuple[int, Column]], rows: list[int]) -> list[Tensor]:
    """One tensor per input, the requests' rows one after the other."""
    total = sum(rows)
    return [joined(index, column, total) for index, column in columns if column[0] is not None]  # type: ignore[arg-type]


def per_request(columns: list[tuple[int, Column]]) -> list[Tensor]:
    """One tensor per input and request."""
    return [
        tensor(index, array, request)
        for index, column in columns
        for request, array in enumerate(column)
        if array is not None
    ]


def status_of(reply: Frame) -> Any:
    """What the metadata of a reply say of failures.

    Raises:
        ValueError: They are no JSON object.
    """
    try:
        status = json.loads(reply.metadata)
    except RecursionError as error:
        raise FrameError("the metadata of a reply are nested too deep") from error
    if not isinstance(status, dict):
        raise FrameError(f"the metadata of a reply are no object: {status!r:.100}")
    return status


def message_of(status: Mapping[str, Any]) -> str:
    """The text of a failure for the server, which passes nothing else on."""
    return join_details(str(status["message"]), str(status.get("details", "")))


def failure(message: str, code: str = "INTERNAL") -> Any:
    """The response that fails a request, with one of the codes of the server's ``TritonError``, by its name."""
    error = pb_utils.TritonError
    return pb_utils.InferenceResponse(error=error(message, getattr(error, code, error.INTERNAL)))


def encode_details(requests: list[Any], outputs: int, traced: bool) -> tuple[bytes, bool]:
    """What the requests of a batch say beside their tensors, as JSON; no bytes if they say nothing.

    Args:
        requests: The server's. Each question to one of them takes 0.3 us.
        outputs: How many the model has.
        traced: Whether to ask for the server's span, which takes 1 us.

    Returns:
        The JSON, and whether the requests must be seen one by one: some want only a part of the outputs, or are traced.

    Raises:
        BadRequestError: Parameters that are no UTF-8, which the server takes from HTTP.
    """
    entries = []
    apart = False
    for index, request in enumerate(requests):
        fields = []
        if (parameters := _parameters(request)) != "{}":
            fields.append(f'"parameters":{parameters}')
        if outputs > 1 and len(wanted := request.requested_output_names()) != outputs:
            fields.append(f'"outputs":{json.dumps(list(wanted))}')
            apart = True
        if name := _id(request):
            fields.append(f'"id":{json.dumps(name)}')
        if correlation_id := request.correlation_id():
            fields.append(f'"sequence":[{json.dumps(correlation_id)},{request.flags()}]')
        if timeout_us := request.timeout():
            fields.append(f'"deadline":{time.monotonic() + timeout_us / 1e6}')
        if traced and (context := request.trace().get_context()):  # JSON, or None
            fields.append(f'"trace":{{"context":{context},"since_ns":{time.time_ns()}}}')
            apart = True
        if fields:
            entries.append(f'"{index}":{{{",".join(fields)}}}')
    return f"{{{','.join(entries)}}}".encode() if entries else b"", apart


def _parameters(request: Any) -> str:
    try:
        return str(request.parameters())
    except UnicodeDecodeError as error:
        raise BadRequestError(f"parameters must be UTF-8: {error}") from error


def _id(request: Any) -> str:
    with suppress(UnicodeDecodeError):  # the server sends any bytes back to the client; but here it is text
        return str(request.request_id())
    return ""
