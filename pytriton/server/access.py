"""Access to a server's endpoints: which headers and certificates they ask for, and how this process calls them."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES
from pytriton.client.auth import Tls, TritonUrl, create_auth_headers, token_or_environment
from pytriton.client.conversations import Transport
from pytriton.client.grpc_transports import GrpcTransport
from pytriton.client.sync import open_transport
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.security import TRITON_ACCESS_HEADER, TritonSecurityConfig, check_endpoints
from pytriton.server.launch import local_url

__all__ = ["Access", "Restrictions", "Rule", "check_certificates", "trust_in_own_server", "uses_tls"]

LOGGER = logging.getLogger(__name__)

# The option of each protocol, and the prefix that its header has on the wire.
PROTOCOLS = {"http": ("http_restricted_api", ""), "grpc": ("grpc_restricted_protocol", "triton-grpc-protocol-")}

CERTIFICATES = ("server_cert", "server_key")  # options of each protocol, with its name before
CIPHERS = "DEFAULT:@SECLEVEL=0"  # the server decides whether keys are long enough


class Access:
    """How this process calls a server: its URL, the headers to send and the certificates to trust.

    Args:
        url: Where this process reaches the server.
        headers: Sent with every call.
        trust: The certificates to trust and the name in the server's certificate, if it speaks TLS.
        inference_header: The header that inference needs, if that is known.
        public_url: Where others reach the server, if that is another URL.

    Attributes:
        url: As given, in its normal form.
        public_url: As given, or ``url``.
        headers: As given.
        inference_header: As given.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        trust: tuple[Tls, str] | None = None,
        inference_header: str | None = None,
        public_url: str | None = None,
    ) -> None:
        self._url = TritonUrl.from_url(url)
        self.url = self._url.with_scheme
        self.public_url = public_url or self.url
        self.headers = dict(headers)
        self.inference_header = inference_header
        self._trust = trust

    @classmethod
    def to_own(cls, config: TritonConfig, restrictions: Restrictions, private_url: str | None = None) -> Access:
        """Access to a server that this process launches.

        Args:
            config: Of the server.
            restrictions: What its endpoints ask for.
            private_url: Of the server's own HTTP endpoint behind the native front end, which asks for nothing.

        Raises:
            PyTritonValidationError: With HTTP off and mutual TLS, the server would not accept us.
        """
        url = local_url(config)
        if private_url is not None:
            return cls(private_url, {}, None, restrictions.header_of("inference", "http"), url)
        scheme = TritonUrl.from_url(url).scheme
        trust = trust_in_own_server(config) if scheme == "grpc" and uses_tls(config) else None
        return cls(url, restrictions.headers(scheme), trust, restrictions.header_of("inference", scheme))

    @classmethod
    def to_other(cls, url: str, access_token: str | None) -> Access:
        """Access to a server that another process launched.

        Args:
            url: Of the server.
            access_token: Of the server; without one, that in ``PYTRITON_ACCESS_TOKEN``, if there is one.

        Raises:
            PyTritonClientInvalidUrlError: The URL cannot be understood.
        """
        scheme = TritonUrl.from_url(url).scheme
        token = token_or_environment(access_token or None)
        return cls(url, create_auth_headers(token, scheme) if token else {})

    def connect(self) -> Transport:
        """A transport to the server, which the caller closes."""
        if self._trust is None:
            return open_transport(self._url, self.headers)
        tls, name = self._trust
        return GrpcTransport(self._url, self.headers, tls, DEFAULT_MAX_RESPONSE_BYTES, server_name=name)


# Headers: the server's restricted APIs


@dataclass(frozen=True)
class Rule:
    """Endpoints, and the header that opens them. The server takes several rules, but one per endpoint."""

    endpoints: tuple[str, ...]
    header: str
    value: str = field(repr=False)

    @classmethod
    def parse(cls, option: str, text: str) -> Rule:
        """Read a rule in the server's form.

        Args:
            option: Name of the option, for errors.
            text: ``<endpoint>[,<endpoint>...]:<header>=<value>``.

        Raises:
            PyTritonValidationError: It has another form, or names something else than endpoints. The message does not
                have the value.
        """
        names, colon, setting = text.partition(":")
        header, equals, value = setting.partition("=")
        endpoints = names.split(",")
        if not colon or not equals or not header or not value:
            raise PyTritonValidationError(
                f"{option} is not of the form '<endpoint>[,<endpoint>...]:<header>=<value>', for example "
                f"'statistics,logging:{TRITON_ACCESS_HEADER}=...'"
            )
        check_endpoints(option, endpoints)
        if len({*endpoints}) < len(endpoints):
            raise PyTritonValidationError(f"{option} names an endpoint twice: {names!r}")
        return cls(tuple(endpoints), header, value)

    def has_header_of(self, other: Rule) -> bool:
        """Whether both rules ask for the same header with the same value."""
        return (self.header.lower(), self.value) == (other.header.lower(), other.value)

    def text(self) -> str:
        """In the server's form."""
        return f"{','.join(self.endpoints)}:{self.header}={self.value}"


