"""What a server says of itself and its models, as far as it may be asked."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pytriton.client.auth import Tls, create_auth_headers
from pytriton.client.conversations import Call, Transport
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientTimeoutError,
)
from pytriton.client.model_state import parse_http_response
from pytriton.client.sync import open_transport
from pytriton.client.url import TritonUrl
from pytriton.server.statistics import ModelStatistics, parse_statistics

__all__ = ["ModelStatus", "ServerStatus", "ask_server"]

RESTRICTED = "is restricted"


@dataclass(frozen=True)
class ModelStatus:
    """One version of a model.

    Args:
        name: Of the model.
        version: Of the model.
        state: READY, LOADING, UNLOADING or UNAVAILABLE; empty if the server does not tell.
        statistics: None if the server does not tell, or has none.
    """

    name: str
    version: str
    state: str
    statistics: ModelStatistics | None


@dataclass(frozen=True)
class ServerStatus:
    """What a server has answered.

    Args:
        url: The server.
        live: It answers.
        ready: It and all its models can serve.
        name: It calls itself so; None if it was not to be learned.
        version: Likewise.
        models: Sorted by name and version; None if it does not tell.
        notes: Why something is missing, and what to do; one sentence each.
    """

    url: str
    live: bool
    ready: bool
    name: str | None
    version: str | None
    models: list[ModelStatus] | None
    notes: list[str]


def ask_server(url: str, access_token: str | None, tls: Tls | None, timeout_s: float) -> ServerStatus:
    """Ask all that the server answers. A server that cannot be reached is a status too.

    Args:
        url: As :meth:`TritonUrl.from_url` reads it.
        access_token: Of the server.
        tls: Encrypts the connection.
        timeout_s: Of each of the five calls.

    Raises:
        PyTritonClientValueError: The URL cannot be understood, or the token is empty.
    """
    server = TritonUrl.from_url(url)
    headers = {} if access_token is None else create_auth_headers(access_token, server.scheme)
    with closing(open_transport(server, headers, tls)) as transport:
        return _Conversation(server, transport, access_token is not None, timeout_s).status()


class _Conversation:
    def __init__(self, server: TritonUrl, transport: Transport, has_token: bool, timeout_s: float) -> None:
        self._server = server
        self._transport = transport
        self._has_token = has_token
        self._timeout_s = timeout_s
        self._reachable = True
        self._notes: list[str] = []

    def status(self) -> ServerStatus:
        live = bool(self._ask("whether it is live", "is_server_live"))
        ready = bool(self._ask("whether it is ready", "is_server_ready"))
        metadata = self._ask("its name and version", "get_server_metadata", **self._as_json()) or {}
        if metadata and not live and not self._notes:  # over HTTP, a refusal looks like a no
            self._notes.append(f"It answers, so its health is probably protected; {self._advice()}.")
        models = self._models()
        return ServerStatus(
            self._server.with_scheme, live, ready, metadata.get("name"), metadata.get("version"), models, self._notes
        )

    def _models(self) -> list[ModelStatus] | None:
        index = self._ask("the states of its models", "get_model_repository_index")
        answer = self._ask("its statistics", "get_inference_statistics", **self._as_json())
        if index is None and answer is None:
            return None
        statistics = {(each.name, str(each.version)): each for each in parse_statistics(answer or {})}
        states = parse_http_response(index or [])
        keys = sorted({*states, *statistics}, key=lambda key: (key[0], int(key[1])))
        return [
            ModelStatus(*key, state=states[key].value if key in states else "", statistics=statistics.get(key))
            for key in keys
        ]

    def _ask(self, what: str, method: str, **arguments: Any) -> Any:
        """The server's answer; None, with a note, if there is none."""
        if not self._reachable:
            return None
        try:
            return self._transport.call(Call(method, self._timeout_s, arguments))
        except PyTritonClientError as error:
            # What did not answer once would keep its user waiting again.
            self._reachable = not isinstance(error, (PyTritonClientConnectionError, PyTritonClientTimeoutError))
            protected = RESTRICTED in str(error)
            self._notes.append(f"It does not tell {what}: {self._advice()}." if protected else str(error))
            return None

    def _advice(self) -> str:
        if self._has_token:
            return "the token that was given is not the one it asks for"
        return (
            "it asks for its access token. Pass --token, or set PYTRITON_ACCESS_TOKEN; the program that serves has it "
            "from triton.get_access_token()"
        )

    def _as_json(self) -> dict[str, bool]:
        return {"as_json": True} if self._server.scheme == "grpc" else {}
