"""The certificates of a server's gRPC endpoint: checked before it starts, and trusted by our own calls."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError

__all__ = ["check_certificates", "own_trust", "uses_tls"]

LOGGER = logging.getLogger(__name__)

SERVER_FILES = ("grpc_server_cert", "grpc_server_key")
# Whether keys are long enough is the server's decision.
CIPHERS = "DEFAULT:@SECLEVEL=0"


def uses_tls(config: TritonConfig) -> bool:
    """Whether the gRPC endpoint is encrypted."""
    return config.allow_grpc is not False and bool(config.grpc_use_ssl or config.grpc_use_ssl_mutual)


def check_certificates(config: TritonConfig) -> None:
    """Fail before the server starts: it would only say that its port were in use.

    Raises:
        PyTritonValidationError: A file is missing or holds something else, or the key is another certificate's.
    """
    if uses_tls(config):
        _server_context(config)
    elif config.allow_grpc is not False and any(getattr(config, name) for name in SERVER_FILES):
        LOGGER.warning("gRPC is not encrypted: its certificate is used with grpc_use_ssl or grpc_use_ssl_mutual alone")


def own_trust(config: TritonConfig) -> tuple[dict[str, Any], str]:
    """How we, who know the server's certificate, call its encrypted endpoint.

    A server that demands clients' certificates gets its own one, provided that ``grpc_root_cert`` has signed it.

    Returns:
        Keyword arguments of tritonclient's gRPC client, and a name that the server's certificate has: it need not be
        that of the address.

    Raises:
        PyTritonValidationError: The server would refuse its own certificate.
    """
    chain, key = (str(getattr(config, name)) for name in SERVER_FILES)
    server, client = _server_context(config), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.set_ciphers(CIPHERS)
    client.load_verify_locations(chain)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC: a certificate of whom we trust is enough
    trust: dict[str, Any] = {"ssl": True, "root_certificates": chain}
    if config.grpc_use_ssl_mutual:
        client.load_cert_chain(chain, key, password="")
        trust.update(private_key=key, certificate_chain=chain)
    try:
        return trust, _name(_handshake(server, client))
    except ssl.SSLError as error:
        raise PyTritonValidationError(
            "HTTP is off, so that models have to be loaded over gRPC with TLS, and a trial of the server's own "
            f"certificate failed: {error}. Leave HTTP on, for this machine alone with http_address='127.0.0.1', or "
            "have grpc_root_cert hold the authority of grpc_server_cert, which must be valid for servers and clients"
        ) from error


def _server_context(config: TritonConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(CIPHERS)
    chain, key = (_existing(config, name) for name in SERVER_FILES)
    try:
        context.load_cert_chain(chain, key, password="")  # without a password, OpenSSL would ask at the terminal
    except (OSError, ValueError) as error:
        raise PyTritonValidationError(
            f"grpc_server_cert {chain} and grpc_server_key {key} cannot be used: {error}; give PEM files of a "
            "certificate and of its key, which is not encrypted"
        ) from error
    if config.grpc_use_ssl_mutual:
        root = _existing(config, "grpc_root_cert")
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(root)
        except OSError as error:
            raise PyTritonValidationError(
                f"grpc_root_cert {root} cannot be used: {error}; give a PEM file of the authorities of clients"
            ) from error
    return context


def _existing(config: TritonConfig, name: str) -> Path:
    path: Path | None = getattr(config, name)
    if path is None:
        option = "grpc_use_ssl_mutual" if config.grpc_use_ssl_mutual else "grpc_use_ssl"
        raise PyTritonValidationError(f"{option} needs {name}, the path of a PEM file")
    try:
        path.read_bytes()
    except OSError as error:
        raise PyTritonValidationError(f"{name} {path} cannot be read: {error.strerror}") from error
    return path


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Introduce one to the other in memory; returns the server's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for end in ends * 3:  # each has at most three turns
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return dict(ends[0].getpeercert() or {})


def _name(certificate: dict[str, Any]) -> str:
    names = [value for _, value in certificate.get("subjectAltName", ())]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return str(names[0]).replace("*", "any", 1) if names else ""
