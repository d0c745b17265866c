"""What synchronous and asynchronous model clients have in common."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pytriton.client.arguments import (
    DEFAULT_MAX_RESPONSE_BYTES,
    DEFAULT_OPTIONS,
    InferRequest,
    Parameters,
    check_headers,
    check_max_response_bytes,
    check_metadata,
)
from pytriton.client.auth import Tls, create_auth_headers, token_or_environment
from pytriton.client.session import ModelSession
from pytriton.client.tritonclients import bare_client
from pytriton.client.url import TritonUrl
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["BaseModelClient"]

ClientT = TypeVar("ClientT", bound="BaseModelClient")


class BaseModelClient(ABC):
    """Settings and state of a client of one model; a subclass has at least :meth:`get_lib`.

    Args:
        url: Server, e.g. ``localhost``, ``http://localhost:8000`` or ``grpc://localhost:8001``; see
            :meth:`TritonUrl.from_url`.
        model_name: Name of the model.
        model_version: Version of the model; None uses the highest.
        lazy_init: True connects at the first use. False waits for the model and fetches its configuration at once.
        init_timeout_s: Bounds waiting for server and model and fetching the configuration, all together; 300 s.
        inference_timeout_s: Bounds one inference, from the first byte sent to the last one received; 60 s.
        model_config: The model's configuration, if known; it is not fetched then.
        ensure_model_is_ready: False together with ``model_config`` does not wait for the model either.
        access_token: Token of a server with restricted endpoints; sent with every call. None takes the one in the
            environment variable ``PYTRITON_ACCESS_TOKEN``, if there is one.
        tls: Encrypts the connection; None does not encrypt. The URL's scheme stays ``http`` or ``grpc``.
        max_response_bytes: The longest response to take, as it travels and after decompression; 4 GiB by default, None
            for no limit. The limit of gRPC is 2 GiB. A longer response is a
            :class:`PyTritonClientInferenceServerError`, and over HTTP ends the connection.

    Raises:
        PyTritonClientInvalidUrlError: The URL cannot be understood.
        PyTritonClientValueError: Another argument is wrong.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        lazy_init: bool = True,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        model_config: TritonModelConfig | None = None,
        ensure_model_is_ready: bool = True,
        access_token: str | None = None,
        tls: Tls | None = None,
        max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> None:
        self._url = TritonUrl.from_url(url)
        self._lazy_init = lazy_init
        self._access_token = token = token_or_environment(access_token)
        self._tls = tls
        self._max_response_bytes = check_max_response_bytes(max_response_bytes)
        self._options = DEFAULT_OPTIONS
        self._headers = {} if token is None else create_auth_headers(token, self._url.scheme)
        self._session = ModelSession(
            model_name,
            model_version,
            init_timeout_s=init_timeout_s,
            inference_timeout_s=inference_timeout_s,
            model_config=model_config,
            model_ready=model_config is not None and not ensure_model_is_ready,
        )
        self._open()

    def _open(self) -> None:  # noqa: B027 (a class that has get_lib() alone makes no calls)
        """Make the transport, and with ``lazy_init=False`` wait for the model, if the class can wait here."""

    @classmethod
    def from_existing_client(cls: type[ClientT], existing_client: BaseModelClient) -> ClientT:
        """A new client with the settings of another one, and with the model's configuration if that one knows it."""
        session = existing_client._session
        client = cls(
            existing_client._url.with_scheme,
            session.model_name,
            session.model_version,
            init_timeout_s=session.init_timeout_s,
            inference_timeout_s=session.inference_timeout_s,
            model_config=session.known_config,
            ensure_model_is_ready=not session.model_ready,
            access_token=existing_client._access_token,
            tls=existing_client._tls,
            max_response_bytes=existing_client._max_response_bytes,
            **(existing_client._own_settings() if isinstance(existing_client, cls) else {}),
        )
        client._options = existing_client._options
        return client

    def _own_settings(self) -> dict[str, Any]:
        """Arguments that only this class's constructor has."""
        return {}

    def with_options(self: ClientT, **changes: Any) -> ClientT:
        """A view of this client whose requests have other options.

        It shares the connection and the model's configuration with this client. Closing either closes both. ::

            urgent = client.with_options(priority=1)
            urgent.infer_sample(x)

        Args:
            changes: Fields of :class:`RequestOptions` to set; the others stay as they are here.

        Raises:
            PyTritonClientValueError: A value is out of its range or has another type.
            TypeError: An option does not exist.
        """
        view = copy.copy(self)
        view._options = replace(self._options, **changes)
        return view

    def _request(
        self,
        inputs: Sequence[Any],
        named_inputs: Mapping[str, Any],
        parameters: Parameters,
        headers: Parameters,
        *,
        sample: bool,
    ) -> InferRequest:
        """One inference, with this client's options."""
        if headers and self._url.scheme == "grpc":
            check_metadata(check_headers(headers))
        return InferRequest(inputs, named_inputs, parameters, headers, sample, self._options)

    @abstractmethod
    def get_lib(self) -> Any:
        """The tritonclient module for the URL's scheme."""

    def create_client_from_url(self, url: str, network_timeout_s: float | None = None) -> Any:
        """A bare client of the module that :meth:`get_lib` returns; the caller closes it.

        Args:
            url: Server, as :meth:`TritonUrl.from_url` reads it.
            network_timeout_s: As for :func:`pytriton.client.utils.create_client_from_url`.
        """
        return bare_client(self.get_lib(), TritonUrl.from_url(url), network_timeout_s)
