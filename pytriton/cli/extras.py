"""The commands ``build``, ``worker`` and ``keys``, whose libraries may be absent."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from pytriton.cli import options
from pytriton.cli.saved import LoadArguments
from pytriton.cli.terminal import USAGE_STATUS, exit_on_error

__all__ = ["build", "keys", "worker"]


def need_extra(command: str, package: str, module: str, extra: str) -> None:
    """Exit, and say what to install, if a module that a command needs is not installed."""
    if find_spec(module) is None:
        install = f"run pip install 'pytriton[{extra}]'"
        typer.echo(f"pytriton: {command} needs {package}, which is not installed; {install}", err=True)
        raise typer.Exit(USAGE_STATUS)


def build(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM | [NAME=]FILE...", help="server.py, models:bind_all, or saved models."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    name: Annotated[str, typer.Option(help="Name of the image, with a tag.")] = "models:1",
    include: Annotated[
        list[Path] | None,
        typer.Option(help="A file or folder beside the program that it needs; may be repeated."),
    ] = None,
    requirement: Annotated[
        list[str] | None, typer.Option(help="A distribution that is needed, too; may be repeated.")
    ] = None,
    wheelhouse: Annotated[
        bool,
        typer.Option("--wheelhouse", help="Put the wheels of all distributions into the folder, with their hashes."),
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes for each file.", show_default="none: a thread for each")
    ] = None,
    method: options.Method = None,
    trust_files: options.Trust = False,
    inputs: options.Inputs = None,
    batch: options.Batch = None,
    max_batch_size: options.MaxBatchSize = None,
    labels: options.Labels = None,
) -> None:
    """Write a folder from which docker builds an image that serves a program, or saved models.

    It has a Dockerfile, compose.yaml, manifests for Kubernetes, this package as a wheel, the models, and a lock file
    with the versions that are installed here. The same arguments give the same bytes. A folder that the command
    has made is replaced, another one never.
    """
    need_extra("build", "packaging", "packaging", "cli")
    with exit_on_error():
        from pytriton.cli.build import build_image

        arguments = LoadArguments(method, trust_files, inputs or (), batch, max_batch_size, labels)
        build_image(targets, arguments, workers, output, name, include or [], requirement or [], wheelhouse, typer.echo)


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
    end. A connection that is lost is made again; the exit status is 1 if the server refuses this worker.
    """
    need_extra("worker", "pyzmq", "zmq", "cluster")
    with exit_on_error():
        from pytriton.cli.worker import RemoteWorkerProgram
        from pytriton.cluster.worker import WorkerOptions

        limits = WorkerOptions(connect, key, server_key, credits, heartbeat)
        RemoteWorkerProgram.parse(factories, model, app_dir, limits, model_version, device, log_level).run()


def keys(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="One for each side, e.g. server worker-1.")],
    folder: Annotated[Path, typer.Option("--folder", "-f", help="Folder for the files.")] = Path("keys"),
) -> None:
    """Make keys for RemoteWorkers and their workers: NAME.key_secret, and NAME.key, which the other side gets."""
    need_extra("keys", "pyzmq", "zmq", "cluster")
    with exit_on_error():
        from pytriton.cluster.keys import make_keys

        for name in names:
            public, secret = make_keys(folder, name)
            typer.echo(f"{secret} (secret), {public}")
