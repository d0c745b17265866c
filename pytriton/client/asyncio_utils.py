"""Functions on a bare tritonclient client for asyncio, for programs that use tritonclient itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytriton.client.arguments import check_headers, check_model, check_timeout
from pytriton.client.conversations import NETWORK_TIMEOUT_S, Conversation, Deadline, Sleep, drive_async
from pytriton.client.exceptions import PyTritonClientConnectionError, PyTritonClientTimeoutError
from pytriton.client.model_state import ModelState, model_state
from pytriton.client.tritonclients import adopt_async_client
from pytriton.client.waiting import wait_and_fetch, wait_for_model, wait_for_server
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "asyncio_get_model_config",
    "asyncio_get_model_state",
    "asyncio_wait_for_model_ready",
    "asyncio_wait_for_model_status_loaded",
    "asyncio_wait_for_server_ready",
]

DEFAULT_MODEL_TIMEOUT_S = 60.0

Headers = Mapping[str, str]


async def asyncio_get_model_state(
    client: Any, model_name: str, model_version: str | None = None, headers: Headers | None = None
) -> ModelState:
    """State of a model in the server's repository index; UNAVAILABLE if it is unknown.

    Args:
        client: A client of ``tritonclient.http.aio`` or ``tritonclient.grpc.aio``.
        model_name: Name of the model.
        model_version: Its version; None is the highest.
        headers: Sent with the call.

    Raises:
        PyTritonClientInferenceServerError: The server refused, or could not be reached.
        PyTritonClientTimeoutError: There was no answer within 60 s.
    """
    check_model(model_name, model_version)
    conversation = model_state(model_name, model_version, Deadline(NETWORK_TIMEOUT_S))
    return await drive_async(conversation, adopt_async_client(client, check_headers(headers)))


async def asyncio_get_model_config(
    client: Any,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = DEFAULT_MODEL_TIMEOUT_S,
    headers: Headers | None = None,
) -> TritonModelConfig:
    """Wait for a model, then fetch its configuration; both together within ``timeout_s``.

    The arguments and errors are those of :func:`asyncio_wait_for_model_ready`.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonModelConfigError: The configuration cannot be understood.
    """
    check_model(model_name, model_version)
    conversation = wait_and_fetch(
        model_name, model_version, check_timeout("timeout_s", timeout_s, DEFAULT_MODEL_TIMEOUT_S)
    )
    return await drive_async(conversation, adopt_async_client(client, check_headers(headers)))


async def asyncio_wait_for_server_ready(
    asyncio_client: Any, sleep_time_s: float, headers: Headers | None = None
) -> None:
    """Wait without a time limit until the server is live and ready; ``asyncio.wait_for`` bounds it.

    Args:
        asyncio_client: A client of ``tritonclient.http.aio`` or ``tritonclient.grpc.aio``.
        sleep_time_s: Seconds between two attempts.
        headers: Sent with every call.
    """
    conversation = wait_for_server(Deadline(math.inf), check_timeout("sleep_time_s", sleep_time_s, 1.0))
    await drive_async(conversation, adopt_async_client(asyncio_client, check_headers(headers)))


async def asyncio_wait_for_model_status_loaded(
    asyncio_client: Any,
    model_name: str,
    sleep_time_s: float,
    model_version: str | None = None,
    headers: Headers | None = None,
) -> None:
    """Wait without a time limit until the server's repository index lists a model as loaded.

    Args:
        asyncio_client: A client of ``tritonclient.http.aio`` or ``tritonclient.grpc.aio``.
        model_name: Name of the model.
        sleep_time_s: Seconds between two attempts.
        model_version: Its version; None is the highest.
        headers: Sent with every call.

    Raises:
        PyTritonClientInferenceServerError: The server was reached and refused, e.g. because a token is missing.
    """
    check_model(model_name, model_version)
    conversation = _wait_until_loaded(model_name, model_version, check_timeout("sleep_time_s", sleep_time_s, 1.0))
    await drive_async(conversation, adopt_async_client(asyncio_client, check_headers(headers)))


async def asyncio_wait_for_model_ready(
    asyncio_client: Any,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = DEFAULT_MODEL_TIMEOUT_S,
    headers: Headers | None = None,
) -> None:
    """Wait until a model can serve.

    Args:
        asyncio_client: A client of ``tritonclient.http.aio`` or ``tritonclient.grpc.aio``.
        model_name: Name of the model.
        model_version: Its version; None is the highest.
        timeout_s: Most seconds to wait; 60 by default.
        headers: Sent with every call.

    Raises:
        PyTritonClientModelUnavailableError: The server was reached, but had no such model in time.
        PyTritonClientTimeoutError: The model was not ready in time.
    """
    check_model(model_name, model_version)
    deadline = Deadline(check_timeout("timeout_s", timeout_s, DEFAULT_MODEL_TIMEOUT_S))
    transport = adopt_async_client(asyncio_client, check_headers(headers))
    await drive_async(wait_for_model(model_name, model_version, deadline), transport)


def _wait_until_loaded(model_name: str, model_version: str | None, interval_s: float) -> Conversation[None]:
    while True:
        try:
            if (yield from model_state(model_name, model_version, Deadline(NETWORK_TIMEOUT_S))) is ModelState.READY:
                return
        except (PyTritonClientConnectionError, PyTritonClientTimeoutError):
            pass  # the server may be starting
        yield Sleep(interval_s)
