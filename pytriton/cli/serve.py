"""``pytriton serve``: serves the models of a module in this process, or with ``--reload`` in a child process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from pytriton.cli import options
from pytriton.cli.errors import ProgramError, TargetError, exit_on_error
from pytriton.cli.reloader import Reloader, end_with_parent
from pytriton.cli.saved import LoadArguments, SavedTarget, target_of
from pytriton.cli.target import Target
from pytriton.client.auth import TOKEN_VARIABLE, token_or_environment
from pytriton.client.exceptions import PyTritonClientValueError
from pytriton.config import ENVIRONMENT_PREFIX, TritonConfig
from pytriton.exceptions import PyTritonServerError
from pytriton.rest.config import ENVIRONMENT_PREFIX as REST_PREFIX
from pytriton.rest.config import checked

__all__ = ["ServeOptions", "serve"]

LEVELS = ("debug", "info", "warning", "error")
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def serve(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:OBJECT | [NAME=]FILE...", help="What to serve, e.g. models:bind_all, or iris.onnx."
        ),
    ],
    reload: Annotated[bool, typer.Option("--reload", help="Start again when the source changes.")] = False,
    app_dir: options.AppDir = Path("."),
    reload_dir: Annotated[
        list[Path] | None, typer.Option(help="More folders with source to watch; may be repeated.")
    ] = None,
    http_port: Annotated[int | None, typer.Option(help="Port of HTTP.", show_default="8000")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="Port of gRPC.", show_default="8001")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Port of the metrics.", show_default="8002")] = None,
    rest_port: Annotated[
        int | None,
        typer.Option(
            help="Port of an app, which serves the models as JSON.", show_default="none; 8080 for files of models"
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Address of all of them; 127.0.0.1 is this machine alone.", show_default="0.0.0.0"),
    ] = None,
    exit_timeout_secs: Annotated[
        int | None, typer.Option(help="How long a stop waits for requests in flight.", show_default="30")
    ] = None,
    log_file: Annotated[Path | None, typer.Option(help="The server's log.", show_default="standard output")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="FIELD=VALUE", help="Any other field of TritonConfig; may be repeated."),
    ] = None,
    access_token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN_VARIABLE,
            show_envvar=True,
            help="Access token of the protected endpoints, for a function that takes a Triton; or "
            "PYTRITON_ACCESS_TOKEN_FILE names a file.",
            show_default="a random one",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes for each function or file.", show_default="none: a thread for each"),
    ] = None,
    log_level: options.LogLevel = "info",
    method: options.Method = None,
    trust_files: options.Trust = False,
    inputs: options.Inputs = None,
    batch: options.Batch = None,
    max_batch_size: options.MaxBatchSize = None,
    labels: options.Labels = None,
    module: options.Module = None,
    tune: options.Tune = False,
) -> None:
    """Serve the models of a module, or saved models, until Ctrl+C or SIGTERM.

    OBJECT is a function that takes a Triton and binds models to it, a function that returns a Triton, a Triton, or a
    function with annotations, which becomes a model of its name. Without OBJECT, as in models.py, all of these do.

    FILE is a model that ONNX, PyTorch, Hugging Face, skops, joblib, pickle, XGBoost, LightGBM, CatBoost, llama.cpp or
    MLflow has saved; **pytriton inspect FILE** shows what would be served. Such models are served as JSON too.

    The options are fields of TritonConfig; a program that sets them itself wins. Those without an option here can be
    given with -o, or in the environment, as in PYTRITON_TRITON_CONFIG_LOG_VERBOSE=1. Other options of the app
    are in the environment, as in PYTRITON_REST_ACCESS_TOKEN.
    """
    fields = {
        "http_port": http_port,
        "grpc_port": grpc_port,
        "metrics_port": metrics_port,
        "http_address": address,
        "grpc_address": address,
        "metrics_address": address,
        "exit_timeout_secs": exit_timeout_secs,
        "log_file": log_file,
    }
    with exit_on_error():
        arguments = LoadArguments(method, trust_files, inputs or (), batch, max_batch_size, labels, tune, module)
        target = target_of(targets, arguments)
        served = ServeOptions.parse(target, app_dir, fields, option or [], access_token, log_level, rest_port, workers)
    with exit_on_error((TargetError, ProgramError, PyTritonServerError)):
        if reload:
            served.serve_reloading(reload_dir or [], lambda text: typer.echo(text, err=True))
        else:
            served.serve()


@dataclass(frozen=True)
class ServeOptions:
    """What to serve. The environment holds the server's options; each ``Triton`` reads them there.

    Args:
        app_dir: The folder that its module is imported from.
        access_token: The server's access token; None makes a random one.
        log_level: A level name of the module ``logging``.
        workers: Worker processes for each function or file; None calls it in this process.
    """

    target: Target | SavedTarget
    app_dir: Path
    access_token: str | None
    log_level: str
    workers: int | None = None

    @classmethod
    def parse(
        cls,
        target: Target | SavedTarget,
        app_dir: Path,
        options: Mapping[str, Any],
        assignments: Iterable[str],
        access_token: str | None,
        log_level: str,
        rest_port: int | None = None,
        workers: int | None = None,
    ) -> ServeOptions:
        """Read the command line, and put the server's options into the environment.

        Args:
            target: An object in a module, or files.
            app_dir: The folder that the module is imported from.
            options: Fields of TritonConfig; None stands for a field that was not given.
            assignments: More fields, as ``field=value``.
            access_token: None if it was not given.
            log_level: A level name of the module ``logging``.
            rest_port: Of an app, which then listens on the address of the server's HTTP; None makes none.

        Raises:
            TargetError: An argument is malformed, or the app's libraries are not installed.
            PyTritonBadParameterError: An option of the app has a wrong value.
            PyTritonValidationError: Another option has.
        """
        if log_level.lower() not in LEVELS:
            raise TargetError(f"there is no log level {log_level!r}; choose one of {', '.join(LEVELS)}")
        if not app_dir.is_dir():
            raise TargetError(f"the folder {app_dir} does not exist; see --app-dir")
        given = {name: str(value) for name, value in options.items() if value is not None}
        for name, value in {**given, **dict(map(_parse_assignment, assignments))}.items():
            os.environ[ENVIRONMENT_PREFIX + name.upper()] = value
        TritonConfig.from_env()  # which checks it
        if rest_port is not None:
            os.environ[f"{REST_PREFIX}PORT"] = str(rest_port)
        try:
            checked(None)
            access_token = token_or_environment(access_token)  # the command line has the variable's already
        except (ImportError, PyTritonClientValueError) as error:
            raise TargetError(str(error)) from error
        return cls(target, app_dir.resolve(), access_token, log_level.lower(), workers)

    def serve(self) -> None:
        """Serve in this process until a signal comes or the server ends.

        Raises:
            TargetError: The module has no such object, or the object cannot be served.
            ProgramError: The module raised an error at import or while it bound its models.
            Exception: The server did not start.
        """
        end_with_parent()
        sys.path.insert(0, str(self.app_dir))
        logging.basicConfig(level=self.log_level.upper(), format=FORMAT)
        triton = self.target.load(self.access_token, self.workers)
        os.environ.pop(TOKEN_VARIABLE, None)  # neither the server nor children of callables need it
        triton.console().offers_codes = True
        triton.serve()

    def serve_reloading(self, folders: Sequence[Path], say: Callable[[str], None]) -> None:
        """Serve in a child process, and start a new child whenever the source changes.

        Args:
            folders: More folders to watch.
            say: Shows a message to the user.

        Raises:
            TargetError: The module or a folder does not exist.
        """
        sys.path.insert(0, str(self.app_dir))
        for folder in folders:
            if not folder.is_dir():
                raise TargetError(f"the folder {folder} does not exist; see --reload-dir")
        watched = list(dict.fromkeys(folder.resolve() for folder in (self.target.folder(), *folders)))
        if self.access_token is not None:
            os.environ[TOKEN_VARIABLE] = self.access_token
        command = [sys.executable, "-m", "pytriton", "serve", str(self.target)]
        command += [f"--app-dir={self.app_dir}", f"--log-level={self.log_level}"]
        if self.workers is not None:
            command.append(f"--workers={self.workers}")
        Reloader(command, watched, say).run()


def _parse_assignment(text: str) -> tuple[str, str]:
    """Split ``field=value`` into name and value.

    Raises:
        TargetError: The text has another form, or TritonConfig has no such field.
    """
    name, separator, value = text.partition("=")
    name = name.strip().replace("-", "_").lower()
    if not separator or name not in {field.name for field in fields(TritonConfig)}:
        raise TargetError(
            f"option {text!r} is not FIELD=VALUE with a field of TritonConfig; docs/configuration.md lists them"
        )
    return name, value
