"""One model of a server, as one context uses it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pytriton.compat.tensorrtserver.connection import Connection
from pytriton.compat.tensorrtserver.counters import Counters
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.model_description import fetch_descriptions
from pytriton.compat.tensorrtserver.result_format import RequestedOutput
from pytriton.compat.tensorrtserver.tensors import Results, Tensors

__all__ = ["Answer", "Request", "ServedModel"]


@dataclass(frozen=True)
class Request:
    """A request that is ready to be sent.

    Args:
        number: Among those of its context.
        arguments: Of tritonclient's ``infer``.
        correlation_id: Of its sequence; 0 is none.
        tensors: Decodes the answer.
        outputs: What is wanted.
        batch_size: Of its inputs.
        start_ns: When it was begun, in :func:`time.monotonic_ns`.
        encoded_ns: When it was ready.
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
        model_name: Of the model that gave it.
        model_version: Of the model that gave it.
    """

    results: Results
    model_name: str
    model_version: int


class ServedModel:
    """Makes requests, sends them, and understands the answers, in any number of threads.

    It fetches the model's description at once.

    Args:
        connection: To the server.
        name: Of the model.
        version: None, and any below 0, is the highest.
        streaming: Send requests over a stream.

    Attributes:
        counters: Of the answers.

    Raises:
        InferenceServerException: The server cannot be reached, or has no such model.
    """

    def __init__(self, connection: Connection, name: str, version: int | None, *, streaming: bool) -> None:
        self.counters = Counters()
        self._connection = connection
        self._model = {"model_name": name, "model_version": "" if version is None or version < 0 else str(version)}
        self._streaming = streaming
        self._tensors = [Tensors(found, connection.lib) for found in fetch_descriptions(connection.call, self._model)]

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
            batch_size: Of the inputs.
            sequence: ``sequence_id``, ``sequence_start`` and ``sequence_end``; empty for none.
            options: ``priority`` and ``timeout``, as far as they are wanted.

        Raises:
            InferenceServerException: Something does not fit the model.
        """
        start_ns = time.monotonic_ns()
        tensors = self._tensors_for(inputs)
        wanted = tensors.wanted(outputs)
        correlation_id = sequence.get("sequence_id", 0)
        if correlation_id >= 2**63 and self._connection.is_grpc:
            # gRPC's field has a sign, which the server does not look at.
            sequence = {**sequence, "sequence_id": correlation_id - 2**64}
        arguments = {
            **self._model,
            "inputs": tensors.encode(inputs, batch_size),
            "outputs": tensors.encode_outputs(wanted),
            "request_id": str(number),
            **options,
            # Our streams take as parameters what all other calls take as arguments.
            **({"parameters": sequence} if self._streaming else sequence),
        }
        return Request(number, arguments, correlation_id, tensors, wanted, batch_size, start_ns, time.monotonic_ns())

    def send(self, request: Request) -> Future[Any]:
        """Send a request over the stream; the future gets what :meth:`answer` takes, or any exception."""
        return self._connection.send(request.arguments)

    def exchange(self, request: Request) -> Any:
        """Send a request, and wait for what :meth:`answer` takes, for as long as it takes.

        Raises:
            InferenceServerException: There was none.
        """
        return self._connection.call("infer", request.arguments, math.inf)

    def answer(self, request: Request, result: Any) -> Answer:
        """Decode and count the answer to a request.

        Raises:
            InferenceServerException: It does not fit the request.
        """
        received_ns = time.monotonic_ns()
        answer = _decoded(result, request)
        end_ns = time.monotonic_ns()
        self.counters.add(end_ns - request.start_ns, request.encoded_ns - request.start_ns, end_ns - received_ns)
        return answer

    def _tensors_for(self, inputs: Any) -> Tensors:
        """By the description that fits, if the server has left several possible."""
        if len(self._tensors) == 1 or not isinstance(inputs, Mapping):
            return self._tensors[0]
        return next((tensors for tensors in self._tensors if tensors.fit(inputs)), self._tensors[0])


def _decoded(result: Any, request: Request) -> Answer:
    response = result.get_response()
    if not isinstance(response, Mapping):
        response = {name: getattr(response, name) for name in ("id", "model_name", "model_version")}
    if response.get("id") != str(request.number):
        raise InferenceServerException(f"the response is to request {response.get('id')}, not {request.number}")
    results = request.tensors.decode(result, request.outputs, request.batch_size)
    return Answer(results, response["model_name"], int(response["model_version"]))
