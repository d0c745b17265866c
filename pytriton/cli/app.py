"""The commands of ``pytriton``, with their options."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console
from rich.text import Text

from pytriton.cli import check as checks
from pytriton.cli.bench import Bench, Summary, histogram
from pytriton.cli.dashboard import show_dashboard
from pytriton.cli.examples import list_examples, run_add_sub, run_add_sub_script
from pytriton.cli.load import InputError, LoadOptions, parse_shapes
from pytriton.cli.options import (
    Batch,
    Certificate,
    Compress,
    Inputs,
    Key,
    Labels,
    MaxBatchSize,
    Method,
    Roots,
    Secured,
    Token,
    Trust,
    Url,
    Workspace,
    trust,
)
from pytriton.cli.record import RecordCommand
from pytriton.cli.replay import Replay, Tolerance
from pytriton.cli.saved import LoadArguments, inspect_file, target_of
from pytriton.cli.serve import ServeOptions
from pytriton.cli.status import CODE_PATH, LiveDisplay, ask_server, render_status, unlock
from pytriton.cli.target import ProgramError, TargetError
from pytriton.client.auth import TOKEN_VARIABLE
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonError, PyTritonServerError
from pytriton.model_config import Recording
from pytriton.recording import RecordedFiles

__all__ = ["app"]

DEFAULT_DURATION_S = 10.0
FILE_COLUMNS = 160
GLOBAL_OPTIONS = ("--help", "--version", "--install-completion", "--show-completion")
USAGE_ERRORS = (TargetError, InputError, FileExistsError)
FAILURES = (ProgramError, PyTritonClientError, PyTritonError, OSError)
USAGE_STATUS, FAILURE_STATUS = 2, 1


class DefaultCommandGroup(typer.core.TyperGroup):
    """Runs ``check`` if the command line names no command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command."""
        if not args or (args[0].startswith("-") and args[0] not in GLOBAL_OPTIONS):
            args = ["check", *args]
        return super().parse_args(ctx, args)


@contextmanager
def exit_on_error(kinds: tuple[type[Exception], ...] = (*USAGE_ERRORS, *FAILURES)) -> Iterator[None]:
    """Show these errors without a traceback, and exit with 2 for a usage error and 1 for any other."""
    try:
        yield
    except kinds as error:
        typer.echo(f"pytriton: {error}", err=True)
        sys.exit(USAGE_STATUS if isinstance(error, USAGE_ERRORS) else FAILURE_STATUS)


def wide_console() -> Console:
    """Standard output, as wide as the terminal; wide enough for tables in a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=FILE_COLUMNS)


def need_extra(command: str, package: str, module: str, extra: str) -> None:
    """Exit, and say what to install, if a module that a command needs is not installed."""
    if find_spec(module) is None:
        install = f"run pip install 'pytriton[{extra}]'"
        typer.echo(f"pytriton: {command} needs {package}, which is not installed; {install}", err=True)
        raise typer.Exit(USAGE_STATUS)


