"""TLS of a server's endpoints: checks of its certificates, and what this process trusts when it calls the server."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from pytriton.client.auth import Tls
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.logs import get_logger
from pytriton.server.launch import is_for_this_machine

__all__ = [
    "check_application_tls",
    "check_certificates",
    "own_client_context",
    "trust_in_own_server",
    "uses_tls",
]

LOGGER = get_logger(__name__)

CERTIFICATES = ("server_cert", "server_key")  # options of each protocol, with its name before
CIPHERS = "DEFAULT:@SECLEVEL=0"  # the server decides whether keys are long enough


def uses_tls(config: TritonConfig, protocol: str = "grpc") -> bool:
    """Whether an endpoint, ``http`` or ``grpc``, is encrypted."""
    is_on = getattr(config, f"allow_{protocol}") is not False
    return is_on and bool(getattr(config, f"{protocol}_use_ssl") or getattr(config, f"{protocol}_use_ssl_mutual"))


def check_application_tls(config: TritonConfig, *, has_certificate: bool) -> None:
    """Check that the port of an app asks for what the server's HTTP port does.

    Without a certificate of its own, the app's port has the TLS of the HTTP port.

    Raises:
        PyTritonValidationError: HTTP asks for clients' certificates, which the app would not.
    """
    if has_certificate and uses_tls(config, "http") and config.http_use_ssl_mutual:
        raise PyTritonValidationError(
            "http_use_ssl_mutual asks for clients' certificates, and the app's own port, which has "
            "RestConfig.certificate, would serve the same models without one; leave RestConfig.certificate and key "
            "out, and the port has the TLS of the HTTP port"
        )


def check_certificates(config: TritonConfig) -> None:
    """Check the certificates before the server starts: the server would only say that its port is in use.

    Raises:
        PyTritonValidationError: A file is missing or holds something else, the key is another certificate's, or a
            port of a cloud would serve without certificates what needs one at the HTTP port.
    """
    if uses_tls(config, "http") and config.http_use_ssl_mutual and (config.allow_vertex_ai or config.allow_sagemaker):
        raise PyTritonValidationError(
            "http_use_ssl_mutual asks for clients' certificates, and the ports of Vertex AI and SageMaker, which these "
            "clouds call without TLS, would serve the same models without one; leave one of both out"
        )
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
    for protocol, name, other, name_of_other in (("http", "HTTP", "grpc", "gRPC"), ("grpc", "gRPC", "http", "HTTP")):
        address = str(getattr(config, f"{other}_address") or "")
        if (
            uses_tls(config, protocol)
            and getattr(config, f"{protocol}_use_ssl_mutual")
            and getattr(config, f"allow_{other}") is not False
            and not getattr(config, f"{other}_use_ssl_mutual")
            and not is_for_this_machine(address)
        ):
            LOGGER.warning(
                "%s asks for clients' certificates, and %s serves the same models without: set %s_use_ssl_mutual, "
                "%s_address='127.0.0.1' or allow_%s=False",
                name,
                name_of_other,
                *[other] * 3,
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
    tls = Tls(root_certificates=chain)
    if config.grpc_use_ssl_mutual:
        tls = Tls(root_certificates=chain, private_key=key, certificate_chain=chain)
    try:
        certificate = _handshake(_server_context(config, "grpc"), own_client_context(config))
    except ssl.SSLError as error:
        raise PyTritonValidationError(
            "HTTP is off, so that models have to be loaded over gRPC with TLS, and a trial of the server's own "
            f"certificate failed: {error}. Leave HTTP on, for this machine alone with http_address='127.0.0.1', or "
            "have grpc_root_cert hold the authority of grpc_server_cert, which must be valid for servers and clients"
        ) from error
    names = [value for _, value in certificate.get("subjectAltName", ())]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tls, str(names[0]).replace("*", "any", 1) if names else ""


def own_client_context(config: TritonConfig) -> ssl.SSLContext:
    """TLS of a client of the server's encrypted gRPC endpoint, as :func:`trust_in_own_server` describes it."""
    chain, key = (str(getattr(config, f"grpc_{option}")) for option in CERTIFICATES)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.set_ciphers(CIPHERS)
    client.set_alpn_protocols(["h2"])
    client.load_verify_locations(chain)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC: it is enough to trust the certificate itself
    if config.grpc_use_ssl_mutual:
        client.load_cert_chain(chain, key, password="")
    return client


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
        switch = f"{protocol}_use_ssl"
        if getattr(config, f"{switch}_mutual"):
            switch += "_mutual"
        raise PyTritonValidationError(f"{switch} needs {name}, the path of a PEM file")
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
