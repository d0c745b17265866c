"""Requests that have to fail, and what each has to fail with; among them good ones, which have to be answered."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import grpc
import numpy as np
from connections import GRPC_PATH
from payloads import ERRANT, MODEL
from tritonclient.grpc import service_pb2

from pytriton.client import AsyncioModelClient, ModelClient
from pytriton.client.exceptions import (
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelUnavailableError,
    PyTritonClientTimeoutError,
)

__all__ = ["make_bad_requests"]

GOOD, RAISES, SLEEPS_S = 0.0, -1.0, 0.3  # inputs of the model that errs
SHORT_S = 0.1
BESIDE = 4  # requests of each sort at once

_TENSOR = {"name": "INPUT", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
_TENSORS: dict[str, list[dict[str, Any]]] = {  # which no model takes
    "another dtype": [{**_TENSOR, "datatype": "FP64"}],
    "another rank": [{**_TENSOR, "shape": [1, 2, 1]}],
    "another name": [{**_TENSOR, "name": "OTHER"}],
    "one input too many": [_TENSOR, {**_TENSOR, "name": "OTHER"}],
    "no input": [],
    "too many rows": [{**_TENSOR, "shape": [1000, 1], "data": [1.0] * 1000}],
    "too few elements": [{**_TENSOR, "shape": [1, 3]}],
    "a negative shape": [{**_TENSOR, "shape": [1, -2]}],
}


def make_bad_requests(server: str, timeout_s: float) -> dict[str, Callable[[], str]]:
    """Functions that send a request each and return what is wrong with its outcome, nothing if it was as it has to be.

    Args:
        server: Its URL, of HTTP or gRPC.
        timeout_s: For whatever does not have to time out.
    """
    where = urlsplit(server)
    send = partial(_send_http if where.scheme == "http" else _send_grpc, where.netloc, timeout_s)
    found: dict[str, Callable[[], str]] = {name: partial(send, MODEL, each) for name, each in _TENSORS.items()}
    found["an unknown model"] = partial(send, "unknown", [_TENSOR])
    found["no message"] = partial(send, MODEL, None)
    if where.scheme == "http":
        found["half a request"] = partial(_send_half, where.netloc, timeout_s)
    found["a client of an unknown model"] = partial(_expect, _Missing, server, "unknown", GOOD, timeout_s, SHORT_S)
    found["an exception"] = partial(_expect, PyTritonClientInferenceServerError, server, ERRANT, RAISES, timeout_s)
    found["a timeout"] = partial(_expect, PyTritonClientTimeoutError, server, ERRANT, SLEEPS_S, SHORT_S, timeout_s)
    found["several at once"] = lambda: asyncio.run(_send_several(server, timeout_s))
    return found


_Missing = (PyTritonClientModelUnavailableError, PyTritonClientTimeoutError)


def _send_http(place: str, timeout_s: float, model: str, inputs: list[dict[str, Any]] | None) -> str:
    body = b'{"inputs":[' if inputs is None else json.dumps({"inputs": inputs}).encode()
    connection = http.client.HTTPConnection(place, timeout=timeout_s)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", body)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    with suppress(ValueError):
        if 400 <= answer.status <= 500 and json.loads(text)["error"]:  # Triton says 500 for some of them
            return ""
    return f"{answer.status} {text[:200]!r}"


def _send_half(place: str, timeout_s: float) -> str:
    """Go away in the middle of a request."""
    connection = http.client.HTTPConnection(place, timeout=timeout_s)
    try:
        connection.putrequest("POST", f"/v2/models/{MODEL}/infer")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders(b'{"inputs":[')
    finally:
        connection.close()
    return ""


def _send_grpc(place: str, timeout_s: float, model: str, inputs: list[dict[str, Any]] | None) -> str:
    message = b"\xff" * 16
    if inputs is not None:
        tensors = [{name: value for name, value in each.items() if name != "data"} for each in inputs]
        request = service_pb2.ModelInferRequest(model_name=model, inputs=tensors)
        request.raw_input_contents.extend(np.array(each["data"], np.float32).tobytes() for each in inputs)
        message = request.SerializeToString()
    with grpc.insecure_channel(place) as channel:
        try:
            answer = channel.unary_unary(GRPC_PATH)(message, timeout=timeout_s)
        except grpc.RpcError as error:
            lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            return f"{error.code()} {error.details()}" if error.code() in lost else ""
    return f"answered {answer[:200]!r}"


def _expect(
    expected: type[Exception] | tuple[type[Exception], ...],
    server: str,
    model: str,
    value: float,
    inference_timeout_s: float,
    init_timeout_s: float | None = None,
) -> str:
    """Call a model with a client of its own."""
    init_timeout_s = init_timeout_s or inference_timeout_s
    with ModelClient(server, model, init_timeout_s=init_timeout_s, inference_timeout_s=inference_timeout_s) as client:
        try:
            answer = client.infer_batch(np.full((1, 4), value, np.float32))
        except expected as error:
            return f"{error!r}" if model == ERRANT and value == RAISES and "asked to fail" not in str(error) else ""
        except PyTritonClientError as error:
            return f"{error!r}"
    return f"answered {answer}"


async def _send_several(server: str, timeout_s: float) -> str:
    """Requests that the server merges: good ones are answered, bad ones fail, and some are cancelled."""
    async with AsyncioModelClient(server, ERRANT, init_timeout_s=timeout_s, inference_timeout_s=timeout_s) as client:
        values = [GOOD, RAISES, SLEEPS_S] * BESIDE
        tasks = [asyncio.create_task(client.infer_batch(np.full((1, 4), value, np.float32))) for value in values]
        await asyncio.sleep(SHORT_S)
        for task, value in zip(tasks, values, strict=True):
            if value == SLEEPS_S:
                task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    for value, outcome in zip(values, found, strict=True):
        if value == GOOD and not (isinstance(outcome, dict) and np.array_equal(outcome["OUTPUT"], np.zeros((1, 4)))):
            return f"good one: {outcome!r}"
        if value == RAISES and "asked to fail" not in str(outcome):
            return f"one that raises: {outcome!r}"
        if value == SLEEPS_S and not isinstance(outcome, asyncio.CancelledError):
            return f"cancelled one: {outcome!r}"
    return ""