app = typer.Typer(cls=DefaultCommandGroup, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def show_version(wanted: bool) -> None:
    """Show the version and exit."""
    if wanted:
        typer.echo(f"pytriton {checks.distribution_version('pytriton')}")
        raise typer.Exit


@app.callback()
def pytriton_command(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """Serve Python functions with a Triton Inference Server; measure and monitor servers.

    Without a command, **pytriton check** runs.
    """


@app.command(rich_help_panel="This machine")
def check(
    target: Annotated[
        str | None, typer.Argument(help="With --exposure: what **pytriton serve** would serve.", show_default=False)
    ] = None,
    workspace: Workspace = None,
    compress: Compress = False,
    exposure: Annotated[
        bool, typer.Option("--exposure", help="Show who could reach what of a server, and test nothing.")
    ] = False,
    app_dir: Annotated[Path, typer.Option(help="Folder that the module is imported from.")] = Path("."),
) -> None:
    """Test the installation: report on the environment, serve a model and infer. The default command.

    The exit status is 0 if inference works over HTTP and gRPC, else 1. Environment variables that look like secrets are
    left out of the report, but look through it before you give it to others.

    With **--exposure**, it shows what each port of a server would ask for: the one that **pytriton serve TARGET** would
    launch, or one with the options in the environment.
    """
    with exit_on_error():
        if exposure:
            checks.show_exposure(target, app_dir, typer.echo)
            raise typer.Exit
        if target is not None:
            raise TargetError("a target goes with --exposure")
        passed = checks.check(workspace, compress, typer.echo)
    typer.echo("The self-test passed." if passed else "The self-test failed.")
    raise typer.Exit(not passed)


@app.command(rich_help_panel="This machine")
def env() -> None:
    """Show the report on the environment: Python, system, memory, sockets, server, GPUs, packages, variables."""
    typer.echo(checks.PRIVACY, err=True)
    typer.echo(checks.describe_environment())
    typer.echo(checks.PRIVACY, err=True)


@app.command(rich_help_panel="This machine")
def examples() -> None:
    """List the example programs, and where they are."""
    for line in list_examples():
        typer.echo(line)


@app.command("example-add-sub", rich_help_panel="This machine")
def example_add_sub() -> None:
    """Serve a model that adds and subtracts, and call it over HTTP and gRPC, in one process."""
    with tempfile.TemporaryDirectory(prefix="pytriton-check-") as folder:
        raise typer.Exit(not run_add_sub(Path(folder), typer.echo))


@app.command("example-add-sub-script", rich_help_panel="This machine")
def example_add_sub_script() -> None:
    """Run the same test as a script: python -m pytriton.cli.add_sub."""
    with tempfile.TemporaryDirectory(prefix="pytriton-check-") as folder:
        raise typer.Exit(not run_add_sub_script(Path(folder), typer.echo))


@app.command(rich_help_panel="Servers")
def serve(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:OBJECT | [NAME=]FILE...", help="What to serve, e.g. models:bind_all, or iris.onnx."
        ),
    ],
    reload: Annotated[bool, typer.Option("--reload", help="Start again when the source changes.")] = False,
    app_dir: Annotated[Path, typer.Option(help="Folder that the module is imported from.")] = Path("."),
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
    log_level: Annotated[str, typer.Option(help="Of Python's logging: debug, info, warning, error.")] = "info",
    method: Method = None,
    trust_files: Trust = False,
    inputs: Inputs = None,
    batch: Batch = None,
    max_batch_size: MaxBatchSize = None,
    labels: Labels = None,
) -> None:
    """Serve the models of a module, or saved models, until Ctrl+C or SIGTERM.

    OBJECT is a function that takes a Triton and binds models to it, a function that returns a Triton, a Triton, or a
    function with annotations, which becomes a model of its name. Without OBJECT, as in models.py, all of these do.

    FILE is a model that ONNX, skops, joblib, pickle, XGBoost, LightGBM or MLflow has saved; **pytriton inspect FILE**
    shows what would be served. Such models are served as JSON too.

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
        target = target_of(targets, LoadArguments(method, trust_files, inputs or (), batch, max_batch_size, labels))
        served = ServeOptions.parse(target, app_dir, fields, option or [], access_token, log_level, rest_port, workers)
    with exit_on_error((TargetError, ProgramError, PyTritonServerError)):
        if reload:
            served.serve_reloading(reload_dir or [], lambda text: typer.echo(text, err=True))
        else:
            served.serve()


@app.command(rich_help_panel="Servers")
def inspect(
    file: Annotated[str, typer.Argument(metavar="[NAME=]FILE", help="A saved model, e.g. iris.onnx.")],
    method: Method = None,
    trust_files: Trust = False,
    inputs: Inputs = None,
    batch: Batch = None,
    max_batch_size: MaxBatchSize = None,
    labels: Labels = None,
    write: Annotated[Path | None, typer.Option(help="Write a program that serves it, e.g. server.py.")] = None,
) -> None:
    """Show what a saved model has, and what **pytriton serve FILE** would bind."""
    with exit_on_error((TargetError, FileExistsError)):
        arguments = LoadArguments(method, trust_files, inputs or (), batch, max_batch_size, labels)
        inspect_file(file, arguments, write, typer.echo)


@app.command(rich_help_panel="Servers")
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
    method: Method = None,
    trust_files: Trust = False,
    inputs: Inputs = None,
    batch: Batch = None,
    max_batch_size: MaxBatchSize = None,
    labels: Labels = None,
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


@app.command(rich_help_panel="Servers")
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
    log_level: Annotated[str, typer.Option(help="Of Python's logging: debug, info, warning, error.")] = "info",
) -> None:
    """Answer batches of models that another process serves with RemoteWorkers, until Ctrl+C or SIGTERM.

    A factory returns the inference callable, decorated as usual. The batches that have come are answered before the
    end. A connection that is lost is made again; the exit status is 1 if the server refuses this worker.
    """
    need_extra("worker", "pyzmq", "zmq", "cluster")
    with exit_on_error():
        from pytriton.cli.worker import RemoteWorkerProgram
        from pytriton.cluster.worker import WorkerOptions

        options = WorkerOptions(connect, key, server_key, credits, heartbeat)
        RemoteWorkerProgram.parse(factories, model, app_dir, options, model_version, device, log_level).run()


@app.command(rich_help_panel="Servers")
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


@app.command(rich_help_panel="Servers")
def bench(
    url: Url,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
    model_version: Annotated[str | None, typer.Option(help="Version of the model.", show_default="the highest")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Requests in flight.")] = 16,
    requests: Annotated[int | None, typer.Option("--requests", "-n", min=1, help="How many requests.")] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration", "-d", min=0.001, help="For how many seconds.", show_default="10, without --requests"
        ),
    ] = None,
    warmup: Annotated[float, typer.Option(min=0, help="Seconds of the same load before the measurement.")] = 1.0,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", "-b", min=1, help="Rows of a request.", show_default="1")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=SIZES",
            help="Shape of an input without the batch axis, e.g. image=3,224,224; may be repeated.",
        ),
    ] = None,
    size: Annotated[
        int, typer.Option(min=1, help="Size of dimensions that the model leaves open, without --shape.")
    ] = 1,
    wait: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the model.")] = 10.0,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a request may take.")] = 60.0,
    show_histogram: Annotated[bool, typer.Option("--histogram", help="Show a histogram of the latencies.")] = False,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all figures, as JSON.")] = None,
    token: Token = None,
    tls: Secured = False,
    roots: Roots = None,
    key: Key = None,
    certificate: Certificate = None,
) -> None:
    """Measure a model under load.

    Keeps -c requests in flight, with random inputs of the model's types. Decoupled
    models need a grpc:// URL. Ctrl+C ends it early. The exit status is 1 if a request failed, or none was answered.
    """
    with exit_on_error():
        run = Bench(
            url=url,
            model=model,
            version=model_version,
            load=LoadOptions(
                concurrency, requests, DEFAULT_DURATION_S if duration is None and not requests else duration
            ),
            warmup_s=warmup,
            batch_size=batch_size,
            shapes=parse_shapes(shape or []),
            dynamic_size=size,
            init_timeout_s=wait,
            timeout_s=timeout,
            access_token=token,
            tls=trust(tls, roots, key, certificate),
        )
        outcome = asyncio.run(run.run(Console(stderr=True)))
        summary = Summary.of(outcome.measurement, outcome.inputs.rows)
        console = wide_console()
        console.print(Text(run.title(outcome)))
        console.print(summary.table())
        if show_histogram and summary.answered:
            console.print(histogram(outcome.measurement.latencies_s))
        if as_json:
            as_json.write_text(
                json.dumps({**run.settings(), **outcome.to_dict(), **summary.to_dict()}, indent=2) + "\n"
            )
    raise typer.Exit(bool(summary.failed) or not summary.answered)


@app.command(rich_help_panel="Servers")
def record(
    url: Annotated[str, typer.Argument(metavar="URL", help="The app, or the server's HTTP port, e.g. localhost.")],
    model: Annotated[str, typer.Option(help="Name of the model.")],
    model_version: Annotated[int | None, typer.Option(min=1, help="Its version.", show_default="the only one")] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE.ptr", help="Start: name of a new file, at the server."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="End the recording, and show what has come of it.")] = False,
    share: Annotated[float, typer.Option(help="Share of the requests, above 0 and up to 1.")] = Recording.share,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave an input, output, parameter or the id out; may be repeated."),
    ] = None,
    file_bytes: Annotated[int, typer.Option(help="Bytes of a file.")] = Recording.file_bytes,
    files: Annotated[int, typer.Option(help="Number of files; the oldest is deleted.")] = Recording.files,
    record_bytes: Annotated[int, typer.Option(help="Most bytes of a request.")] = Recording.record_bytes,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the server.")] = 30.0,
    token: Token = None,
    tls: Secured = False,
    roots: Roots = None,
    key: Key = None,
    certificate: Certificate = None,
) -> None:
    """Record requests to a model of a running server, with their answers.

    **-o** starts, **--stop** ends, and without both, it shows what has come of the recording so far. It needs the
    server's access token, and a server with an app, such as **pytriton serve --rest-port 8080** launches. The file is
    in the folder that PYTRITON_RECORDINGS names at the server, else in the working folder there; only the user that
    serves may read it. **pytriton replay** reads it.
    """
    with exit_on_error():
        if output and stop:
            raise TargetError("-o starts a recording and --stop ends it; give one of them")
        command = RecordCommand(url, model, model_version, token, trust(tls, roots, key, certificate), timeout)
        if output:
            chosen = Recording(output, share, without or [], file_bytes, files, record_bytes)
            typer.echo(command.start(chosen))
        else:
            typer.echo(command.stop() if stop else command.status())


@app.command(rich_help_panel="Servers")
def replay(
    files: Annotated[list[str], typer.Argument(metavar="FILE.ptr... URL", help="Recordings, and the server.")],
    model: Annotated[str | None, typer.Option(help="Name of the model.", show_default="the recorded one")] = None,
    model_version: Annotated[str | None, typer.Option(help="Version of the model.", show_default="the highest")] = None,
    speed: Annotated[
        str, typer.Option(help="How much faster than recorded; max sends as fast as connections allow.")
    ] = "1",
    connections: Annotated[int, typer.Option("--connections", "-c", min=1, help="Requests at a time.")] = 64,
    rtol: Annotated[float, typer.Option(min=0, help="Relative tolerance of floating point numbers.")] = 0.0,
    atol: Annotated[float, typer.Option(min=0, help="Absolute tolerance of floating point numbers.")] = 0.0,
    show: Annotated[int, typer.Option(min=0, help="How many differences to show.")] = 10,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a request may take.")] = 60.0,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all figures, as JSON.")] = None,
    token: Token = None,
    tls: Secured = False,
    roots: Roots = None,
    key: Key = None,
    certificate: Certificate = None,
) -> None:
    """Send recorded requests to a server, and compare answers and latencies with the recorded ones.

    FILE.ptr is read with its older files. Models that stream need a grpc:// URL. Ctrl+C ends it early. The exit status
    is 1 if an answer differs, a request fails that did not, or none was sent.
    """
    with exit_on_error():
        *paths, url = files
        if not paths:
            raise TargetError("give files and then the URL of the server, as in: day.ptr localhost")
        run = Replay(
            url=url,
            model=model,
            version=model_version,
            speed=speed_of(speed),
            connections=connections,
            tolerance=Tolerance(rtol, atol),
            shown=show,
            timeout_s=timeout,
            access_token=token,
            tls=trust(tls, roots, key, certificate),
        )
        with RecordedFiles(*paths) as recorded:
            for note in recorded.notes:
                typer.echo(f"pytriton: {note}", err=True)
            report = asyncio.run(run.run(recorded))
        wide_console().print(report.table())
        for each in report.first:
            typer.echo(f"request {each.number}{each.id and f' (id {each.id})'}, {each.output or 'answer'}: {each.text}")
        if as_json:
            as_json.write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    raise typer.Exit(not report.is_same)


def speed_of(text: str) -> float:
    """The factor of an option; infinite for ``max``."""
    try:
        factor = math.inf if text == "max" else float(text)
    except ValueError:
        factor = 0.0
    if not factor > 0:
        raise TargetError(f"--speed is {text!r}; give a number above 0, or max")
    return factor


@app.command(rich_help_panel="Servers")
def dashboard(
    url: Url,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of this machine, to serve the pages on.")] = 8080,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Of the server's metrics, for the queues, e.g. http://localhost:8002/metrics."
        ),
    ] = None,
    grpc: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Of the server's gRPC, for models that stream, e.g. grpc://localhost:8001."),
    ] = None,
    token: Token = None,
) -> None:
    """Show the pages of the app for a server that runs elsewhere: its models, figures and forms.

    They are served to this machine alone. The server's access token lets the app read the statistics; typed into the
    page, it allows commands. Ctrl+C ends it.
    """
    with exit_on_error((*USAGE_ERRORS, *FAILURES, ImportError)):
        show_dashboard(url, port, metrics, grpc, token, typer.echo)


@app.command(rich_help_panel="Servers")
def status(
    url: Url,
    watch: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="Repeat with this pause.", show_default="once"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for each call.")] = 5.0,
    token: Token = None,
    tls: Secured = False,
    roots: Roots = None,
    key: Key = None,
    certificate: Certificate = None,
) -> None:
    """Show whether a server is ready, and the statistics of its models.

    The exit status is 0 if it is ready, else 1. The states of the models and their statistics need the access token,
    unless the server says otherwise. The URL with a code that **pytriton serve** prints on this machine takes the place
    of URL and token, once.
    """
    with exit_on_error():
        trusted = trust(tls, roots, key, certificate)
        if CODE_PATH in url:
            url, token, trusted = unlock(url, trusted, timeout)
        found = ask_server(url, token, trusted, timeout)
        with LiveDisplay(wide_console()) as display, suppress(KeyboardInterrupt):
            display.show(render_status(found))
            while watch is not None:
                time.sleep(watch)
                found = ask_server(url, token, trusted, timeout)
                display.show(render_status(found))
    raise typer.Exit(not found.ready)