@dataclass(frozen=True)
class Restrictions:
    """The rules of one server: the user's own, and that of the access token for endpoints which those do not name.

    Args:
        own: The rules in the server's configuration, by protocol.
        token: The rules of the token, by protocol.
    """

    own: dict[str, Rule]
    token: dict[str, Rule]

    @classmethod
    def merge(cls, config: TritonConfig, security: TritonSecurityConfig) -> Restrictions:
        """The rules that follow from both configurations.

        An endpoint has one rule. So the user's own rules take their endpoints out of the token's default ones. It is a
        clash if the user also chose the endpoints of the token, and one is in both; or if a rule has the token's header
        with another value, of which a client can send but one. A rule with the same header and value is no clash.

        Raises:
            PyTritonValidationError: There is such a clash, a rule is not well-formed, or ``security`` is something
                else.
        """
        if not isinstance(security, TritonSecurityConfig):
            raise PyTritonValidationError(
                f"security_config must be a TritonSecurityConfig, got a {type(security).__name__}"
            )
        own: dict[str, Rule] = {}
        token: dict[str, Rule] = {}
        for protocol, (option, _) in PROTOCOLS.items():
            text = getattr(config, option)
            if text is not None:
                own[protocol] = Rule.parse(option, text)
            rule = _token_rule(option, own.get(protocol), security)
            if rule is not None:
                token[protocol] = rule
        return cls(own, token)

    def flags(self, protocols: Collection[str] = tuple(PROTOCOLS)) -> list[str]:
        """Arguments of the server, beyond those for its configuration.

        Args:
            protocols: Those whose rules the server itself has to know.
        """
        return [
            f"--{PROTOCOLS[name][0].replace('_', '-')}={rule.text()}"
            for name, rule in self.token.items()
            if name in protocols
        ]

    def rules(self, protocol: str) -> list[Rule]:
        """All rules of a protocol."""
        return [rules[protocol] for rules in (self.own, self.token) if protocol in rules]

    def headers(self, protocol: str) -> dict[str, str]:
        """The headers that open every endpoint, for ``http`` or ``grpc``."""
        prefix = PROTOCOLS[protocol][1]
        return {prefix + rule.header.lower(): rule.value for rule in self.rules(protocol)}

    def header_of(self, endpoint: str, protocol: str) -> str | None:
        """The header that opens an endpoint, for ``http`` or ``grpc``; None if it is open."""
        return next((rule.header for rule in self.rules(protocol) if endpoint in rule.endpoints), None)

    def secrets(self) -> set[str]:
        """The values of all headers, which no other user may see."""
        return {rule.value for protocol in PROTOCOLS for rule in self.rules(protocol)}


def _token_rule(option: str, own: Rule | None, security: TritonSecurityConfig) -> Rule | None:
    endpoints, token = security.restricted_endpoints or [], security.access_token
    if not endpoints or token is None:
        return None
    rule = Rule(tuple(endpoints), TRITON_ACCESS_HEADER, token)
    if own is None:
        return rule
    both = ", ".join(name for name in endpoints if name in own.endpoints)
    if both and not security.is_default and not own.has_header_of(rule):
        raise PyTritonValidationError(
            f"{option} and TritonSecurityConfig both restrict {both}, but an endpoint can ask for one header; name "
            "each endpoint in one of them"
        )
    others = tuple(name for name in endpoints if name not in own.endpoints)
    if others and own.header.lower() == TRITON_ACCESS_HEADER and not own.has_header_of(rule):
        raise PyTritonValidationError(
            f"{option} wants the header {TRITON_ACCESS_HEADER} with another value than the access token, which "
            f"{', '.join(others)} want; pass TritonSecurityConfig(access_token=...) with that value, or "
            "restricted_endpoints=[]"
        )
    return Rule(others, TRITON_ACCESS_HEADER, token) if others else None


