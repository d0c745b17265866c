"""``pytriton check``: a report on the environment, and a self-test, with what both say in a folder."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytriton.cli import add_sub, environment
from pytriton.config import ENVIRONMENT_PREFIX

__all__ = ["check", "example_add_sub", "example_add_sub_script"]

SCRIPT_TIMEOUT_S = 180
TAIL_LINES = 20

Say = Callable[[str], None]


def check(workspace: Path | None, compress: bool, say: Say) -> bool:
    """Report and test.

    Args:
        workspace: Folder for the report and the logs, to be made; None keeps nothing but the ``.zip`` file.
        compress: Make a ``.zip`` file of them: beside the workspace, or in the working folder.
        say: Shows a line to the user.

    Returns:
        Whether the self-tests passed.

    Raises:
        FileExistsError: The workspace exists.
    """
    say(environment.PRIVACY)
    with _folder(workspace) as folder:
        say("Collecting the report on the environment ...")
        text = environment.report()
        (folder / "report.txt").write_text(text)
        say(environment.proxy_choice())
        for weaknesses in filter(None, [environment.known_weaknesses()]):
            say(weaknesses)
        passed = [test(folder, say) for test in (example_add_sub, example_add_sub_script)]
        archive = _compress(folder, workspace) if compress else None
    if workspace is not None:
        say(f"The report and the logs are in {workspace}.")
    if archive is not None:
        say(f"They are compressed in {archive}." if workspace else f"The report and the logs are in {archive}.")
    if workspace is None and archive is None:
        say("The report: pytriton env. To keep it with the logs: pytriton check --workspace FOLDER, or --zip.")
    if workspace is not None or archive is not None:
        say(environment.PRIVACY)
    return all(passed)


def example_add_sub(folder: Path, say: Say) -> bool:
    """Serve and call a model from this process; logs go to ``add_sub.log`` and ``server.log`` in the folder.

    Returns:
        Whether it worked.
    """
    log, server_log = folder / "add_sub.log", folder / "server.log"
    what = "add_sub in this process"
    start = time.monotonic()
    with _logging_to(log), _without_server_options():
        try:
            for protocol in add_sub.check_add_sub(server_log):
                say(f"{what}: {protocol} works")
        except Exception as error:
            with log.open("a") as file:
                traceback.print_exc(file=file)
            return _failed(f"{what} failed: {type(error).__name__}: {error}", server_log, say)
    say(f"{what}: passed in {time.monotonic() - start:.1f} s")
    return True


def example_add_sub_script(folder: Path, say: Say) -> bool:
    """The same as a script of its own, which writes ``add_sub_script.log``."""
    log = folder / "add_sub_script.log"
    what = "add_sub as a script"
    start = time.monotonic()
    with log.open("w") as file, _without_server_options():
        try:
            status = subprocess.run(
                [sys.executable, "-m", add_sub.__name__],
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=SCRIPT_TIMEOUT_S,
            ).returncode
        except subprocess.TimeoutExpired as error:
            return _failed(f"{what} failed: {error}", log, say)
    if status:
        return _failed(f"{what} failed with exit status {status}", log, say)
    say(f"{what}: passed in {time.monotonic() - start:.1f} s")
    return True


def _failed(what: str, log: Path, say: Say) -> bool:
    say(what)
    if log.exists():
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        say("\n".join([f"the last lines of {log.name}:", *(f"    {line}" for line in lines)]))
    return False


@contextmanager
def _folder(workspace: Path | None) -> Iterator[Path]:
    if workspace is None:
        with tempfile.TemporaryDirectory(prefix="pytriton-check-") as folder:
            yield Path(folder)
        return
    if os.path.lexists(workspace):
        raise FileExistsError(f"{workspace} exists; give a folder that does not exist yet")
    workspace.mkdir(mode=0o700, parents=True)
    yield workspace


def _compress(folder: Path, workspace: Path | None) -> Path:
    if workspace is None:
        target = Path.cwd() / f"pytriton-check-{time.strftime('%Y%m%d-%H%M%S')}.zip"
    else:
        target = workspace.with_name(f"{workspace.name}.zip")
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{target.stem}/{file.name}")
    return target


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """What the package logs goes to a file, and nowhere else."""
    logger = logging.getLogger("pytriton")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
        handler.close()


@contextmanager
def _without_server_options() -> Iterator[None]:
    """The self-test chooses its own options; those of the environment are in the report."""
    taken = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith(ENVIRONMENT_PREFIX)}
    try:
        yield
    finally:
        os.environ.update(taken)
