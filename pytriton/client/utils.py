"""Functions on a bare tritonclient client, for programs that use tritonclient itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytriton.client.arguments import check_headers, check_model, check_timeout
from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import NETWORK_TIMEOUT_S, Deadline
from pytriton.client.repository_index import ModelState, model_state, parse_grpc_response, parse_http_response
from pytriton.client.session import DEFAULT_INIT_TIMEOUT_S
from pytriton.client.sync import drive
from pytriton.client.tritonclients import adopt_client, bare_client, load_lib
from pytriton.client.waiting import LATEST_MODEL_VERSION, wait_and_fetch, wait_for_model, wait_for_server
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "LATEST_MODEL_VERSION",
    "ModelState",
    "TritonUrl",
    "create_client_from_url",
    "get_model_config",
    "get_model_state",
    "parse_grpc_response",
    "parse_http_response",
    "wait_for_model_ready",
    "wait_for_server_ready",
]

DEFAULT_SERVER_TIMEOUT_S = 60.0

Headers = Mapping[str, str]


def create_client_from_url(url: str, network_timeout_s: float | None = None) -> Any:
    """Make a bare tritonclient client; the caller closes it.

    Args:
        network_timeout_s: For HTTP, bounds connecting, and every wait for data; None is tritonclient's default of 60.

    Returns:
        ``tritonclient.http.InferenceServerClient`` or ``tritonclient.grpc.InferenceServerClient``.

    Raises:
        PyTritonClientInvalidUrlError: The URL cannot be understood.

    Warns:
        NotSupportedTimeoutWarning: A timeout was given for gRPC, where only single calls have one.
    """
    parsed = TritonUrl.from_url(url)
    return bare_client(load_lib(parsed.scheme), parsed, network_timeout_s)


def wait_for_server_ready(client: Any, timeout_s: float | None = None, headers: Headers | None = None) -> None:
    """Wait until the server is live and ready.

    Args:
        client: An HTTP or gRPC client of tritonclient.
        timeout_s: Most seconds to wait; 60 by default.
        headers: Sent with every call.

    Raises:
        PyTritonClientTimeoutError: It was not ready in time.
    """
    deadline = Deadline(check_timeout("timeout_s", timeout_s, DEFAULT_SERVER_TIMEOUT_S))
    drive(wait_for_server(deadline), adopt_client(client, check_headers(headers)))


def wait_for_model_ready(
    client: Any,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = None,
    headers: Headers | None = None,
) -> None:
    """Wait until a model can serve.

    Args:
        client: An HTTP or gRPC client of tritonclient.
        model_version: Its version; None is the highest.
        timeout_s: Most seconds to wait; 300 by default.
        headers: Sent with every call.

    Raises:
        PyTritonClientModelUnavailableError: The server was reached, but had no such model in time.
        PyTritonClientTimeoutError: The model was not ready in time.
    """
    check_model(model_name, model_version)
    deadline = Deadline(check_timeout("timeout_s", timeout_s, DEFAULT_INIT_TIMEOUT_S))
    drive(wait_for_model(model_name, model_version, deadline), adopt_client(client, check_headers(headers)))


def get_model_config(
    client: Any,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = None,
    headers: Headers | None = None,
) -> TritonModelConfig:
    """Wait for a model, then fetch its configuration; both together within ``timeout_s``.

    The arguments and errors are those of :func:`wait_for_model_ready`.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonModelConfigError: The configuration cannot be understood.
    """
    check_model(model_name, model_version)
    limit_s = check_timeout("timeout_s", timeout_s, DEFAULT_INIT_TIMEOUT_S)
    return drive(wait_and_fetch(model_name, model_version, limit_s), adopt_client(client, check_headers(headers)))


def get_model_state(
    client: Any, model_name: str, model_version: str | None = None, headers: Headers | None = None
) -> ModelState:
    """State of a model in the server's repository index; UNAVAILABLE if it is unknown.

    Args:
        client: An HTTP or gRPC client of tritonclient.
        model_version: Its version; None is the highest.
        headers: Sent with the call.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonClientTimeoutError: There was no answer within 60 s.
    """
    check_model(model_name, model_version)
    conversation = model_state(model_name, model_version, Deadline(NETWORK_TIMEOUT_S))
    return drive(conversation, adopt_client(client, check_headers(headers)))