# Certificates


def uses_tls(config: TritonConfig, protocol: str = "grpc") -> bool:
    """Whether an endpoint, ``http`` or ``grpc``, is encrypted."""
    is_on = getattr(config, f"allow_{protocol}") is not False
    return is_on and bool(getattr(config, f"{protocol}_use_ssl") or getattr(config, f"{protocol}_use_ssl_mutual"))


def check_certificates(config: TritonConfig) -> None:
    """Check the certificates before the server starts: the server would only say that its port is in use.

    Raises:
        PyTritonValidationError: A file is missing or holds something else, or the key is another certificate's.
    """
    for protocol, name in (("grpc", "gRPC"), ("http", "HTTP")):
        given = any(getattr(config, f"{protocol}_{option}") for option in CERTIFICATES)
        if uses_tls(config, protocol):
            _server_context(config, protocol)
        elif getattr(config, f"allow_{protocol}") is not False and given:
            LOGGER.warning(
                "%s is not encrypted: its certificate is used with %s_use_ssl or %s_use_ssl_mutual alone",
                name,
                protocol,
                protocol,
            )


def trust_in_own_server(config: TritonConfig) -> tuple[Tls, str]:
    """How this process, which has the server's certificate, calls the server's encrypted gRPC endpoint.

    A server that demands clients' certificates gets its own one, provided that ``grpc_root_cert`` has signed it.

    Returns:
        The certificates to trust, and a name that the server's certificate has, which need not be the host's.

    Raises:
        PyTritonValidationError: The server would refuse its own certificate.
    """
    chain, key = (str(getattr(config, f"grpc_{option}")) for option in CERTIFICATES)
    server, client = _server_context(config, "grpc"), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.set_ciphers(CIPHERS)
    client.load_verify_locations(chain)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC: it is enough to trust the certificate itself
    tls = Tls(root_certificates=chain)
    if config.grpc_use_ssl_mutual:
        client.load_cert_chain(chain, key, password="")
        tls = Tls(root_certificates=chain, private_key=key, certificate_chain=chain)
    try:
        certificate = _handshake(server, client)
    except ssl.SSLError as error:
        raise PyTritonValidationError(
            "HTTP is off, so that models have to be loaded over gRPC with TLS, and a trial of the server's own "
            f"certificate failed: {error}. Leave HTTP on, for this machine alone with http_address='127.0.0.1', or "
            "have grpc_root_cert hold the authority of grpc_server_cert, which must be valid for servers and clients"
        ) from error
    names = [value for _, value in certificate.get("subjectAltName", ())]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tls, str(names[0]).replace("*", "any", 1) if names else ""


def _server_context(config: TritonConfig, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(CIPHERS)
    chain, key = (_readable_file(config, protocol, option) for option in CERTIFICATES)
    try:
        context.load_cert_chain(chain, key, password="")  # without a password, OpenSSL would ask at the terminal
    except (OSError, ValueError) as error:
        raise PyTritonValidationError(
            f"{protocol}_server_cert {chain} and {protocol}_server_key {key} cannot be used: {error}; give PEM files "
            "of a certificate and of its key, which is not encrypted"
        ) from error
    if getattr(config, f"{protocol}_use_ssl_mutual"):
        root = _readable_file(config, protocol, "root_cert")
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(root)
        except OSError as error:
            raise PyTritonValidationError(
                f"{protocol}_root_cert {root} cannot be used: {error}; give a PEM file of the authorities of clients"
            ) from error
    return context


def _readable_file(config: TritonConfig, protocol: str, option: str) -> Path:
    name = f"{protocol}_{option}"
    path: Path | None = getattr(config, name)
    if path is None:
        wish = f"{protocol}_use_ssl"
        if getattr(config, f"{wish}_mutual"):
            wish += "_mutual"
        raise PyTritonValidationError(f"{wish} needs {name}, the path of a PEM file")
    try:
        path.read_bytes()
    except OSError as error:
        raise PyTritonValidationError(f"{name} {path} cannot be read: {error.strerror}") from error
    return path


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Let both shake hands in memory; returns the server's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for end in ends * 3:  # each side takes at most three steps
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return dict(ends[0].getpeercert() or {})
