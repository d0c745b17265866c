"""The proxy: the model that Triton's Python backend runs. It hands each batch to the worker and answers with the reply.

``execute`` is the data path on the server's side. What costs time in ``triton_python_backend_utils`` was measured:
``is_cancelled`` and response senders take 50 to 118 us a request and are not used here.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Sequence
from typing import Any, Optional

import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from .abi import adapt, lend_inputs
from .arena import ArenaFullError
from .channel import Channel, PeerGoneError, connect
from .frames import REQUEST, RESPONSE, WHOLE_BATCH, Frame, FrameError, Tensor, joined, tensor

ENDPOINT_FILE = "endpoint.json"
CONNECT_TIMEOUT_S = 10.0
RECONNECT_TIMEOUT_S = 0.05

Column = list[Optional["NDArray[Any]"]]


class TritonPythonModel:
    """One instance of a bound model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Connect to the worker of this instance; raising makes the server refuse to load the model."""
        self._tensor = adapt(pb_utils)
        lend_inputs()  # they are copied on their way to the worker
        config = json.loads(args["model_config"])
        self._inputs = [item["name"] for item in config["input"]]
        self._outputs = [item["name"] for item in config["output"]]
        self._batching = config.get("max_batch_size", 0) > 0
        folder = os.path.join(args["model_repository"], args["model_version"])
        with open(os.path.join(folder, ENDPOINT_FILE), encoding="utf-8") as file:
            endpoint = json.load(file)
        instance = args["model_instance_name"].rsplit("_", 1)[1]
        self._path = os.path.join(endpoint["folder"], f"{endpoint['prefix']}.{instance}")
        self._hello = {"model": args["model_name"], "instance": args["model_instance_name"]}
        self._sequence = 0
        self._channel = connect(self._path, self._hello, CONNECT_TIMEOUT_S)
        gc.collect()
        gc.freeze()

    def finalize(self) -> None:
        """Close the connection: the worker learns that no batch is in flight any more."""
        self._channel.close()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Have the worker answer a batch; every request gets a response, an error if need be."""
        try:
            columns = self._columns(requests)
            rows = common_rows(columns) if self._batching else None
            tensors = per_request(columns) if rows is None else whole_batch(columns, rows)
            reply = self._exchange(Frame(REQUEST, 0, len(requests), rows, self._metadata(requests)), tensors)
            status = json.loads(reply.metadata) if reply.metadata else {}
            if reply.kind == RESPONSE:
                return self._responses(reply, len(requests), status.get("errors", {}))
            if status["isolate"] and len(requests) > 1:  # only the request at fault shall fail
                return [self.execute([request])[0] for request in requests]
            return _fail(requests, status["message"])
        except PeerGoneError as error:
            return _fail(
                requests, f"the inference callable's process is gone: {error}", pb_utils.TritonError.UNAVAILABLE
            )
        except (ArenaFullError, TypeError) as error:
            return _fail(requests, str(error))
        except (LookupError, ValueError) as error:  # FrameError or a reply that makes no sense
            self._channel.shutdown()  # the next batch starts on a new connection
            return _fail(requests, f"{type(error).__name__}: {error}")

    def _columns(self, requests: list[Any]) -> list[tuple[int, Column]]:
        """The arrays of each input, one per request; None where a request lacks an optional input."""
        if len(self._inputs) == 1:
            return [(0, [tensors[0].as_numpy() if (tensors := request.inputs()) else None for request in requests])]
        found = [{tensor.name(): tensor for tensor in request.inputs()} for request in requests]
        return [
            (index, [tensors[name].as_numpy() if name in tensors else None for tensors in found])
            for index, name in enumerate(self._inputs)
        ]

    def _metadata(self, requests: list[Any]) -> bytes:
        """Parameters and requested outputs of the requests that have any, as JSON by request index."""
        entries = []
        several = len(self._outputs) > 1  # of one output the client can only want all
        for index, request in enumerate(requests):
            parameters = request.parameters()
            outputs = request.requested_output_names() if several else self._outputs
            if parameters != "{}" or len(outputs) != len(self._outputs):
                entries.append(f'"{index}":{{"parameters":{parameters},"outputs":{json.dumps(list(outputs))}}}')
        return f"{{{','.join(entries)}}}".encode() if entries else b""

    def _exchange(self, frame: Frame, tensors: Sequence[Tensor]) -> Frame:
        """Send a batch and wait for its reply, through a new connection if the old one had died before."""
        self._sequence = frame.sequence = (self._sequence + 1) & 0xFFFFFFFF
        try:
            self._channel.send(frame, tensors)
        except PeerGoneError:
            self._channel = self._reconnect()
            self._channel.send(frame, tensors)
        reply = self._channel.receive()
        if reply.sequence != frame.sequence or reply.requests != frame.requests:
            raise FrameError("the reply belongs to another batch")
        return reply

    def _reconnect(self) -> Channel:
        self._channel.close()
        return connect(self._path, self._hello, RECONNECT_TIMEOUT_S)

    def _responses(self, reply: Frame, count: int, errors: dict[str, str]) -> list[Any]:
        make = self._tensor
        outputs: list[list[Any]] = [[] for _ in range(count)]
        for item in reply.tensors:
            name, array = self._outputs[item.name], reply.array(item)
            if item.request != WHOLE_BATCH:
                outputs[item.request].append(make(name, array))
                continue
            first = 0
            for tensors, rows in zip(outputs, reply.rows or (), strict=True):
                tensors.append(make(name, array[first : first + rows]))
                first += rows
        respond = pb_utils.InferenceResponse
        responses = [respond(tensors) for tensors in outputs]
        for index, message in errors.items():
            responses[int(index)] = _error(message)
        return responses


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


def _error(message: str, code: Any = None) -> Any:
    error = pb_utils.TritonError  # not there before the first instance is made, so no default argument
    return pb_utils.InferenceResponse(error=error(message, error.INTERNAL if code is None else code))


def _fail(requests: list[Any], message: str, code: Any = None) -> list[Any]:
    return [_error(message, code) for _ in requests]
