"""Whole programs for the in-process API, as users write them: what they print, with NumPy 2 and with NumPy 1.26.

NumPy 1.26 takes an interpreter that has it, as ``make interpreters`` installs it for the oldest one.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.server.interpreters import ROOT, environment, interpreters
from tests.server.proxies import native_part_only
from tests.specifications.compatibility_tables import entries

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough, native_part_only]

FOLDER = ROOT / "tests" / "programs" / "inprocess"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
MODELS = str(FOLDER / "models")
OPTIONS = {  # what stands before the folder of models on the command line
    "api_unittest": "--models",
    "async_clients": "-m",
    "http_front": "--repository",
    "model_control": "--models",
    "zero_copy": "--model-repository",
}
DEADLINE_S = 110
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

Outcomes = dict[str, "Future[subprocess.CompletedProcess[str]]"]


def pythons() -> Iterator[object]:
    """This interpreter, and another one for each major version of NumPy that this one does not have."""
    yield pytest.param(sys.executable, id="this-interpreter")
    found = {numpy_of(sys.executable)}
    for interpreter in interpreters():
        python = environment(interpreter) / "bin" / "python"
        if python.exists() and (version := numpy_of(str(python))) not in found:
            found.add(version)
            yield pytest.param(str(python), id=f"numpy-{version}")


def numpy_of(python: str) -> str:
    """The major version of an interpreter's NumPy; empty if it has none."""
    command = [python, "-c", "import numpy; print(numpy.__version__.partition('.')[0])"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module", params=[*pythons()])
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """All programs, which run beside each other: they wait for the server most of the time."""

    def run(name: str) -> subprocess.CompletedProcess[str]:
        arguments = [OPTIONS[name], MODELS] if name in OPTIONS else [MODELS]
        return subprocess.run(
            [request.param, FOLDER / f"{name}.py", *arguments],
            env={**ENVIRONMENT, "TMPDIR": str(folder)},  # some programs leave files there
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    folder = tmp_path_factory.mktemp("programs")
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(run, name) for name in PROGRAMS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_its_results(outcomes: Outcomes, name: str):
    done = outcomes[name].result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == (FOLDER / f"{name}.txt").read_text()


def test_the_programs_use_every_public_name():
    used: set[str] = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.alias(name=name):
                    used.add(name)
                case ast.Constant(value=str(text)):  # for getattr, and for names of classes in a table
                    used.update(text.split())
    assert sorted(entry.name for entry in entries("inprocess") if entry.leaf not in used and not entry.is_special) == []
