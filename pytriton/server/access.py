"""How this process itself calls a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from pytriton.client.auth import create_auth_headers, token_or_environment
from pytriton.client.grpc_protocol import channel_options
from pytriton.client.tritonclients import control_client, load_lib
from pytriton.client.url import TritonUrl
from pytriton.config import TritonConfig
from pytriton.server.certificates import own_trust, uses_tls
from pytriton.server.launch import local_url
from pytriton.server.restrictions import Restrictions

__all__ = ["Access"]

CONVERSATION_TIMEOUT_S = 600.0


class Access:
    """Opens the server's endpoints to us, whatever protects them.

    Args:
        url: Where we reach the server.
        headers: To be sent with every call.
        trust: Arguments for tritonclient's gRPC client and the name in the server's certificate, if it speaks TLS.
        inference_header: Which header inference needs, as far as is known.

    Attributes:
        url: As given, in its normal form.
        headers: As given.
        inference_header: As given.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        trust: tuple[dict[str, Any], str] | None = None,
        inference_header: str | None = None,
    ) -> None:
        self._url = TritonUrl.from_url(url)
        self.url = self._url.with_scheme
        self.headers = dict(headers)
        self.inference_header = inference_header
        self._trust = trust

    @classmethod
    def to_own(cls, config: TritonConfig, restrictions: Restrictions) -> Access:
        """To a server that we launch.

        Raises:
            PyTritonValidationError: With HTTP off and mutual TLS, the server would not accept us.
        """
        url = local_url(config)
        scheme = TritonUrl.from_url(url).scheme
        trust = own_trust(config) if scheme == "grpc" and uses_tls(config) else None
        return cls(url, restrictions.headers(scheme), trust, restrictions.header_of("inference", scheme))

    @classmethod
    def to_other(cls, url: str, access_token: str | None) -> Access:
        """To a server that somebody else launched.

        Args:
            url: Of the server.
            access_token: Of the server; without one, that in ``PYTRITON_ACCESS_TOKEN``, if there is one.

        Raises:
            PyTritonClientInvalidUrlError: The URL cannot be understood.
        """
        scheme = TritonUrl.from_url(url).scheme
        token = token_or_environment(access_token or None)
        return cls(url, create_auth_headers(token, scheme) if token else {})

    @contextmanager
    def client(self, timeout_s: float = CONVERSATION_TIMEOUT_S) -> Iterator[Any]:
        """An ``InferenceServerClient`` for one conversation, which over HTTP ends after ``timeout_s``."""
        with closing(self._connect(timeout_s)) as client:
            yield client

    def _connect(self, timeout_s: float) -> Any:
        if self._trust is None:
            return control_client(self._url, timeout_s)
        arguments, name = self._trust
        options = [*channel_options(), ("grpc.ssl_target_name_override", name)]
        return load_lib("grpc").InferenceServerClient(self._url.without_scheme, channel_args=options, **arguments)
