"""``pytriton weigh``: changes the weights of a model that splits its requests, at a running server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import typer

from pytriton.cli import options
from pytriton.cli.calls import app_url, post
from pytriton.cli.errors import TargetError, exit_on_error
from pytriton.client.auth import Tls, TritonUrl

__all__ = ["weigh"]


def weigh(
    url: Annotated[str, typer.Argument(metavar="URL", help="The app, or the server's HTTP port, e.g. localhost.")],
    weights: Annotated[list[str], typer.Argument(metavar="MODEL=WEIGHT...", help="All models that get requests.")],
    model: Annotated[str, typer.Option(help="Name of the model that splits its requests.")],
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the server.")] = 30.0,
    token: options.Token = None,
    tls: options.Secured = False,
    roots: options.Roots = None,
    key: options.Key = None,
    certificate: options.Certificate = None,
) -> None:
    """Change how a model that is bound as a Split divides its requests.

    As in **pytriton weigh localhost --model rank rank-1=0.9 rank-2=0.1**. It needs the server's access token, and a
    server with an app. **pytriton status** shows how many requests each model got.
    """
    with exit_on_error():
        command = {"command": "weigh", "model": model, "weights": weights_of(weights)}
        trusted = options.trust(tls, roots, key, certificate)
        app = app_url(TritonUrl.from_url(url), trusted)
        if not app:
            raise TargetError(f"give the URL of the app or of the server's HTTP port, not {url}")
        post(app, "/pages/commands", command, trusted or Tls(), timeout, "the command", token)
        typer.echo(f"{model}: {', '.join(weights)}")


def weights_of(texts: Sequence[str]) -> dict[str, float]:
    """The weight of each model, by name, in texts such as ``rank-1=0.9``."""
    weights: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not name or not math.isfinite(weight):
            raise TargetError(f"{text!r} is no weight; give the name of a model and a number, as in rank-1=0.9")
        if name in weights:
            raise TargetError(f"model {name!r} has two weights; give one")
        weights[name] = weight
    return weights
