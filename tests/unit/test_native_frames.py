"""The native proxy's reading of frames, compiled with sanitizers and fed damaged ones."""

import shutil
import subprocess
from pathlib import Path

import pytest

from pytriton.server.native import LIBRARY

SOURCE = LIBRARY.parent
ROUNDS = 20_000

needs_compiler = pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("c++")), reason="there is no cmake or no C++ compiler"
)


def build(folder: Path, target: str, *options: str) -> Path:
    for command in (["cmake", "-S", SOURCE, "-B", folder, *options], ["cmake", "--build", folder, "--target", target]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / target


@needs_compiler
def test_damaged_frames_are_refused_and_nothing_beyond_them_is_read(tmp_path):
    program = build(tmp_path, "damaged_frames", "-DPYTRITON_SANITIZE=address,undefined")
    for seed in range(3):
        done = subprocess.run([program, str(seed), str(ROUNDS)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
