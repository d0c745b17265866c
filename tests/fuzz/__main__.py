"""Run the fuzzers, one after the other: ``python -m tests.fuzz --seconds 60 [target ...]``.

Each reads one kind of bytes, but for ``composition``, which is a whole service (``composition.py``).

Targets in C++ take CMake and clang with libFuzzer (Debian: ``clang`` and ``libclang-rt-<version>-dev``); those in
Python take atheris. What is found is written to ``build/fuzz``; once mended, it belongs into ``tests/fuzz/corpus``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import CORPUS, TARGETS

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
NATIVE = ("frame", "json", "infer", "head", "predict", "grpc", "h2")
SERVICE = "composition"
ALL = (*NATIVE, *TARGETS, SERVICE)
MOST_BYTES = 4096
COMPILERS = ["clang++", *(f"clang++-{version}" for version in range(25, 13, -1))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--runs", type=int, default=-1, help="most executions of each target; default: any number")
    parser.add_argument("targets", nargs="*", metavar="target", help=f"default: {', '.join(ALL)}")
    arguments = parser.parse_args()
    unknown = {*arguments.targets} - {*ALL}
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; choose of {', '.join(ALL)}")
    failed = []
    for name in arguments.targets or ALL:
        if name == SERVICE:
            command = [sys.executable, "-m", "tests.fuzz.composition", f"--seconds={arguments.seconds}"]
        else:
            command = [*program(name), *options(name, arguments.seconds, arguments.runs)]
        print(f"\n=== {name}: {' '.join(map(str, command))}", flush=True)
        if subprocess.run(command, cwd=ROOT).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"faults were found by {', '.join(failed)}; their inputs are in {BUILD}")


def options(name: str, seconds: int, runs: int) -> list[str]:
    """libFuzzer's, which atheris understands, too."""
    found = BUILD / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    dictionary = CORPUS.with_name(f"{name}.dict")
    return [
        f"-max_total_time={seconds}",
        f"-runs={runs}",
        f"-max_len={MOST_BYTES}",
        "-timeout=10",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        f"-artifact_prefix={BUILD}/{name}-",
        *([f"-dict={dictionary}"] if dictionary.is_file() else []),
        str(found),
        str(CORPUS / name),
    ]


def program(name: str) -> list[str | Path]:
    """What runs a target."""
    if name in TARGETS:
        return [sys.executable, "-m", "tests.fuzz.atheris_target", name]
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None or not shutil.which("cmake"):
        sys.exit(
            "the targets in C++ take clang with libFuzzer, and CMake: apt-get install clang libclang-rt-14-dev cmake"
        )
    sanitize = "-DPYTRITON_SANITIZE=address,undefined,fuzzer-no-link"
    configure = [
        "cmake",
        "-S",
        ROOT / "tests/native",
        "-B",
        BUILD / "native",
        f"-DCMAKE_C_COMPILER={compiler.replace('clang++', 'clang')}",
        f"-DCMAKE_CXX_COMPILER={compiler}",
        sanitize,
    ]
    for command in (configure, ["cmake", "--build", BUILD / "native", "--target", f"fuzz_{name}"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
    return [BUILD / "native" / f"fuzz_{name}"]


if __name__ == "__main__":
    main()
