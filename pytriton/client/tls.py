"""Trust between client and server: certificates and keys, in the forms that the libraries take."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytriton.client.exceptions import PyTritonClientValueError

__all__ = ["Tls"]

PathLike = str | os.PathLike[str] | None


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Encrypt the connection and check the server's certificate, which must name the URL's host.

    Triton's gRPC endpoint speaks TLS itself, if it is told to. Its HTTP endpoint does not, so there this is for a
    server behind a proxy that speaks HTTPS.

    Args:
        root_certificates: PEM file of the authorities that may have signed the server's certificate. None trusts those
            that gRPC brings, or over HTTP those of the system.
        private_key: PEM file of this client's key, not encrypted, for servers that demand to know their clients.
        certificate_chain: PEM file of the certificate for the key, followed by those that it depends on.

    Raises:
        PyTritonClientValueError: A file cannot be read or holds something else, the key does not fit the certificate,
            or one of both is missing.
    """

    root_certificates: PathLike = None
    private_key: PathLike = None
    certificate_chain: PathLike = None

    def __post_init__(self) -> None:
        if (self.private_key is None) != (self.certificate_chain is None):
            given, missing = "private_key", "certificate_chain"
            if self.private_key is None:
                given, missing = missing, given
            raise PyTritonClientValueError(f"{given} was given without {missing}; pass both, or neither")
        for name in ("root_certificates", "private_key", "certificate_chain"):
            _check_readable(name, getattr(self, name))
        self.context()

    def context(self) -> ssl.SSLContext:
        """For HTTPS.

        Raises:
            PyTritonClientValueError: A file holds something else than it should.
        """
        try:
            context = ssl.create_default_context(cafile=_text(self.root_certificates))
        except (OSError, ValueError) as error:
            raise PyTritonClientValueError(
                f"root_certificates {self.root_certificates} cannot be used: {error}; pass a PEM file of certificates"
            ) from error
        if self.private_key is not None and self.certificate_chain is not None:
            try:
                # Without a password, OpenSSL would ask for one at the terminal.
                context.load_cert_chain(self.certificate_chain, self.private_key, password="")
            except (OSError, ValueError) as error:
                raise PyTritonClientValueError(
                    f"private_key {self.private_key} and certificate_chain {self.certificate_chain} cannot be used: "
                    f"{error}; pass PEM files of an unencrypted key and of the certificate for it"
                ) from error
        return context

    def grpc_arguments(self) -> dict[str, Any]:
        """For both of tritonclient's gRPC clients."""
        return {
            "ssl": True,
            "root_certificates": _text(self.root_certificates),
            "private_key": _text(self.private_key),
            "certificate_chain": _text(self.certificate_chain),
        }


def _text(path: PathLike) -> str | None:
    return None if path is None else os.fspath(path)


def _check_readable(name: str, path: PathLike) -> None:
    if path is None:
        return
    if not isinstance(path, (str, os.PathLike)):
        raise PyTritonClientValueError(f"{name} must be the path of a PEM file, got a {type(path).__name__}")
    try:
        Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise PyTritonClientValueError(f"{name} {str(path)!r:.200} cannot be read: {error}") from error
