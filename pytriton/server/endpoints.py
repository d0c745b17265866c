"""The endpoints of a server: where clients on this machine reach them, and who can reach what of them with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytriton.client.auth import TritonUrl
from pytriton.config import TritonConfig
from pytriton.constants import GRPC_PREFIX
from pytriton.exceptions import PyTritonValidationError
from pytriton.security import (
    APPLICATION_ROUTES,
    DEFAULT_PROTECTED_ENDPOINTS,
    GRPC_CALLS,
    HTTP_ROUTES,
    METRICS,
    TRITON_ACCESS_HEADER,
)
from pytriton.server.access import Access, Restrictions, Rule
from pytriton.server.launch import ANY_ADDRESS, UNIX, endpoints, has_one_port, local_host, socket_path
from pytriton.server.tls import uses_tls

__all__ = [
    "APPLICATION",
    "CLOSED",
    "OPEN",
    "TOKEN",
    "Exposure",
    "ServerEndpoints",
    "application_is_everywhere",
    "check_one_port",
    "exposures",
    "table",
]


@dataclass(frozen=True)
class ServerEndpoints:
    """The endpoints of a server.

    Attributes:
        http: URL of HTTP, such as ``http://127.0.0.1:8000``; None if it is off.
        grpc: URL of gRPC, such as ``grpc://127.0.0.1:8001``; None if it is off, encrypted, or at a
            Unix socket.
        metrics: URL of the metrics' page; None if it is off, or not known.
        http_headers: Headers of requests over HTTP.
        grpc_headers: Metadata of requests over gRPC.
        rules: What the endpoints ask for over HTTP. Whoever passes requests on with these headers has to ask the same.
        public: URL for clients, where ``http`` is a socket of our own; empty if it is not.
        is_encrypted: Whether clients need TLS there.
    """

    http: str | None = None
    grpc: str | None = None
    metrics: str | None = None
    http_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    grpc_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    rules: tuple[Rule, ...] = ()
    public: str = ""
    is_encrypted: bool = False

    @property
    def access_token(self) -> str | None:
        """The server's access token, if its rules or headers have one."""
        for rule in self.rules:
            if rule.header.lower() == TRITON_ACCESS_HEADER:
                return rule.value
        return self.http_headers.get(TRITON_ACCESS_HEADER) or self.grpc_headers.get(GRPC_PREFIX + TRITON_ACCESS_HEADER)

    @classmethod
    def of_own(
        cls, config: TritonConfig, restrictions: Restrictions, private_url: str | None = None
    ) -> ServerEndpoints:
        """Those of a server that this process launches; it need not run yet.

        Args:
            private_url: Of the edge's own socket, which asks for nothing.
        """
        urls = {
            name: f"{'grpc' if name == 'grpc_port' else 'http'}://{local_host(address)}:{port}"
            for name, (address, port) in endpoints(config).items()
            if not socket_path(address)
        }
        if path := socket_path(config.http_address or ""):
            urls["http_port"] = TritonUrl.of_socket(path).with_scheme
        metrics = urls.get("metrics_port")
        return cls(
            private_url or urls.get("http_port"),
            None if uses_tls(config) else urls.get("grpc_port"),
            f"{metrics}/metrics" if metrics else None,
            {} if private_url else restrictions.headers("http"),
            restrictions.headers("grpc"),
            tuple(restrictions.rules("http")),
            (urls.get("http_port") or urls.get("grpc_port") or "") if private_url else "",
            uses_tls(config, "http" if "http_port" in urls else "grpc"),
        )

    @classmethod
    def of_other(cls, url: str, access_token: str | None = None) -> ServerEndpoints:
        """The one endpoint of a server that another process launched.

        Args:
            access_token: Without one, that in ``PYTRITON_ACCESS_TOKEN``, if there is one.

        Raises:
            PyTritonClientInvalidUrlError: The URL cannot be understood.
        """
        return cls.of_access(Access.to_other(url, access_token))

    @classmethod
    def of_access(cls, access: Access) -> ServerEndpoints:
        """The endpoint that an access is to; what the token opens there is taken to be what it does by default."""
        if TritonUrl.from_url(access.url).scheme == "grpc":
            found = cls(grpc=access.url, grpc_headers=access.headers)
        else:
            found = cls(http=access.url, http_headers=access.headers)
        if (token := found.access_token) is None:
            return found
        return replace(found, rules=(Rule(tuple(DEFAULT_PROTECTED_ENDPOINTS), TRITON_ACCESS_HEADER, token),))


OPEN, TOKEN, CLOSED, CERTIFICATE = "open", "token", "closed", "certificate"
APPLICATION = "app"
ANY_ADDRESSES = (ANY_ADDRESS, "::")


@dataclass(frozen=True)
class Exposure:
    """Routes of one kind at one port or socket.

    Attributes:
        name: Of the routes: ``HTTP``, ``gRPC``, ``metrics``, ``app``, ``Vertex AI`` or ``SageMaker``.
        address: Address and port, or ``unix:`` and a path.
        tls: Empty without TLS; else ``TLS``, or ``mutual TLS``, which asks for clients' certificates.
        needs: What each group of endpoints asks for: ``open``, ``token``, ``key``, ``token or key``, ``header NAME``,
            or ``closed`` for commands where there is no token. With mutual TLS, ``certificate`` comes before it.
    """

    name: str
    address: str
    tls: str
    needs: Mapping[str, str]


def application_is_everywhere(http_address: str, own: str) -> bool:
    """Whether the routes of an app are at the server's HTTP port too, so that none get to other interfaces."""
    return http_address.startswith(UNIX) or own in (http_address, *ANY_ADDRESSES)


