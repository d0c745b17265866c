"""The commands ``worker`` and ``keys``, for models whose workers are elsewhere."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from pytriton.cli import options
from pytriton.cli.errors import USAGE_STATUS, exit_on_error
from pytriton.exceptions import PyTritonWorkerError

__all__ = ["keys", "worker"]


def need_zmq(command: str) -> None:
    """Exit, and say what to install, if pyzmq is not installed."""
    if find_spec("zmq") is None:
        install = "run pip install 'pytriton[cluster]'"
        typer.echo(f"pytriton: {command} needs pyzmq, which is not installed; {install}", err=True)
        raise typer.Exit(USAGE_STATUS)


def worker(
    factories: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL=]MODULE:FACTORY...", help="What makes the callables, e.g. scorer=models:make_scorer."
        ),
    ],
    connect: Annotated[str, typer.Option(help="Address that RemoteWorkers listen on, e.g. tcp://server:5555.")],
    model: Annotated[
        str | None, typer.Option(help="Name of the model, if there is one factory.", show_default="in the argument")
    ] = None,
    model_version: Annotated[int | None, typer.Option(min=1, help="Its version.", show_default="any")] = None,
    key: Annotated[Path | None, typer.Option(help="File with this worker's secret key; see pytriton keys.")] = None,
    server_key: Annotated[Path | None, typer.Option(help="File with the server's public key.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Worker processes for each model; 1 is this process.")] = 1,
    share: Annotated[
        bool, typer.Option("--share", help="Call each factory once, and fork workers, which share its memory.")
    ] = False,
    credits: Annotated[
        int | None,
        typer.Option(min=1, help="Batches to take at a time.", show_default="2, or as many as the model has in flight"),
    ] = None,
    heartbeat: Annotated[
        float, typer.Option(min=0.05, help="Seconds; a server that is silent for three times as long is lost.")
    ] = 2.0,
    device: Annotated[
        str | None, typer.Option(help="For factories with a parameter of that name, e.g. cuda:0.")
    ] = None,
    app_dir: Annotated[Path, typer.Option(help="Folder that modules are imported from.")] = Path("."),
    log_level: options.LogLevel = "info",
) -> None:
    """Answer batches of models that another process serves with RemoteWorkers, until Ctrl+C or SIGTERM.

    A factory returns the inference callable, decorated as usual. The batches that have come are answered before the
    end. A connection that is lost is made again; the exit status is 1 if the server refuses this worker. With --share,
    SIGHUP has the factories called again, and replaces one worker after the other.
    """
    need_zmq("worker")
    with exit_on_error():
        from pytriton.cli.worker import RemoteWorkerProgram
        from pytriton.cluster.keys import WorkerKeys
        from pytriton.cluster.worker import WorkerOptions

        if (key is None) != (server_key is None):
            raise PyTritonWorkerError("give both the key of this worker and that of the server, or neither")
        keys = None if key is None or server_key is None else WorkerKeys.load(key, server_key)
        limits = WorkerOptions(connect, keys, credits, heartbeat)
        RemoteWorkerProgram.parse(
            factories, model, app_dir, limits, model_version, device, log_level, count, share
        ).run()


def keys(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="One for each side, e.g. server worker-1.")],
    folder: Annotated[Path, typer.Option("--folder", "-f", help="Folder for the files.")] = Path("keys"),
) -> None:
    """Make keys for RemoteWorkers and their workers: NAME.key_secret, and NAME.key, which the other side gets."""
    need_zmq("keys")
    with exit_on_error():
        from pytriton.cluster.keys import make_keys

        for name in names:
            public, secret = make_keys(folder, name)
            typer.echo(f"{secret} (secret), {public}")
