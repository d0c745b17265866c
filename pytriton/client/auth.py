"""Where a server is, and how client and server trust each other: URL, access token, certificates."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from pytriton.client.arguments import check_token
from pytriton.client.exceptions import PyTritonClientInvalidUrlError, PyTritonClientValueError
from pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT

__all__ = [
    "TOKEN_FILE_VARIABLE",
    "TOKEN_VARIABLE",
    "Tls",
    "TritonUrl",
    "create_auth_headers",
    "extract_access_token_from_headers",
    "split_access_token",
    "token_or_environment",
]

#: Holds the token of clients that are not given one.
TOKEN_VARIABLE = "PYTRITON_ACCESS_TOKEN"
#: Names a file with it, as a secret of Kubernetes, Docker or systemd is one.
TOKEN_FILE_VARIABLE = "PYTRITON_ACCESS_TOKEN_FILE"

# The gRPC server looks for its restricted header under a prefix.
_HEADERS = {"http": "triton-access-token", "grpc": "triton-grpc-protocol-triton-access-token"}

_HOST = re.compile(r"[^\x00-\x20\x7f\"#/<>?@\\^`{|}]+")
_PATH = re.compile(r"(/[!$-;=@-Z_a-z~]*)?")
_DEFAULT_PORTS = {"http": DEFAULT_HTTP_PORT, "grpc": DEFAULT_GRPC_PORT}
_UNIX = "http+unix"
_MOST_SOCKET_BYTES = 107  # that the kernel takes as the path of a socket


@dataclass(frozen=True)
class TritonUrl:
    """A parsed server URL.

    Every request begins with parts of it, so no part may have spaces or control characters.

    Args:
        scheme: ``http`` or ``grpc``.
        hostname: Name or address; an IPv6 address keeps its brackets.
        port: 1 to 65535.
        path: Base path of a server behind an HTTP proxy, with a leading and without a trailing slash; may be empty.
            Percent-encoded.
        socket: Path of the Unix socket that the server listens on, for HTTP; empty for TCP. Host and port are then
            only those that requests name.

    Raises:
        PyTritonClientInvalidUrlError: A part cannot be sent.
    """

    scheme: str
    hostname: str
    port: int
    path: str = ""
    socket: str = ""

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.hostname):
            raise _invalid(self.with_scheme, "it needs a host without spaces, quotes and control characters")
        try:
            self.hostname.encode("idna")  # as for looking it up
        except UnicodeError as error:
            raise _invalid(self.with_scheme, f"its host cannot be looked up: {error}") from error
        if not _PATH.fullmatch(self.path):
            raise _invalid(self.with_scheme, "its path must be percent-encoded, as urllib.parse.quote does it")

    @classmethod
    def from_url(cls, url: str) -> TritonUrl:
        """Parse ``[scheme://]host[:port][/path]``, or ``http+unix://`` with the path of a Unix socket.

        Args:
            url: Without scheme it is HTTP, without port the scheme's default port (8000 for HTTP, 8001 for gRPC). A
                path counts for HTTP alone. ``http+unix:///run/x.sock`` names a socket, and so does
                ``http+unix://%2Frun%2Fx.sock``, which may have a base path behind it.

        Raises:
            PyTritonClientInvalidUrlError: It is no string, has another scheme, no host, a bad port, or a user, query or
                fragment.
        """
        if not isinstance(url, str):
            raise PyTritonClientInvalidUrlError(f"url must be a str such as 'localhost:8000', got {url!r}")
        text = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(text)
            if parts.scheme == _UNIX:
                return cls._from_unix(url, parts)
            hostname, port = parts.hostname, parts.port
        except ValueError as error:
            raise _invalid(url, str(error)) from error
        if parts.scheme not in _DEFAULT_PORTS:
            hint = "; keep http:// or grpc:// and pass tls=Tls() to the client" if parts.scheme[-1:] == "s" else ""
            raise _invalid(url, f"scheme {parts.scheme!r} is not supported{hint}")
        # urlsplit drops tabs and line ends, and spaces at the beginning.
        if not hostname or not text.isprintable() or any(character.isspace() for character in text):
            raise _invalid(url, "it needs a host without spaces")
        if text is not url and hostname in _DEFAULT_PORTS:
            raise _invalid(url, f"for a host called {hostname!r} write 'http://{url}'")
        if parts.username is not None or parts.query or parts.fragment:
            raise _invalid(url, "it must not have a user, a query or a fragment")
        if port == 0 or parts.netloc.endswith(":"):
            raise _invalid(url, "the port must be 1 to 65535")
        return cls(
            scheme=parts.scheme,
            hostname=f"[{hostname}]" if ":" in hostname else hostname,
            port=port or _DEFAULT_PORTS[parts.scheme],
            path=parts.path.rstrip("/") if parts.scheme == "http" else "",
        )

    @classmethod
    def of_socket(cls, socket: str, path: str = "") -> TritonUrl:
        """The URL of a server that listens on a Unix socket.

        Raises:
            PyTritonClientInvalidUrlError: No socket can have this path.
        """
        parsed = cls("http", "localhost", 80, path, socket)
        if not socket.startswith("/") or "\0" in socket:
            raise _invalid(parsed.with_scheme, "it needs the absolute path of a socket, as http+unix:///run/x.sock")
        if len(os.fsencode(socket)) > _MOST_SOCKET_BYTES:
            raise _invalid(parsed.with_scheme, f"the path of a socket can have {_MOST_SOCKET_BYTES} bytes")
        return parsed

    @classmethod
    def _from_unix(cls, url: str, parts: SplitResult) -> TritonUrl:
        if parts.query or parts.fragment or not url.isprintable():
            raise _invalid(url, "it must not have a query, a fragment or control characters; write %3F for '?'")
        if parts.netloc:
            return cls.of_socket(unquote(parts.netloc), parts.path.rstrip("/"))
        return cls.of_socket(unquote(parts.path))

    @property
    def without_scheme(self) -> str:
        """``host:port[/path]``, as tritonclient takes it."""
        return f"{self.hostname}:{self.port}{self.path}"

    @property
    def with_scheme(self) -> str:
        """``scheme://host:port[/path]``, or ``http+unix://...``, which :meth:`from_url` reads back."""
        if self.socket:
            return f"{_UNIX}://{quote(self.socket, safe='' if self.path else '/')}{self.path}"
        return f"{self.scheme}://{self.without_scheme}"


def _invalid(url: str, reason: str) -> PyTritonClientInvalidUrlError:
    form = "[http://|grpc://]host[:port]"
    if url.startswith(_UNIX):
        form = f"{_UNIX}:///path/of/socket"
    return PyTritonClientInvalidUrlError(f"url {url!r} is not of the form {form}: {reason}")


def create_auth_headers(access_token: str | None, protocol: str) -> dict[str, str]:
    """The header that carries the token.

    Args:
        protocol: ``http`` or ``grpc``, in any case.

    Raises:
        PyTritonClientValueError: The token is empty or None or cannot travel in a header, or the protocol is another
            one.
    """
    token = check_token(access_token)
    header = _HEADERS.get(str(protocol).lower())
    if header is None:
        raise PyTritonClientValueError(f"protocol must be 'http' or 'grpc', got {protocol!r}")
    return {header: token}


def extract_access_token_from_headers(headers: Mapping[str, str] | None) -> str | None:
    """The token in HTTP headers or gRPC metadata, in any letter case; None if there is none, or there are no headers.

    Raises:
        PyTritonClientValueError: There are two different tokens.
    """
    tokens = {value for name, value in (headers or {}).items() if name.lower() in _HEADERS.values()}
    if len(tokens) > 1:
        raise PyTritonClientValueError(f"headers {' and '.join(_HEADERS.values())} hold different tokens; send one")
    return tokens.pop() if tokens else None


def split_access_token(headers: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """The token as :func:`extract_access_token_from_headers` finds it, and the other headers."""
    others = {name: value for name, value in headers.items() if name.lower() not in _HEADERS.values()}
    return extract_access_token_from_headers(headers), others


def token_or_environment(access_token: str | None) -> str | None:
    """The token that a client was given, else that in ``PYTRITON_ACCESS_TOKEN``, else that in the file which
    ``PYTRITON_ACCESS_TOKEN_FILE`` names; None without any.

    Raises:
        PyTritonClientValueError: The one in the environment or in the file cannot travel in a header, or there is no
            such file. The message does not show the token.
    """
    if access_token is not None:
        return access_token
    if token := os.environ.get(TOKEN_VARIABLE):
        return check_token(token, f"the environment variable {TOKEN_VARIABLE}")
    if not (file := os.environ.get(TOKEN_FILE_VARIABLE)):
        return None
    try:
        token = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PyTritonClientValueError(f"{TOKEN_FILE_VARIABLE}={file} cannot be read: {error}") from error
    if not token:
        raise PyTritonClientValueError(f"{TOKEN_FILE_VARIABLE}={file} is an empty file")
    return check_token(token, f"the file {file} of {TOKEN_FILE_VARIABLE}")


PathLike = str | os.PathLike[str] | None


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Encrypt the connection and check the server's certificate, which must name the URL's host.

    Triton's gRPC endpoint can speak TLS, and so can the edge. Triton's own HTTP endpoint cannot: over
    HTTP this is then for a server behind a proxy that speaks HTTPS.

    Args:
        root_certificates: PEM file of the authorities that may have signed the server's certificate. None trusts the
            authorities that gRPC comes with, or over HTTP those of the system.
        private_key: PEM file of this client's unencrypted key, for servers that demand a certificate of their clients.
        certificate_chain: PEM file of the certificate for the key, followed by the certificates that it depends on.

    Raises:
        PyTritonClientValueError: A file cannot be read or holds something else, the key does not fit the certificate,
            or one of the two is missing.
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
        self.context("DEFAULT:@SECLEVEL=0")  # gRPC also takes short keys

    def context(self, ciphers: str | None = None) -> ssl.SSLContext:
        """The context for HTTPS.

        Args:
            ciphers: In OpenSSL's form; None for the defaults.

        Raises:
            PyTritonClientValueError: A file holds something else than it should.
        """
        try:
            context = ssl.create_default_context(cafile=self.root_certificates)
        except (OSError, ValueError) as error:
            raise PyTritonClientValueError(
                f"root_certificates {self.root_certificates} cannot be used: {error}; pass a PEM file of certificates"
            ) from error
        if ciphers:
            context.set_ciphers(ciphers)
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


def _check_readable(name: str, path: PathLike) -> None:
    if path is None:
        return
    if not isinstance(path, (str, os.PathLike)):
        raise PyTritonClientValueError(f"{name} must be the path of a PEM file, got a {type(path).__name__}")
    try:
        Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise PyTritonClientValueError(f"{name} {str(path)!r:.200} cannot be read: {error}") from error
