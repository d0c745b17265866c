"""Options of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytriton.client.auth import TOKEN_VARIABLE, Tls

__all__ = [
    "Certificate",
    "Compress",
    "Key",
    "Roots",
    "Secured",
    "Token",
    "Url",
    "Workspace",
    "trust",
]

CONNECTION = "Connection"

Url = Annotated[
    str,
    typer.Argument(metavar="URL", help="The server, e.g. localhost, http://localhost:8000 or grpc://localhost:8001."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=TOKEN_VARIABLE,
        show_envvar=True,
        help="The server's access token. Prefer the variable: other users can see command lines.",
        rich_help_panel=CONNECTION,
    ),
]
Secured = Annotated[
    bool,
    typer.Option("--tls", help="Encrypt the connection; the URL stays http:// or grpc://.", rich_help_panel=CONNECTION),
]
Roots = Annotated[
    Path | None,
    typer.Option(help="PEM file of the authorities that certify the server; with --tls.", rich_help_panel=CONNECTION),
]
Key = Annotated[
    Path | None, typer.Option(help="PEM file of this client's key, for mutual TLS.", rich_help_panel=CONNECTION)
]
Certificate = Annotated[
    Path | None, typer.Option(help="PEM file of the certificate for the key.", rich_help_panel=CONNECTION)
]
Workspace = Annotated[
    Path | None,
    typer.Option("--workspace", "-w", help="Folder for the report and the logs; it must not exist."),
]
Compress = Annotated[
    bool,
    typer.Option("--zip", help="Compress report and logs to a .zip file, beside the workspace or in this folder."),
]


def trust(secured: bool, roots: Path | None, key: Path | None, certificate: Path | None) -> Tls | None:
    """The TLS settings that these options ask for; None for a connection that is not encrypted.

    Raises:
        PyTritonClientValueError: A file cannot be used.
        typer.BadParameter: Files were given without ``--tls``.
    """
    if secured:
        return Tls(root_certificates=roots, private_key=key, certificate_chain=certificate)
    if roots or key or certificate:
        raise typer.BadParameter("certificates and keys need --tls")
    return None