def exposures(
    config: TritonConfig,
    restrictions: Restrictions,
    *,
    is_native: bool,
    application: tuple[str, int, bool] | None = None,
    needs: Callable[[str], str] = lambda _: OPEN,
) -> list[Exposure]:
    """All ports and sockets of a server, with what they ask for.

    Args:
        is_native: Whether the edge serves HTTP.
        application: Address and port of the app, and whether it has a certificate of its own; None without one.
        needs: What a group of the app asks for.
    """
    found: list[Exposure] = []
    http_tls = _tls_of(config, "http")
    of_v2 = sorted({group for _, _, group in HTTP_ROUTES})
    of_sagemaker = ["health", "inference"] if is_native else ["health", "inference", "model-repository"]
    groups = {
        "http_port": ("HTTP", of_v2),
        "grpc_port": ("gRPC", sorted({*GRPC_CALLS.values()})),
        "metrics_port": ("metrics", [METRICS]),
        "sagemaker_port": ("SageMaker", of_sagemaker),
        "vertex_ai_port": ("Vertex AI", of_v2),  # where a header leads to any path
    }
    for port, (address, number) in endpoints(config).items():
        name, names = groups[port]
        protocol = "grpc" if name == "gRPC" else "http"
        tls = _tls_of(config, protocol) if name in ("HTTP", "gRPC") else ""
        asks = is_native or name in ("HTTP", "gRPC")  # Triton's own further ports ask for nothing
        if name == "HTTP" and config.http_metrics:
            names = [*names, METRICS]
        own = {group: _need(restrictions, group, protocol) if asks else OPEN for group in names}
        found.append(Exposure(name, _shown(address, number), tls, _with_certificate(own, tls)))
    if application is not None:
        address, number, has_certificate = application
        own = {name: needs(name) for name in sorted({each.group for each in APPLICATION_ROUTES.values() if each.group})}
        tls = "TLS" if has_certificate else http_tls
        places = [(_shown(address, number), tls)]
        http = endpoints(config).get("http_port")
        if is_native and not has_certificate and http and application_is_everywhere(http[0], address):
            places.append((_shown(*http), http_tls))
        found += [Exposure(APPLICATION, place, tls, _with_certificate(own, tls)) for place, tls in places]
    return found


def check_one_port(config: TritonConfig, restrictions: Restrictions) -> None:
    """Check that HTTP and gRPC ask for the same where they come to one port.

    Raises:
        PyTritonValidationError: One of them is encrypted otherwise, or asks for another header.
    """
    if not has_one_port(config):
        return
    what = f"HTTP and gRPC are both at {_shown(*endpoints(config)['http_port'])}"
    http, grpc = _tls_of(config, "http"), _tls_of(config, "grpc")
    if http != grpc:
        raise PyTritonValidationError(
            f"{what}, where HTTP has {http or 'no TLS'} and gRPC {grpc or 'no TLS'}: set http_use_ssl and "
            "http_use_ssl_mutual as grpc_use_ssl and grpc_use_ssl_mutual, or choose another grpc_port"
        )
    files = ["server_cert", "server_key"] if http else []
    files += ["root_cert"] if http == "mutual TLS" else []
    for name in files:
        if getattr(config, f"http_{name}") != getattr(config, f"grpc_{name}"):
            raise PyTritonValidationError(
                f"{what}, which has one certificate: give http_{name} and grpc_{name} the same file, or choose another "
                "grpc_port"
            )
    for group in sorted({*GRPC_CALLS.values()}):
        rule, other = restrictions.rule_of(group, "http"), restrictions.rule_of(group, "grpc")
        if rule is not other and (rule is None or other is None or not rule.has_header_of(other)):
            needs = _need(restrictions, group, "http"), _need(restrictions, group, "grpc")
            raise PyTritonValidationError(
                f"{what}, where {group} is restricted otherwise over HTTP ({needs[0]}) than over gRPC ({needs[1]}"
                f"{', with another value' if needs[0] == needs[1] else ''}): set http_restricted_api and "
                "grpc_restricted_protocol alike, or choose another grpc_port"
            )


def _need(restrictions: Restrictions, group: str, protocol: str) -> str:
    rule = restrictions.rule_of(group, protocol)
    if rule is None:
        return OPEN
    return TOKEN if rule.header.lower() == TRITON_ACCESS_HEADER else f"header {rule.header}"


def _tls_of(config: TritonConfig, protocol: str) -> str:
    if not uses_tls(config, protocol):
        return ""
    return "mutual TLS" if getattr(config, f"{protocol}_use_ssl_mutual") else "TLS"


def _with_certificate(needs: Mapping[str, str], tls: str) -> dict[str, str]:
    if tls != "mutual TLS":
        return dict(needs)
    return {
        group: need if need == CLOSED else CERTIFICATE if need == OPEN else f"{CERTIFICATE}, {need}"
        for group, need in needs.items()
    }


def _shown(address: str, port: int) -> str:
    if address.startswith(UNIX):
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def table(found: Sequence[Exposure]) -> str:
    """The exposures as text: a line for each, then what each group asks for there; a dash where it has no routes."""
    lines = [
        f"[{number}] {each.name:<11}{each.address:<24} {each.tls or 'no TLS'}" for number, each in enumerate(found, 1)
    ]
    groups = sorted({group for each in found for group in each.needs})
    columns = [["", *(f"[{number}]" for number in range(1, len(found) + 1))]]
    columns += [[group, *(each.needs.get(group, "-") for each in found)] for group in groups]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    rows = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in columns]
    return "\n".join([*lines, "", *rows])
