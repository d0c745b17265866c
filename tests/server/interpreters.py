"""Interpreters of this machine, and an environment with the package's dependencies for each, kept in build/.

python tests/server/interpreters.py    makes those that are missing; tests/server/test_interpreters.py uses them
"""

from __future__ import annotations

import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "interpreters"
VARIABLE = "PYTRITON_TEST_PYTHONS"
OLDEST = 10
OLDEST_NUMPY = "numpy==1.26.*"  # of those that the package supports: with the oldest interpreter


def interpreters() -> list[Path]:
    """Those that the package supports: pyenv's, the system's, and those that ``$PYTRITON_TEST_PYTHONS`` lists."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [*pyenv.glob("versions/*/bin/python3"), *Path("/usr/bin").glob("python3*")]
    places += map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    return sorted({path.resolve() for path in places if (found := minor(path)) and found >= OLDEST})


def minor(interpreter: Path) -> int | None:
    """The y of an interpreter's version 3.y, by the name of its file; None if that is another program."""
    match = re.fullmatch(r"python3\.(\d+)t?", interpreter.resolve().name)
    return int(match[1]) if match else None


def environment(interpreter: Path) -> Path:
    """The folder of an interpreter's environment, which may not have been made."""
    return ENVIRONMENTS / "-".join(interpreter.parts[1:])


def make(interpreter: Path) -> None:
    """Make an interpreter's environment; the package itself is imported from its source."""
    folder = environment(interpreter)
    needed = [line for line in metadata.requires("pytriton") or () if "extra ==" not in line]
    numpy = [OLDEST_NUMPY] if minor(interpreter) == OLDEST else []
    subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, *needed, *numpy], check=True)
    (folder / "complete").touch()


def main() -> None:
    """Make what is missing. The tests skip an interpreter for which that fails."""
    for interpreter in interpreters():
        if not (environment(interpreter) / "complete").exists():
            print(f"making an environment for {interpreter}", flush=True)
            try:
                make(interpreter)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"{interpreter} is left out: {error}", flush=True)


if __name__ == "__main__":
    main()
