"""Functions on a bare tritonclient client for asyncio, for programs that use tritonclient itself.

Clients are those of ``tritonclient.http.aio`` and ``tritonclient.grpc.aio``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytriton.client.aio import drive_async
from pytriton.client.arguments import check_headers, check_model, check_timeout
from pytriton.client.conversations import NETWORK_TIMEOUT_S, Conversation, Deadline, Sleep
from pytriton.client.exceptions import PyTritonClientConnectionError, PyTritonClientTimeoutError
from pytriton.client.repository_index import ModelState, model_state
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
    """State of a model in the server's repository index; as :func:`pytriton.client.utils.get_model_state`."""
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
    """Wait for a model, then fetch its configuration; as :func:`pytriton.client.utils.get_model_config`.

    Both together within ``timeout_s``, which is 60 by default.
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
    """Wait until a model can serve, 60 s by default; as :func:`pytriton.client.utils.wait_for_model_ready`."""
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
