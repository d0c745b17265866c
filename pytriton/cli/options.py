"""Options of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytriton.client.auth import TOKEN_VARIABLE, Tls

__all__ = [
    "AppDir",
    "Batch",
    "Certificate",
    "Inputs",
    "Json",
    "Key",
    "Labels",
    "LogLevel",
    "MaxBatchSize",
    "Method",
    "ModelVersion",
    "Module",
    "RequestTimeout",
    "Roots",
    "Secured",
    "Token",
    "Trust",
    "Tune",
    "Url",
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
AppDir = Annotated[Path, typer.Option(help="Folder that the module is imported from.")]
LogLevel = Annotated[str, typer.Option(help="Of Python's logging: debug, info, warning, error.")]
ModelVersion = Annotated[str | None, typer.Option(help="Version of the model.", show_default="the highest")]
RequestTimeout = Annotated[float, typer.Option(min=0.001, help="Seconds that a request may take.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write all figures, as JSON.")]
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
        help="Whether the first axis of the tensors is the batch's, of ONNX and PyTorch.",
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
Module = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:OBJECT",
        help="What makes the network of weights in safetensors: a function or class, called without arguments.",
        rich_help_panel=FILES,
    ),
]
MaxBatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most rows in one call of a file's model.",
        show_default="4096 of tables; else 128",
        rich_help_panel=FILES,
    ),
]


Tune = Annotated[
    bool,
    typer.Option(
        "--tune",
        help="Measure with how many rows in one call a file's model is fastest, once for each file.",
        rich_help_panel=FILES,
    ),
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
