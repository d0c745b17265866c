"""``pytriton build``: a folder from which the image of a container is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pytriton.cli.saved import LoadArguments, SavedTarget, errors_of_target, is_file, target_of
from pytriton.cli.target import TargetError
from pytriton.image.folder import write_folder
from pytriton.image.sources import Sources, of_files, of_program

__all__ = ["build_image"]


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
        return of_files(target.files, flags, trust=arguments.trust)
    if len(texts) > 1 or arguments != LoadArguments() or workers is not None:
        raise TargetError("give one program, which has its options itself, or files of models")
    name, separator, attribute = texts[0].partition(":")
    path = Path(name if name.endswith(".py") else f"{name.replace('.', '/')}.py")
    module = name.removesuffix(".py").replace("/", ".")
    if separator and path.parent != Path("."):
        raise TargetError(f"{texts[0]!r} is in another folder; run the command in {path.parent}")
    return of_program(path, f"{module}:{attribute}" if separator else "", include)
