"""Models that multiply, told apart by their answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tritonclient.http import InferenceServerClient

from pytriton.client import ModelClient
from pytriton.decorators import batch
from tests.server.arrays import filled
from tests.server.own_server import TENSORS
from tests.server.traffic import Traffic

IN, OUT = TENSORS


def times(number: float) -> Callable[..., Any]:
    """A callable that multiplies."""

    @batch
    def multiply(x: Any) -> Any:
        return [x * number]

    return multiply


def answer(traffic: Traffic, model: str) -> float:
    """What a model makes of 1."""
    return float(traffic.infer(model, filled(1))["y"][0, 0])


def answer_of_version(url: str, model: str, version: str | None) -> float:
    """What a version of a model makes of 1."""
    with ModelClient(url, model, version) as client:
        return float(client.infer_batch(filled(1))["y"][0, 0])


def is_served(url: str, model: str, version: str = "") -> bool:
    """Whether the server is ready for requests to a model, and accepts connections; over HTTP."""
    with InferenceServerClient(url.removeprefix("http://")) as client, suppress(ConnectionError):
        return bool(client.is_model_ready(model, version))
    return False
