"""CPython 3.14 as WebAssembly: the sources compile and import there without a warning, and annotations are read late.

Needs Node, and pyodide of npm in ``build/pyodide``, where ``make newer`` puts it; ``PYTRITON_TEST_PYODIDE`` names
another folder. There is no NumPy for it, and no server: no more than this is known of that version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PYODIDE = Path(os.environ.get("PYTRITON_TEST_PYODIDE") or REPOSITORY / "build/pyodide/node_modules/pyodide")
DEADLINE_S = 300
UNRESOLVED = (
    "PyTritonValidationError: {}: the annotation '{}' of {} cannot be resolved (name 'Missing' is not defined); define "
    "what it names at the top of its module"
)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What ``inside.py`` prints."""
    node = shutil.which("node")
    if node is None or not (PYODIDE / "pyodide.mjs").exists():
        pytest.skip("Node or pyodide is missing; run make newer")
    site = sysconfig.get_path("purelib")
    command = [node, HERE / "run.mjs", PYODIDE, REPOSITORY, site, (HERE / "inside.py").relative_to(REPOSITORY)]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout, done.stderr[-3000:]
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def test_it_is_newer_than_what_runs_the_other_tests(found):
    assert tuple(found["version"]) >= (3, 14)


def test_all_sources_compile_without_a_warning(found):
    assert found["compiled"] == {}


def test_all_modules_can_be_imported_without_a_warning(found):
    assert found["count"] > 200
    assert found["imported"] == {}


@pytest.mark.parametrize(
    ("name", "annotation", "place"),
    [
        ("undefined", "Missing", "parameter 'x'"),
        ("listed", "list[Missing]", "parameter 'x'"),
        ("resulting", "Missing", "the result"),
    ],
)
def test_an_annotation_that_cannot_be_resolved_is_told(found, name, annotation, place):
    assert found["annotations"][name].startswith(UNRESOLVED.format(name, annotation, place))


def test_annotations_are_resolved_when_they_are_asked_for(found):
    told = found["annotations"]
    assert told["later"] == "{'x': 'Later', 'return': 'int'}"
    assert told["optional"] == "{'x': 'Union', 'y': 'Later', 'return': 'int'}"
    assert told["enclosing"] == "{'x': 'Local', 'return': 'Local'}"
    assert told["record"] == "UnderivableError: the fields of Record cannot be resolved (name 'Missing' is not defined)"


def test_parameters_are_known_without_their_annotations(found):
    told = found["annotations"]
    assert told["signature"] == told["wrapped"] == "['x', 'y']"
    assert told["builtin"] == told["object"] == "{}"
    assert told["device"] == "False"
    assert told["bound list"] == "None"
    assert told["bound"].startswith(
        "PyTritonValidationError: undefined(x: Missing, y: int) -> int does not fit model 'm'"
    )
