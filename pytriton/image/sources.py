"""What goes into an image: saved models, or a program with the modules and files that it names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.onnx import external_files, looks_like_onnx
from pytriton.saved.layouts import locate, locate_trusted

__all__ = ["Sources", "of_files", "of_program"]

SUPPRESSED = ("ImportError", "ModuleNotFoundError", "Exception")


@dataclass(frozen=True)
class Sources:
    """What an image has of its user.

    Attributes:
        command: What the container runs, in the folder of the files.
        files: By their paths in the image, below that folder.
        modules: Names of the top-level modules that must be installed.
        requirements: Names of distributions that must be.
        extras: Of this distribution.
    """

    command: Sequence[str]
    files: Mapping[str, Path]
    modules: frozenset[str] = frozenset()
    requirements: frozenset[str] = frozenset()
    extras: frozenset[str] = field(default=frozenset({"cli", "metrics", "rest"}))


def of_files(models: Mapping[str, Path], flags: Sequence[str], module: str = "", *, trust: bool) -> Sources:
    """Files of saved models, by name.

    Args:
        flags: Options of ``pytriton serve``.
        module: What makes the network of weights, as ``package.module:factory``, in this folder or installed.
        trust: Whether the files may run code.

    Raises:
        PyTritonValidationError: A file is missing, damaged, of an unknown format, or not trusted.
    """
    folder, targets, requirements = Path.cwd(), [], set[str]()
    files, modules = _with_imports([module.partition(":")[0]] if module else [], [], folder)
    for name, given in models.items():
        path, found, _ = locate_trusted(given, trust)
        files.update({f"{name}/{inner}": file for inner, file in _tree(path)})
        modules.update(found.packages)
        requirements.update(_required_by(path))
        targets.append(f"{name}={name if path.is_dir() else f'{name}/{path.name}'}")
    return Sources(["pytriton", "serve", *targets, *flags], files, frozenset(modules), frozenset(requirements))


def of_program(path: Path, target: str, more: Iterable[Path]) -> Sources:
    """A program, with the modules beside it that it imports, and the files beside it whose names it has as texts.

    Args:
        path: Of the program.
        target: ``module:object`` for ``pytriton serve``; empty for a program that is run, or serves its functions.
        more: Files and folders beside it that it needs.

    Raises:
        PyTritonValidationError: A file is missing, outside of the folder of the program, or no Python.
    """
    folder = path.resolve().parent
    requirements: set[str] = set()
    is_run = not target and "__main__" in _texts(_parsed(path))
    files, modules = _with_imports([], [path.resolve()], folder)
    trees = [_parsed(source) for source in files.values()]
    data = [_beside(each, folder) for each in more]
    data += [_beside(folder / text, folder) for tree in trees for text in _texts(tree) if _is_file(folder, text)]
    for each in data:
        around = (each if each.is_dir() else each.parent).relative_to(folder)
        files.update({(around / inner).as_posix(): file for inner, file in _tree(each)})
        modules |= _modules_of(each)
        requirements |= _required_by(each)
    serve = ["pytriton", "serve", target or path.name, "--rest-port", "8080"]
    command = ["python", path.name] if is_run else serve
    return Sources(command, files, frozenset(modules - {"pytriton"}), frozenset(requirements))


def _with_imports(names: Sequence[str], sources: list[Path], folder: Path) -> tuple[dict[str, Path], set[str]]:
    """The sources of modules in a folder and of all that they import from there; and top-level modules from elsewhere.

    Args:
        names: Of modules.
        sources: More files, in the folder.
    """
    files: dict[str, Path] = {}
    modules: set[str] = set()

    def follow(name: str) -> None:
        top = name.partition(".")[0]
        sources.extend(each for each in _local(name, folder) if each.relative_to(folder).as_posix() not in files)
        if not _is_local(top, folder) and top not in sys.stdlib_module_names:
            modules.add(top)

    for name in names:
        follow(name)
    while sources:
        source = sources.pop()
        files[source.relative_to(folder).as_posix()] = source
        for name in _imports(_parsed(source), source.relative_to(folder).parent.parts):
            follow(name)
    return files, modules


def _tree(path: Path) -> Iterator[tuple[str, Path]]:
    """The files of a model, by their paths below its folder."""
    if path.is_dir():
        for each in sorted(path.rglob("*")):
            if each.is_file() and "__pycache__" not in each.parts:
                yield each.relative_to(path).as_posix(), each
        return
    yield path.name, path
    if looks_like_onnx(path):
        yield from ((name, path.parent / name) for name in external_files(path))


def _required_by(path: Path) -> set[str]:
    """Names of the distributions that a folder of MLflow lists."""
    listed = path / "requirements.txt"
    if not listed.is_file():
        return set()
    lines = (line.partition("#")[0].partition(";")[0].strip() for line in listed.read_text().splitlines())
    return {line for line in lines if line and not line.startswith("-")}


def _modules_of(path: Path) -> set[str]:
    """What is needed to load a file, if it is a saved model."""
    try:
        return {*locate(path).format.packages}
    except PyTritonValidationError:
        return set()


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        raise PyTritonValidationError(f"there is no file {path}") from error
    except (SyntaxError, ValueError) as error:
        raise PyTritonValidationError(f"{path} is no program of Python: {error}") from error


def _imports(tree: ast.AST, package: Sequence[str], *, is_optional: bool = False) -> Iterator[str]:
    """Names of the modules that a module imports, except those that it can do without, and of what it gets from them.

    Args:
        package: The names of the packages around it.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if not is_optional)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(package):
            around = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*around, *([node.module] if node.module else ())])
            if module and not is_optional:
                yield from (module, *(f"{module}.{each.name}" for each in node.names))
        elif isinstance(node, ast.Try):
            caught = {text for each in node.handlers for text in _names(each.type)}
            can_fail = is_optional or bool(caught & {*SUPPRESSED})
            yield from _imports(ast.Module(node.body, []), package, is_optional=can_fail)
            others = [*(each for handler in node.handlers for each in handler.body), *node.orelse, *node.finalbody]
            yield from _imports(ast.Module(others, []), package, is_optional=is_optional)
        else:
            yield from _imports(node, package, is_optional=is_optional)


def _names(node: ast.AST | None) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node else {"Exception"}


def _local(name: str, folder: Path) -> list[Path]:
    """The files of a module in the folder, with those of the packages around it."""
    parts = name.split(".")
    found = [folder.joinpath(*parts[:end], "__init__.py") for end in range(1, len(parts) + 1)]
    return [each for each in (*found, folder.joinpath(*parts).with_suffix(".py")) if each.is_file()]


def _is_local(top: str, folder: Path) -> bool:
    """Whether a module, or a package, which needs no ``__init__.py``, is in the folder."""
    return (folder / f"{top}.py").is_file() or any((folder / top).rglob("*.py"))


def _texts(tree: ast.AST) -> set[str]:
    return {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _is_file(folder: Path, text: str) -> bool:
    """Whether a text of a program names a file or folder of data; what has an absolute path is not of the program."""
    try:
        is_name = bool(text.strip("./")) and not text.endswith(".py") and not text.startswith("/")
        return is_name and (folder / text).exists()
    except (OSError, ValueError):  # no name of a file
        return False


def _beside(path: Path, folder: Path) -> Path:
    found = path.resolve()
    if not found.exists():
        raise PyTritonValidationError(f"there is no file {path}")
    if not found.is_relative_to(folder) or found == folder:
        raise PyTritonValidationError(f"{path} is not below {folder}, the folder of the program; put it there")
    return found
