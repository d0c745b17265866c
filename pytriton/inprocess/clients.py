"""Clients of models of a server in this process: those of :mod:`pytriton.client`, without a network.

They check, raise and return the same. Headers and compression have no effect here.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pytriton import client
from pytriton.client.session import BaseModelClient, ClientT
from pytriton.inprocess.exceptions import UnsupportedError
from pytriton.inprocess.server import Server
from pytriton.inprocess.transport import AsyncInprocessTransport, InprocessTransport, ProtocolAdapter

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]

NO_URL = "http://in-this-process"


class _InprocessClient(BaseModelClient):
    """Base of the clients of a server in this process.

    Args:
        server: The server.
        model_name: Name of the model.
        model_version: Version of the model; None uses the highest.
        settings: ``lazy_init``, ``init_timeout_s``, ``inference_timeout_s``, ``model_config`` and
            ``ensure_model_is_ready`` of :class:`~pytriton.client.session.BaseModelClient`, and those of the class
            itself.
    """

    def __init__(self, server: Server, model_name: str, model_version: str | None = None, **settings: Any) -> None:
        self._adapter = ProtocolAdapter(server)
        self._server = server
        super().__init__(NO_URL, model_name, model_version, **settings)

    def _make_transport(self) -> Any:
        return InprocessTransport(self._adapter)

    @classmethod
    def from_existing_client(cls: type[ClientT], existing_client: BaseModelClient) -> ClientT:
        """A new client of the same server and model, with the settings of another one."""
        if not isinstance(existing_client, _InprocessClient):
            raise TypeError(f"{existing_client!r} is no client of a server in this process")
        session = existing_client._session
        client = cls(
            existing_client._server,  # type: ignore[arg-type]
            session.model_name,
            session.model_version,
            init_timeout_s=session.init_timeout_s,
            inference_timeout_s=session.inference_timeout_s,
            model_config=session.known_config,
            ensure_model_is_ready=not session.model_ready,
            **(existing_client._own_settings() if isinstance(existing_client, cls) else {}),
        )
        client._options = existing_client._options
        return client

    def get_lib(self) -> ModuleType:
        """Tritonclient has no module for a server in this process.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("tritonclient has no module for a server in this process; use the server itself")

    def create_client_from_url(self, url: str, network_timeout_s: float | None = None) -> Any:
        """Tritonclient has no client of a server in this process.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("tritonclient has no client of a server in this process; use the server itself")


class _AsyncInprocessClient(_InprocessClient):
    def _make_transport(self) -> Any:
        return AsyncInprocessTransport(self._adapter)


class ModelClient(_InprocessClient, client.ModelClient):
    """:class:`pytriton.client.ModelClient` of a server in this process. For one thread at a time."""


class DecoupledModelClient(_InprocessClient, client.DecoupledModelClient):
    """:class:`pytriton.client.DecoupledModelClient` of a server in this process. For one thread at a time."""


class FuturesModelClient(_AsyncInprocessClient, client.FuturesModelClient):
    """:class:`pytriton.client.FuturesModelClient` of a server in this process."""


class AsyncioModelClient(_AsyncInprocessClient, client.AsyncioModelClient):
    """:class:`pytriton.client.AsyncioModelClient` of a server in this process."""


class AsyncioDecoupledModelClient(_AsyncInprocessClient, client.AsyncioDecoupledModelClient):
    """:class:`pytriton.client.AsyncioDecoupledModelClient` of a server in this process."""
