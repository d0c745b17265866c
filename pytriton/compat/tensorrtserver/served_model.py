"""One model of a server, as one context uses it: its description, its requests, and the answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytriton.client.tensors import InferResponse
from pytriton.compat.tensorrtserver.connection import Connection
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.tensors import RequestedOutput, Results, Tensors
from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config.dtypes import from_triton_name
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

__all__ = ["Answer", "Request", "ServedModel", "fetch_descriptions", "from_metadata"]

_ANY_BATCH_SIZE = 2**31 - 1


@dataclass(frozen=True)
class Request:
    """A request that is ready to be sent.

    Args:
        number: Among those of its context.
        arguments: Of the call ``infer``.
        correlation_id: Of its sequence; 0 is none.
        tensors: Decodes the answer.
        outputs: The outputs that it asks for.
        batch_size: Of its inputs.
        start_ns: When encoding began, in :func:`time.monotonic_ns`.
        encoded_ns: When encoding ended.
    """

    number: int
    arguments: dict[str, Any]
    correlation_id: int
    tensors: Tensors
    outputs: list[RequestedOutput]
    batch_size: int
    start_ns: int
    encoded_ns: int


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Args:
        results: As :meth:`InferContext.run` returns them.
        model_name: As the response says.
        model_version: As the response says.
    """

    results: Results
    model_name: str
    model_version: int


class ServedModel:
    """Encodes requests and decodes the answers, in any number of threads.

    The constructor fetches the model's description.

    Args:
        connection: To the server.
        version: None, and any below 0, is the highest.

    Raises:
        InferenceServerException: The server cannot be reached, or has no such model.
    """

    def __init__(self, connection: Connection, name: str, version: int | None) -> None:
        self.counters = Counters()
        self._connection = connection
        self._model = {"model_name": name, "model_version": "" if version is None or version < 0 else str(version)}
        self._tensors = [Tensors(found) for found in fetch_descriptions(connection.call, self._model)]

    def request(
        self,
        number: int,
        inputs: Any,
        outputs: Any,
        batch_size: int,
        sequence: Mapping[str, int],
        options: Mapping[str, int],
    ) -> Request:
        """Check and encode a request.

        Args:
            number: Among those of its context.
            inputs: As of :meth:`Tensors.encode`.
            outputs: As of :meth:`Tensors.wanted`.
            sequence: ``sequence_id``, ``sequence_start`` and ``sequence_end``; empty for none.
            options: ``priority`` and ``timeout``; absent for the model's defaults.

        Raises:
            InferenceServerException: Something does not fit the model.
        """
        start_ns = time.monotonic_ns()
        tensors = self._tensors_for(inputs)
        wanted = tensors.wanted(outputs)
        correlation_id = sequence.get("sequence_id", 0)
        if correlation_id >= 2**63 and self._connection.is_grpc:
            # gRPC's field is signed; the server reads it as unsigned.
            sequence = {**sequence, "sequence_id": correlation_id - 2**64}
        arguments = {
            **self._model,
            "inputs": tensors.encode(inputs, batch_size),
            "outputs": [output.request for output in wanted],
            "request_id": str(number),
            "parameters": sequence,
            **options,
        }
        return Request(number, arguments, correlation_id, tensors, wanted, batch_size, start_ns, time.monotonic_ns())

    def answer(self, request: Request, response: InferResponse) -> Answer:
        """Decode and count the answer to a request.

        Raises:
            InferenceServerException: It does not fit the request.
        """
        received_ns = time.monotonic_ns()
        answer = _decoded(response, request)
        end_ns = time.monotonic_ns()
        self.counters.add(end_ns - request.start_ns, request.encoded_ns - request.start_ns, end_ns - received_ns)
        return answer

    def _tensors_for(self, inputs: Any) -> Tensors:
        """By the description that fits, if there are several."""
        if len(self._tensors) == 1 or not isinstance(inputs, Mapping):
            return self._tensors[0]
        return next((tensors for tensors in self._tensors if tensors.fit(inputs)), self._tensors[0])


def _decoded(response: InferResponse, request: Request) -> Answer:
    message = response.get_response()
    if not isinstance(message, Mapping):
        message = {name: getattr(message, name) for name in ("id", "model_name", "model_version")}
    if message.get("id") != str(request.number):
        raise InferenceServerException(f"the response is to request {message.get('id')}, not {request.number}")
    results = request.tensors.decode(response, request.outputs, request.batch_size)
    return Answer(results, message["model_name"], int(message["model_version"]))


class Counters:
    """Counts completed requests and their times, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {
            "completed_request_count": 0,
            "cumulative_total_request_time_ns": 0,
            "cumulative_send_time_ns": 0,
            "cumulative_receive_time_ns": 0,
        }

    def add(self, total_ns: int, send_ns: int, receive_ns: int) -> None:
        """Count one request and its times in nanoseconds."""
        with self._lock:
            for name, value in zip(self._counts, (1, total_ns, send_ns, receive_ns), strict=True):
                self._counts[name] += value

    def as_dict(self) -> dict[str, int]:
        """A copy of all counts, by v1's names."""
        with self._lock:
            return dict(self._counts)


def fetch_descriptions(
    call: Callable[[str, Mapping[str, Any]], Any], model: Mapping[str, str]
) -> list[TritonModelConfig]:
    """The model's configuration; if the server restricts it, what the model's metadata may mean.

    Args:
        call: Calls a method of the server with arguments.
        model: ``model_name`` and ``model_version``, of which an empty one is the highest.

    Returns:
        One, or those of :func:`from_metadata`.

    Raises:
        InferenceServerException: There is no such model, or it cannot be understood.
    """
    try:
        try:
            return [ModelConfigParser.from_dict(call("get_model_config", model))]
        except InferenceServerException as error:
            if "is restricted" not in str(error):
                raise
            return from_metadata(call("get_model_metadata", model))
    except (AttributeError, KeyError, PyTritonModelConfigError, TypeError, ValueError) as error:
        raise InferenceServerException(
            f"the description of model {model['model_name']!r} cannot be understood: {error}"
        ) from None


def from_metadata(metadata: Mapping[str, Any]) -> list[TritonModelConfig]:
    """Descriptions without the maximum batch size.

    If all tensors have several dimensions and the first may have any size, it may be the batch axis or not. The number
    of axes of a request's arrays tells.

    Args:
        metadata: In JSON form.

    Returns:
        A description with a batch axis, if that is possible, and one without.
    """
    inputs, outputs = _specs(metadata, "inputs"), _specs(metadata, "outputs")
    found = [TritonModelConfig(metadata["name"], batching=False, inputs=inputs, outputs=outputs)]
    if all(spec.shape[0] == -1 and len(spec.shape) > 1 for spec in inputs + outputs):
        inputs, outputs = ([replace(spec, shape=spec.shape[1:]) for spec in specs] for specs in (inputs, outputs))
        found.insert(
            0, TritonModelConfig(metadata["name"], max_batch_size=_ANY_BATCH_SIZE, inputs=inputs, outputs=outputs)
        )
    return found


def _specs(metadata: Mapping[str, Any], kind: str) -> list[TensorSpec]:
    return [
        TensorSpec(each["name"], tuple(int(size) for size in each["shape"]), from_triton_name(each["datatype"]))
        for each in metadata.get(kind, ())
    ]
