"""Access to a server's endpoints: which headers they ask for, and how this process calls them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES
from pytriton.client.auth import Tls, TritonUrl, create_auth_headers, token_or_environment
from pytriton.client.conversations import Transport
from pytriton.client.grpc_transports import GrpcTransport
from pytriton.client.sync import open_transport
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.logs import get_logger
from pytriton.security import (
    ENDPOINT_GROUPS,
    METRICS,
    TRITON_ACCESS_HEADER,
    VALID_TRITON_ENDPOINTS,
    TritonSecurityConfig,
    check_endpoints,
)
from pytriton.server.launch import local_url
from pytriton.server.tls import trust_in_own_server, uses_tls

__all__ = [
    "Access",
    "Restrictions",
    "Rule",
    "beside_application",
    "check_metrics_rule",
]

LOGGER = get_logger(__name__)

# The option of each protocol, and the prefix that its header has on the wire.
PROTOCOLS = {"http": ("http_restricted_api", ""), "grpc": ("grpc_restricted_protocol", "triton-grpc-protocol-")}


class Access:
    """How this process calls a server: its URL, the headers to send and the certificates to trust.

    Args:
        url: Where this process reaches the server.
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
            private_url: Of the server's own HTTP endpoint behind the edge, which asks for nothing.

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
            access_token: Without one, that in ``PYTRITON_ACCESS_TOKEN``, if there is one.

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
        check_endpoints(option, endpoints, VALID_TRITON_ENDPOINTS if option.startswith("grpc") else ENDPOINT_GROUPS)
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

    def rule_of(self, group: str, protocol: str) -> Rule | None:
        """The rule of a group of endpoints, for ``http`` or ``grpc``; None if it is open."""
        return next((rule for rule in self.rules(protocol) if group in rule.endpoints), None)

    def rules(self, protocol: str) -> list[Rule]:
        """All rules of a protocol."""
        return [rules[protocol] for rules in (self.own, self.token) if protocol in rules]

    def headers(self, protocol: str) -> dict[str, str]:
        """The headers that open every endpoint, for ``http`` or ``grpc``."""
        prefix = PROTOCOLS[protocol][1]
        return {prefix + rule.header.lower(): rule.value for rule in self.rules(protocol)}

    def header_of(self, endpoint: str, protocol: str) -> str | None:
        """The header that opens an endpoint, for ``http`` or ``grpc``; None if it is open."""
        rule = self.rule_of(endpoint, protocol)
        return None if rule is None else rule.header

    def secrets(self) -> set[str]:
        """The values of all headers, which no other user may see."""
        return {rule.value for protocol in PROTOCOLS for rule in self.rules(protocol)}


def _token_rule(option: str, own: Rule | None, security: TritonSecurityConfig) -> Rule | None:
    token = security.access_token
    # gRPC has no metrics.
    endpoints = [name for name in security.restricted_endpoints or [] if name != METRICS or option.startswith("http")]
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


def beside_application(config: TritonConfig, security: TritonSecurityConfig) -> TritonSecurityConfig:
    """What is protected beside an app that asks for a token or for API keys: its models, on every protocol.

    If the user chose the endpoints, and left inference open, that is said in the log.

    Args:
        security: As :func:`checked_copy` made it.
    """
    if not isinstance(security, TritonSecurityConfig):
        return security  # which merge() refuses
    if security.is_default:
        security = copy(security)  # not replace(), which would forget that the choice was left to us
        security.restricted_endpoints = [*(security.restricted_endpoints or ()), "inference"]
        return security
    restrictions = Restrictions.merge(config, security)
    is_open = [
        name
        for protocol, name in (("http", "HTTP"), ("grpc", "gRPC"))
        if getattr(config, f"allow_{protocol}") is not False and restrictions.rule_of("inference", protocol) is None
    ]
    if is_open:
        LOGGER.warning(
            "the app asks for a token or an API key, but its models can be called without one by %s: add "
            "'inference' to TritonSecurityConfig.restricted_endpoints, or leave that out",
            " and ".join(is_open),
        )
    return security


def check_metrics_rule(restrictions: Restrictions, *, is_native: bool) -> None:
    """Raise PyTritonValidationError if the metrics shall be protected, and the edge does not serve them."""
    if not is_native and restrictions.rule_of(METRICS, "http") is not None:
        raise PyTritonValidationError(
            "only the edge can protect 'metrics', and the server's own endpoint serves them: leave "
            "'metrics' out of the restricted endpoints, and set metrics_address='127.0.0.1' or allow_metrics=False"
        )
