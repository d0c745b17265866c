"""The address of a server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from pytriton.client.exceptions import PyTritonClientInvalidUrlError
from pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT

__all__ = ["TritonUrl"]

_HOST = re.compile(r"[^\x00-\x20\x7f\"#/<>?@\\^`{|}]+")
_PATH = re.compile(r"(/[!$-;=@-Z_a-z~]*)?")
_DEFAULT_PORTS = {"http": DEFAULT_HTTP_PORT, "grpc": DEFAULT_GRPC_PORT}


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

    Raises:
        PyTritonClientInvalidUrlError: A part cannot be sent.
    """

    scheme: str
    hostname: str
    port: int
    path: str = ""

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
        """Parse ``[scheme://]host[:port][/path]``.

        Args:
            url: Without scheme it is HTTP, without port the scheme's default port (8000 for HTTP, 8001 for gRPC). A
                path counts for HTTP alone.

        Raises:
            PyTritonClientInvalidUrlError: It is no string, has another scheme, no host, a bad port, or a user, query or
                fragment.
        """
        if not isinstance(url, str):
            raise PyTritonClientInvalidUrlError(f"url must be a str such as 'localhost:8000', got {url!r}")
        text = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(text)
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

    @property
    def without_scheme(self) -> str:
        """``host:port[/path]``, as tritonclient takes it."""
        return f"{self.hostname}:{self.port}{self.path}"

    @property
    def with_scheme(self) -> str:
        """``scheme://host:port[/path]``, which :meth:`from_url` reads back."""
        return f"{self.scheme}://{self.without_scheme}"


def _invalid(url: str, reason: str) -> PyTritonClientInvalidUrlError:
    return PyTritonClientInvalidUrlError(f"url {url!r} is not of the form [http://|grpc://]host[:port]: {reason}")
