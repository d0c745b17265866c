"""Options of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytriton.client.auth import TOKEN_VARIABLE, Tls

__all__ = [
    "Batch",
    "Certificate",
    "Compress",
    "Inputs",
    "Key",
    "Labels",
    "MaxBatchSize",
    "Method",
    "Roots",
    "Secured",
    "Token",
    "Trust",
    "Url",
    "Workspace",
    "trust",
]

CONNECTION = "Connection"
FILES = "Files of saved models"

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
Method = Annotated[
    str | None,
    typer.Option(help="Of the model in the file, e.g. predict_proba.", show_default="predict", rich_help_panel=FILES),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Let the files run code, as pickles do; only if you know their origin.", rich_help_panel=FILES
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME:DTYPE[:SHAPE]",
        help="Type of an input in place of the file's, e.g. city:string or x:float32:3,-1; may be repeated.",
        rich_help_panel=FILES,
    ),
]
Batch = Annotated[
    bool | None,
    typer.Option(
        "--batch/--no-batch",
        help="Whether the first axis of an ONNX file's tensors is the batch's.",
        show_default="found out",
        rich_help_panel=FILES,
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME...",
        help="Names of the classes, in the order of the model, if the file has none.",
        rich_help_panel=FILES,
    ),
]
MaxBatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Most rows in one call of a file's model.", show_default="128", rich_help_panel=FILES),
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
