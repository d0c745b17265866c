"""How a client's calls are put to a server in this process, and its answers to the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
)
from pytriton.inprocess.enums import DataType
from pytriton.inprocess.exceptions import InvalidArgumentError, NotFoundError, TritonError, UnavailableError
from pytriton.inprocess.model import Model
from pytriton.inprocess.request import InferenceRequest
from pytriton.inprocess.response import InferenceResponse
from pytriton.inprocess.running import NOT_STARTED
from pytriton.inprocess.server import Server

__all__ = ["Dialect", "InferInput", "InferRequestedOutput", "InferResult"]

LATEST = -1


class InferInput:
    """An input of a request; the array is read where it is."""

    def __init__(self, name: str, shape: Sequence[int], datatype: str) -> None:
        self.name = name
        self.array: NDArray[Any] = np.empty(0)

    def set_data_from_numpy(self, array: NDArray[Any]) -> None:
        """The data."""
        self.array = array


class InferRequestedOutput:
    """An output that a client wants; here all are given."""

    def __init__(self, name: str) -> None:
        pass


class InferResult:
    """A response without an error.

    Args:
        response: It.
    """

    def __init__(self, response: InferenceResponse) -> None:
        self._outputs = response.outputs

    def as_numpy(self, name: str) -> NDArray[Any] | None:
        """An output: a read-only view of the response, or for BYTES an array of ``bytes``; None if it did not come."""
        tensor = self._outputs.get(name)
        if tensor is None:
            return None
        if tensor.data_type == DataType.BYTES:
            return tensor.to_bytes_array()
        array = tensor._array()
        array.flags.writeable = False
        return array


class Dialect:
    """Calls of a client, which are named and given as those of tritonclient's.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    def ask(self, call: Call) -> Any:
        """Put any call but an inference.

        Raises:
            PyTritonClientError: The server refused.
        """
        given = call.arguments
        name = given.get("model_name", "")
        try:
            match call.method:
                case "is_server_live":
                    return self._server.live()
                case "is_server_ready":
                    return self._server.ready()
                case "is_model_ready":
                    return self._is_model_ready(call)
                case "get_model_config":
                    return self._model(call).config()
                case "get_model_repository_index":
                    return self._index()
                case "load_model":
                    files = given["files"] or {}
                    config = {} if given["config"] is None else {"config": given["config"]}
                    return self._server.load(name, {**config, **files} or None)
                case "unload_model":
                    return self._server.unload(name)
        except TritonError as error:
            raise self.translate(call, error) from error
        raise PyTritonClientInferenceServerError(f"a server in this process knows no {call.method}")

    def request(self, call: Call) -> InferenceRequest:
        """An inference's."""
        given = call.arguments
        return InferenceRequest(
            self._model(call),
            given["request_id"],
            priority=given.get("priority", 0),
            timeout=given.get("timeout", 0),
            inputs={tensor.name: tensor.array for tensor in given["inputs"]},
            parameters=given["parameters"] or {},
        )

    def result(self, call: Call, response: InferenceResponse) -> InferResult:
        """A response.

        Raises:
            PyTritonClientError: It is an error.
        """
        if response.error is not None:
            raise self.translate(call, response.error) from response.error
        return InferResult(response)

    def translate(self, call: Call, error: TritonError) -> PyTritonClientError:
        """The clients' error for one of the server's, as over a network."""
        text = str(error)
        if isinstance(error, InvalidArgumentError) and text == NOT_STARTED:
            return PyTritonClientConnectionError(f"{call.method} was not possible: {text}")
        if isinstance(error, UnavailableError) and "timeout expired" in text.lower():
            return PyTritonClientQueueTimeoutError(text)
        if isinstance(error, UnavailableError) or (isinstance(error, NotFoundError) and "unknown model" in text):
            return PyTritonClientServerUnavailableError(text)
        return PyTritonClientInferenceServerError(text)

    def timeout(self, call: Call) -> PyTritonClientTimeoutError:
        """The error for a call that has not ended in time."""
        return PyTritonClientTimeoutError(
            f"the server in this process did not answer {call.method} within {call.timeout_s:g} s; the request is "
            "cancelled"
        )

    def _model(self, call: Call) -> Model:
        version = call.arguments["model_version"]
        return self._server.model(call.arguments["model_name"], int(version) if version else LATEST)

    def _is_model_ready(self, call: Call) -> bool:
        try:
            return self._model(call).ready()
        except (NotFoundError, UnavailableError):
            return False

    def _index(self) -> list[dict[str, str]]:
        return [
            {"name": name, "version": str(version), "state": model.state or ""}
            for (name, version), model in self._server.models().items()
            if version != LATEST
        ]
