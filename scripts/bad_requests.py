"""Requests that have to fail, and what each has to fail with; among them good ones, which have to be answered."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import grpc
import numpy as np
from connections import GRPC_PATH
from payloads import ERRANT, MODEL
from tritonclient.grpc import service_pb2

from pytriton.client import AsyncioModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientTimeoutError

__all__ = ["make_bad_requests"]

GOOD, RAISES, SLEEPS_S, SHORT_S = 0.0, -1.0, 0.3, 0.1  # inputs of the model that errs, and a timeout
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
    found["several at once"] = lambda: asyncio.run(_send_several(server, timeout_s))
    return found


def _send_http(place: str, timeout_s: float, model: str, inputs: list[dict[str, Any]] | None) -> str:
    body = b'{"inputs":[' if inputs is None else json.dumps({"inputs": inputs}).encode()
    with closing(http.client.HTTPConnection(place, timeout=timeout_s)) as connection:
        connection.request("POST", f"/v2/models/{model}/infer", body)
        answer = connection.getresponse()
        text = answer.read()
    with suppress(ValueError):
        if 400 <= answer.status <= 500 and json.loads(text)["error"]:  # Triton says 500 for some of them
            return ""
    return f"{answer.status} {text[:200]!r}"


def _send_half(place: str, timeout_s: float) -> str:
    """Go away in the middle of a request."""
    with closing(http.client.HTTPConnection(place, timeout=timeout_s)) as connection:
        connection.putrequest("POST", f"/v2/models/{MODEL}/infer")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders(b'{"inputs":[')
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


async def _send_several(server: str, timeout_s: float) -> str:
    """Requests that the server merges: good ones are answered, bad ones fail, some time out, some are cancelled."""
    options = {"init_timeout_s": timeout_s}
    async with (
        AsyncioModelClient(server, ERRANT, **options, inference_timeout_s=timeout_s) as patient,
        AsyncioModelClient(server, ERRANT, **options, inference_timeout_s=SHORT_S) as hasty,
    ):
        sorts = [(patient, GOOD), (patient, RAISES), (patient, SLEEPS_S), (hasty, SLEEPS_S)] * BESIDE
        tasks = [asyncio.create_task(each.infer_batch(np.full((1, 4), value, np.float32))) for each, value in sorts]
        await asyncio.sleep(SHORT_S)
        for task in tasks[2::4]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    for position, outcome in enumerate(found):
        right = (
            isinstance(outcome, dict) and np.array_equal(outcome["OUTPUT"], np.zeros((1, 4))),
            isinstance(outcome, PyTritonClientInferenceServerError) and "asked to fail" in str(outcome),
            isinstance(outcome, asyncio.CancelledError),
            isinstance(outcome, PyTritonClientTimeoutError),
        )
        if not right[position % 4]:
            return f"input {sorts[position][1]}: {outcome!r}"
    return ""
