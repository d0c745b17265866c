"""``pytriton build``: a folder from which the image of a container is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pytriton.cli import options
from pytriton.cli.errors import TargetError, exit_on_error
from pytriton.cli.saved import LoadArguments, SavedTarget, errors_of_target, is_file, target_of
from pytriton.image.folder import write_folder
from pytriton.image.sources import Sources, of_files, of_program

__all__ = ["build", "build_image"]


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
    module: options.Module = None,
) -> None:
    """Write a folder from which docker builds an image that serves a program, or saved models.

    It has a Dockerfile, compose.yaml, manifests for Kubernetes, this package as a wheel, the models, and a lock file
    with the versions that are installed here. The same arguments give the same bytes. A folder that the command
    has made is replaced, another one never.
    """
    with exit_on_error():
        arguments = LoadArguments(method, trust_files, inputs or (), batch, max_batch_size, labels, module=module)
        build_image(targets, arguments, workers, output, name, include or [], requirement or [], wheelhouse, typer.echo)


def build_image(
    texts: Sequence[str],
    arguments: LoadArguments,
    workers: int | None,
    output: Path,
    image: str,
    include: Sequence[Path],
    requirements: Sequence[str],
    is_vendored: bool,
    say: Callable[[str], None],
) -> None:
    """Write the folder of an image.

    Args:
        texts: Files of saved models, as for ``pytriton serve``; or one program, ``server.py`` or ``module:object``.
        workers: Worker processes for each file; None calls it in the process of the server.
        output: The folder.
        image: Name of the image, with a tag.
        include: More files and folders of a program.
        requirements: More distributions.
        is_vendored: Whether the wheels of all distributions are put into the folder.
        say: Shows a line to the user.

    Raises:
        TargetError: Something is missing, or the folder is another one.
    """
    with errors_of_target():
        sources = _sources(texts, arguments, workers, include)
        sources = replace(sources, requirements=sources.requirements | {*requirements})
        write_folder(sources, output, image, is_vendored=is_vendored)
    say(f"{output} has {', '.join(sorted(sources.files))}, and runs: {' '.join(sources.command)}")
    say(f"docker build -t {image} {output}")


def _sources(texts: Sequence[str], arguments: LoadArguments, workers: int | None, include: Sequence[Path]) -> Sources:
    if any(map(is_file, texts)):
        target = target_of(texts, arguments)
        assert isinstance(target, SavedTarget)
        if include:
            raise TargetError("--include is for programs; name all files of models as arguments")
        flags = [*arguments.flags(), *([] if workers is None else ["--workers", str(workers)])]
        return of_files(target.files, flags, arguments.module or "", trust=arguments.trust)
    if len(texts) > 1 or arguments != LoadArguments() or workers is not None:
        raise TargetError("give one program, which has its options itself, or files of models")
    name, separator, attribute = texts[0].partition(":")
    path = Path(name if name.endswith(".py") else f"{name.replace('.', '/')}.py")
    module = name.removesuffix(".py").replace("/", ".")
    if separator and path.parent != Path("."):
        raise TargetError(f"{texts[0]!r} is in another folder; run the command in {path.parent}")
    return of_program(path, f"{module}:{attribute}" if separator else "", include)
