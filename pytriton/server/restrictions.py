"""Rules by which the server opens endpoints only to those who send a header."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.security import TRITON_ACCESS_HEADER, TritonSecurityConfig, check_endpoints

__all__ = ["Restrictions", "Rule"]

# The option of each protocol, and the prefix that its header has on the wire.
PROTOCOLS = {"http": ("http_restricted_api", ""), "grpc": ("grpc_restricted_protocol", "triton-grpc-protocol-")}


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
            PyTritonValidationError: It is not of that form, or names something else than endpoints. The value is not in
                the message, as the server would have it.
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

    def opens_as(self, other: Rule) -> bool:
        """Whether a client that sends this rule's header has sent the other's."""
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
        """What the server is to ask for.

        An endpoint has one rule. So the user's own rules take their endpoints out of the token's default ones. It is a
        clash if the endpoints of the token were chosen, too, and one is in both; or if a rule has the token's header
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

    def flags(self) -> list[str]:
        """Arguments of the server, beyond those for its configuration."""
        return [f"--{PROTOCOLS[name][0].replace('_', '-')}={rule.text()}" for name, rule in self.token.items()]

    def headers(self, protocol: str) -> dict[str, str]:
        """The headers that open every endpoint, for ``http`` or ``grpc``."""
        prefix = PROTOCOLS[protocol][1]
        rules = [side[protocol] for side in (self.own, self.token) if protocol in side]
        return {prefix + rule.header.lower(): rule.value for rule in rules}

    def header_of(self, endpoint: str, protocol: str) -> str | None:
        """The header that opens an endpoint, for ``http`` or ``grpc``; None if it is open."""
        rules = [side[protocol] for side in (self.own, self.token) if protocol in side]
        return next((rule.header for rule in rules if endpoint in rule.endpoints), None)

    def secrets(self) -> set[str]:
        """What nobody else may see."""
        return {rule.value for side in (self.own, self.token) for rule in side.values()}


def _token_rule(option: str, own: Rule | None, security: TritonSecurityConfig) -> Rule | None:
    endpoints, token = security.restricted_endpoints or [], security.access_token
    if not endpoints or token is None:
        return None
    rule = Rule(tuple(endpoints), TRITON_ACCESS_HEADER, token)
    if own is None:
        return rule
    both = ", ".join(name for name in endpoints if name in own.endpoints)
    if both and not security.is_default and not own.opens_as(rule):
        raise PyTritonValidationError(
            f"{option} and TritonSecurityConfig both restrict {both}, but an endpoint can ask for one header; name "
            "each endpoint in one of them"
        )
    rest = tuple(name for name in endpoints if name not in own.endpoints)
    if rest and own.header.lower() == TRITON_ACCESS_HEADER and not own.opens_as(rule):
        raise PyTritonValidationError(
            f"{option} wants the header {TRITON_ACCESS_HEADER} with another value than the access token, which "
            f"{', '.join(rest)} want; pass TritonSecurityConfig(access_token=...) with that value, or "
            "restricted_endpoints=[]"
        )
    return Rule(rest, TRITON_ACCESS_HEADER, token) if rest else None
