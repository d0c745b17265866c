"""One model of a server, as one context uses it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytriton.compat.tensorrtserver.connection import Connection
from pytriton.compat.tensorrtserver.counters import Counters
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.model_description import fetch_description
from pytriton.compat.tensorrtserver.result_format import RequestedOutput
from pytriton.compat.tensorrtserver.tensors import Results, Tensors

__all__ = ["Answer", "Request", "ServedModel"]


@dataclass(frozen=True)
class Request:
    """A request that is ready to be sent.

    Args:
        number: Among those of its context.
        arguments: Of tritonclient's ``infer``.
        outputs: What is wanted.
        batch_size: Of its inputs.
        start_ns: When it was begun, in :func:`time.monotonic_ns`.
        encoded_ns: When it was ready.
    """

    number: int
    arguments: dict[str, Any]
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
    """Makes requests and exchanges them for answers, in any number of threads; fetches its description at once.

    Args:
        connection: To the server.
        name: Of the model.
        version: None is the highest.
        streaming: Send requests over a stream.

    Attributes:
        counters: Of the answers.

    Raises:
        InferenceServerException: The server cannot be reached, or has no such model.
    """

    def __init__(self, connection: Connection, name: str, version: int | None, *, streaming: bool) -> None:
        self.counters = Counters()
        self._connection = connection
        self._model = {"model_name": name, "model_version": "" if version is None else str(version)}
        self._streaming = streaming
        self._tensors = Tensors(fetch_description(connection.call, self._model), connection.lib, streaming=streaming)

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
        wanted = self._tensors.wanted(outputs)
        arguments = {
            **self._model,
            "inputs": self._tensors.encode(inputs, batch_size),
            "outputs": self._tensors.encode_outputs(wanted),
            "request_id": str(number),
            **options,
            # Our streams take as parameters what all other calls take as arguments.
            **({"parameters": sequence} if self._streaming else sequence),
        }
        return Request(number, arguments, wanted, batch_size, start_ns, time.monotonic_ns())

    def exchange(self, request: Request) -> Answer:
        """Send a request, and wait for the answer for as long as it takes.

        Raises:
            InferenceServerException: There was none, or one that does not fit the request.
        """
        if self._streaming:
            result = self._connection.stream(request.arguments, math.inf)
        else:
            result = self._connection.call("infer", request.arguments, math.inf)
        received_ns = time.monotonic_ns()
        answer = self._decode(result, request)
        end_ns = time.monotonic_ns()
        self.counters.add(end_ns - request.start_ns, request.encoded_ns - request.start_ns, end_ns - received_ns)
        return answer

    def _decode(self, result: Any, request: Request) -> Answer:
        response = result.get_response()
        if not isinstance(response, Mapping):
            response = {name: getattr(response, name) for name in ("id", "model_name", "model_version")}
        if response.get("id") != str(request.number):
            raise InferenceServerException(f"the response is to request {response.get('id')}, not {request.number}")
        results = self._tensors.decode(result, request.outputs, request.batch_size)
        return Answer(results, response["model_name"], int(response["model_version"]))
