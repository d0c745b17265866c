"""Files of saved models as the target of ``pytriton serve``, and ``pytriton inspect``."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pytriton.base import TritonBase
from pytriton.cli import options
from pytriton.cli.errors import TargetError, exit_on_error
from pytriton.cli.saved_report import program_of, report_of
from pytriton.cli.target import Target
from pytriton.cli.tuning import tuned_rows
from pytriton.compat.mlserver import SETTINGS
from pytriton.exceptions import PyTritonValidationError
from pytriton.files.formats import FORMATS
from pytriton.model_config import ModelConfig
from pytriton.model_spec import check_name
from pytriton.saved.layouts import locate, locate_trusted
from pytriton.saved.model import load, name_of
from pytriton.security import TritonSecurityConfig
from pytriton.threads import default_threads
from pytriton.triton import Triton
from pytriton.workers import Processes

__all__ = [
    "LoadArguments",
    "SavedTarget",
    "errors_of_target",
    "inspect",
    "is_file",
    "target_of",
]

PREFIX = re.compile("^(?:hf|mlflow):")
SUFFIXES = {suffix for each in FORMATS for suffix in each.suffixes} - {".txt", ".json"}


@dataclass(frozen=True)
class LoadArguments:
    """Arguments of ``load`` on the command line; None, and an empty list, were not given.

    Args:
        inputs: Each as ``name:dtype`` or ``name:dtype:shape``.
        max_batch_size: Most rows in one call; by default those that the model takes.
        labels: Names of classes, with commas between them.
        module: What makes the network of weights, as ``package.module:factory``.
        tune: Whether to measure with how many rows in one call the model is fastest.
    """

    method: str | None = None
    trust: bool = False
    inputs: Sequence[str] = ()
    batch: bool | None = None
    max_batch_size: int | None = None
    labels: str | None = None
    tune: bool = False
    module: str | None = None

    def of_load(self) -> dict[str, Any]:
        """The arguments of :func:`pytriton.saved.load`.

        Raises:
            TargetError: An input has another form.
        """
        given = {}
        for text in self.inputs:
            name, separator, rest = text.partition(":")
            if not separator:
                raise TargetError(f"--input {text!r} is not NAME:DTYPE or NAME:DTYPE:SHAPE, such as age:int64")
            given[name] = rest
        labels = [each.strip() for each in self.labels.split(",")] if self.labels else ()
        told = {"inputs": given, "batch": self.batch, "labels": labels, "module": self.module}
        return {"method": self.method, "trust": self.trust, **told}

    def flags(self) -> list[str]:
        """The options that give these arguments."""
        batch = {None: [], True: ["--batch"], False: ["--no-batch"]}[self.batch]
        method = ["--method", self.method] if self.method else []
        inputs = [part for text in self.inputs for part in ("--input", text)]
        labels = ["--labels", self.labels] if self.labels else []
        module = ["--module", self.module] if self.module else []
        rows = ["--max-batch-size", str(self.max_batch_size)] if self.max_batch_size else []
        return [*method, *["--trust"] * self.trust, *inputs, *batch, *labels, *module, *rows]


@dataclass(frozen=True)
class SavedTarget:
    """Files of saved models, each under a name."""

    files: Mapping[str, Path]
    arguments: LoadArguments

    def folder(self) -> Path:
        """There is none: a file of a model is no source."""
        raise TargetError("--reload is for modules; start again to serve a new file")

    def load(self, access_token: str | None = None, workers: int | None = None) -> TritonBase:
        """A server of the models in the files.

        Args:
            access_token: Of the ``Triton``; None makes a random one.
            workers: Worker processes for each file; None calls it in this process.

        Raises:
            TargetError: A file cannot be served.
        """
        with errors_of_target():
            for path in self.files.values():
                locate_trusted(path, self.arguments.trust)
            triton = Triton(security_config=TritonSecurityConfig(access_token=access_token), rest=True)
            if not self.arguments.tune:  # which measures
                triton.launch()
            for name, path in self.files.items():
                arguments, rows = self.arguments.of_load(), self.arguments.max_batch_size
                if self.arguments.tune:
                    rows = tuned_rows(path, arguments, rows, max(1, default_threads() // (workers or 1)))
                load_it = partial(load, path.resolve(), **arguments, sizes_batches=rows is None)
                config = ModelConfig() if rows is None else ModelConfig(max_batch_size=rows)
                triton.bind(name, load_it() if workers is None else Processes(load_it, count=workers), config=config)
        return triton

    def __str__(self) -> str:
        return " ".join(f"{name}={path}" for name, path in self.files.items())


def target_of(texts: Sequence[str], arguments: LoadArguments) -> Target | SavedTarget:
    """What the command line names: an object in a module, or files.

    Raises:
        TargetError: It names something else, or has options that do not fit.
    """
    files = [each for each in texts if is_file(each)]
    if not files:
        if len(texts) > 1:
            raise TargetError("give one MODULE:OBJECT, or files of models")
        if arguments != LoadArguments():
            raise TargetError(
                "--method, --trust, --input, --batch, --labels, --module, --max-batch-size and --tune are for saved "
                "models"
            )
        return Target.parse(texts[0])
    if len(files) < len(texts):
        (other, *_) = (each for each in texts if each not in files)
        raise TargetError(f"{other!r} is no file of a model, or is not there; serve files and a module by two commands")
    of_all = LoadArguments(trust=arguments.trust, max_batch_size=arguments.max_batch_size, tune=arguments.tune)
    if len(files) > 1 and arguments != of_all:
        raise TargetError(
            "--method, --input, --batch, --labels and --module are for one file; for several, write a program that "
            "binds pytriton.saved.load(FILE, ...) for each: pytriton inspect FILE --write server.py writes that of one"
        )
    named = [split_name(each) for each in files]
    if len(dict(named)) < len(named):
        raise TargetError("two files have the same name; name them: pytriton serve one=PATH two=PATH")
    return SavedTarget(dict(named), arguments)


def is_file(text: str) -> bool:
    """Whether an argument of ``serve`` is the file or folder of a model, and not a module."""
    if PREFIX.match(text) or "://" in text:
        return True
    path = Path(split_name(text)[1])
    return path.suffix != ".py" and (path.exists() or path.suffix.lower() in SUFFIXES or "=" in text)


def split_name(text: str) -> tuple[str, Path]:
    """The name of the model and the path in ``path``, ``name=path``, ``mlflow:path``, ``hf:path`` and ``file://path``.

    Raises:
        TargetError: Settings of MLServer are wrong, the path is on another machine, or no model can have the name.
    """
    name, separator, path = text.partition("=")
    if not separator or Path(PREFIX.sub("", text)).exists():
        name, path = "", text
    address = PREFIX.sub("", path)
    found = Path(address)
    if "://" in address or found.name == SETTINGS or (found / SETTINGS).is_file():
        with errors_of_target():
            found, _, told = locate(address)
        name = name or told
    name = name or name_of(found)
    with errors_of_target():
        check_name(name)
    return name, found


def inspect(
    file: Annotated[str, typer.Argument(metavar="[NAME=]FILE", help="A saved model, e.g. iris.onnx.")],
    method: options.Method = None,
    trust_files: options.Trust = False,
    inputs: options.Inputs = None,
    batch: options.Batch = None,
    max_batch_size: options.MaxBatchSize = None,
    labels: options.Labels = None,
    module: options.Module = None,
    write: Annotated[Path | None, typer.Option(help="Write a program that serves it, e.g. server.py.")] = None,
) -> None:
    """Show what a saved model has, and what **pytriton serve FILE** would bind."""
    with exit_on_error((TargetError, FileExistsError)):
        arguments = LoadArguments(method, trust_files, inputs or (), batch, max_batch_size, labels, module=module)
        sys.path.insert(0, str(Path.cwd()))  # for the module
        name, path = split_name(file)
        if write is not None and write.exists():
            raise FileExistsError(f"{write} exists; name a file that does not exist yet")
        with errors_of_target():
            model = load(path, **arguments.of_load())
            for line in report_of(name, path, locate(path).format, model):
                typer.echo(line)
        if write is not None:
            command = shlex.join(["pytriton", "serve", file, *arguments.flags()])
            source = program_of(name, path, write, arguments.of_load(), command, max_batch_size or model.most_rows)
            with write.open("x", encoding="utf-8") as program:
                program.write(source)
            typer.echo(f"{write} serves it: {shlex.join([Path(sys.executable).name, str(write)])}")


@contextmanager
def errors_of_target() -> Iterator[None]:
    """Tell what is wrong with a file in one line."""
    try:
        yield
    except (PyTritonValidationError, ImportError, OSError) as error:
        raise TargetError(str(error)) from error
